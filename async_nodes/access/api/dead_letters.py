"""Step 5, expose: the routes of dead letters. List, show, send again, drop.

Sending a letter again is safe to repeat: the new task is made under a name of the letter's own, so
a second try finds it, and the letter goes only after the task is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, g, request

from async_nodes.access import negotiate, problems
from async_nodes.access.api import query
from async_nodes.access.api.answers import (
    accept,
    accepted,
    body_of_request,
    find,
    in_json,
    link,
    located,
    wait_seconds,
)
from async_nodes.access.guard import check_content_type
from async_nodes.core import strict_json
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import Reason
from async_nodes.core.whole import whole_within
from async_nodes.dispatch.request import invalid, unknown
from async_nodes.dispatch.submit import Submitted, digest_of_key
from async_nodes.storage.dead_letters import PAGE, DeadLetters
from async_nodes.storage.listing import Listing, Place
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.telemetry import metrics

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services

MOST: Final = 200
USUAL: Final = 50
MOST_LOOKED: Final = 2_000
"""Letters that one request looks at."""

WHY: Final[dict[str, dict[str, str]]] = {
    Reason.POISON.value: {
        "en": "It ended every process that ran it, also those that ran nothing else.",
        "zh": "它终止了每一个运行它的进程,包括只运行它的进程。",
    },
    Reason.UNDISPATCHED.value: {
        "en": "No worker took its messages, however often they were sent.",
        "zh": "其消息多次发送,始终没有工作进程领取。",
    },
}
_OTHER: Final = {"en": "It could not be done.", "zh": "它无法完成。"}


def blueprint(provider: Provider) -> Blueprint:
    """Return the routes."""
    made = Blueprint("dead_letters", __name__)

    @made.get("/v1/dead-letters")
    def list_letters() -> Response:
        return show_all(provider())

    @made.post("/v1/dead-letters/requeue")
    def requeue_letters() -> Response:
        return requeue_all(provider())

    @made.get("/v1/dead-letters/<task_id>")
    def show_letter(task_id: str) -> Response:
        return show(located(provider, task_id), task_id)

    @made.delete("/v1/dead-letters/<task_id>")
    def drop_letter(task_id: str) -> Response:
        return drop(located(provider, task_id), task_id)

    @made.post("/v1/dead-letters/<task_id>/requeue")
    def requeue_letter(task_id: str) -> Response:
        return requeue(located(provider, task_id), task_id)

    return made


# -- look ------------------------------------------------------------------------------------------


def show_all(services: Services) -> Response:
    """List letters, newest first."""
    query.refuse_unknown(("node", "limit", "cursor"))
    nodes = query.texts("node", most=50, longest=128)
    most = query.number("limit", least=1, most=MOST, default=USUAL)
    cursor = query.text("cursor", longest=128)
    letters, last = DeadLetters(services.store, g.tenant), Place.of(cursor) if cursor else None
    shown: list[dict[str, Any]] = []
    following, looked = None, 0
    while places := letters.newest(last, most=PAGE):
        by_id = _briefs(services, letters, places)
        for place in places:
            last, looked = place, looked + 1
            brief = by_id.get(place.task_id)
            if brief is not None and (not nodes or brief["node"] in nodes):
                shown.append(_shown(place, brief))
            if len(shown) >= most or looked >= MOST_LOOKED:
                following = place.cursor
                break
        if following is not None or len(places) < PAGE:
            break
    return in_json({"dead_letters": shown, "next": following})


def show(services: Services, task_id: str) -> Response:
    """Show a letter with the whole record and why it is there."""
    place = _letter(services, task_id)
    document = find(services, task_id)
    brief = Listing(services.store).summaries(g.tenant, [task_id])
    if not brief:
        raise AsyncNodesError("task_gone", task_id=task_id)
    opening = strict_json.dumps(_shown(place, brief[0]))[:-1]
    body = opening + b',"task":' + document.json + b"}"
    return Response(body, content_type="application/json", headers={"Cache-Control": "no-store"})


def drop(services: Services, task_id: str) -> Response:
    """Remove a letter; the task's record stays for as long as it is kept."""
    if not DeadLetters(services.store, g.tenant).drop(task_id):
        raise _no_letter(task_id)
    return Response(status=204)


def _briefs(
    services: Services, letters: DeadLetters, places: Sequence[Place]
) -> dict[str, dict[str, Any]]:
    """Return what the letters are about; those whose record is gone are dropped."""
    ids = [place.task_id for place in places]
    found = {one["task_id"]: one for one in Listing(services.store).summaries(g.tenant, ids)}
    if gone := [task_id for task_id in ids if task_id not in found]:
        letters.drop(*gone)
    return found


def _shown(place: Place, brief: dict[str, Any]) -> dict[str, Any]:
    task_id = place.task_id
    here = f"{g.base}/v1/dead-letters/{task_id}"
    return {
        "task_id": task_id,
        "node": brief["node"],
        "buried_at": iso(place.score),
        "reason": brief["reason"],
        "why": WHY.get(brief["reason"] or "", _OTHER),
        "error": brief["error"],
        "attempt": brief["attempt"],
        "losses": brief["losses"],
        "created_at": brief["created_at"],
        "expires_at": brief["expires_at"],
        "tags": brief["tags"],
        "links": {"self": here, "task": link(task_id), "requeue": f"{here}/requeue"},
    }


def _letter(services: Services, task_id: str) -> Place:
    place = DeadLetters(services.store, g.tenant).find(task_id)
    if place is None:
        raise _no_letter(task_id)
    return place


def _no_letter(task_id: str) -> AsyncNodesError:
    return AsyncNodesError("dead_letter_not_found", task_id=task_id)


# -- send again ------------------------------------------------------------------------------------


def requeue(services: Services, task_id: str) -> Response:
    """Accept a new task that does the letter's again, with changes if the body has some."""
    seconds = wait_seconds()
    raw = body_of_request()
    if raw:
        check_content_type(request.content_type)
    letters = DeadLetters(services.store, g.tenant)
    if letters.find(task_id) is None and letters.sent_again_as(_digest(task_id)) is None:
        raise _no_letter(task_id)
    return accept(services, _send_again(services, letters, task_id, raw), seconds, retry_of=task_id)


def requeue_all(services: Services) -> Response:
    """Send letters again, the oldest first: 200 with what became of each."""
    node, most = _wanted()
    letters = DeadLetters(services.store, g.tenant)
    tongue = negotiate.language(request.headers.get("Accept-Language"))
    done: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    last = None
    while len(done) < most:  # whatever stands in front of them: there are 10,000 letters at most
        places = letters.oldest(last, most=PAGE)
        by_id = _briefs(services, letters, places)
        for place in places:
            brief = by_id.get(place.task_id)
            if brief is None or (node is not None and brief["node"] != node) or len(done) >= most:
                continue
            try:
                sent = _send_again(services, letters, place.task_id, b"")
            except StoreUnavailable:
                raise  # what was sent is sent; the request may be repeated
            except AsyncNodesError as error:
                problem = problems.document(error, language=tongue, base=g.base)
                refused.append({"task_id": place.task_id, "error": problem})
            else:
                done.append(accepted(sent, retry_of=place.task_id))
        if len(places) < PAGE:
            break
        last = places[-1]
    return in_json({"requeued": done, "refused": refused[:MOST], "left": letters.count()})


def _send_again(services: Services, letters: DeadLetters, task_id: str, raw: bytes) -> Submitted:
    done = services.submitter.retry(
        find(services, task_id),
        raw or b"{}",
        tenant=g.tenant,
        idempotency_key=_name_of(task_id),
        traceparent=g.traceparent,
    )
    letters.drop(task_id)
    metrics.submits("replayed" if done.replayed else "accepted").inc()
    return done


def _name_of(task_id: str) -> str:
    """Return the idempotency key of a letter; a client's own may have no space in it."""
    return f"dead letter {task_id}"


def _digest(task_id: str) -> str:
    return digest_of_key(g.tenant, _name_of(task_id))


def _wanted() -> tuple[str | None, int]:
    """Return the node, None for all, and how many letters are to be sent again.

    Raises:
        AsyncNodesError: ``invalid_request``.

    """
    raw = body_of_request()
    if not raw:
        return None, USUAL
    check_content_type(request.content_type)
    given = strict_json.loads(raw)
    if not isinstance(given, dict):
        raise invalid("the body is a JSON object", "")
    for name in given:
        if name not in ("node", "limit"):
            raise unknown(name, ("node", "limit"))
    node, most = given.get("node"), whole_within(given.get("limit", USUAL), 1, MOST)
    if node is not None and not (isinstance(node, str) and node):
        raise invalid("node is the name of a node", "/node")
    if most is None:
        raise invalid(f"limit is a whole number from 1 to {MOST}", "/limit")
    return node, most
