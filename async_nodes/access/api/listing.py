"""Step 5, expose: ``GET /v1/tasks``, tasks in brief: those named, or what passes filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flask import Blueprint, Response, g, request

from async_nodes.access.api import query
from async_nodes.access.api.answers import JSON
from async_nodes.access.services import Provider
from async_nodes.core.contracts import epoch_ms
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import well_formed
from async_nodes.core.states import NodeState
from async_nodes.core.strict_json import dumps
from async_nodes.dispatch.request import MAX_TAG, MAX_TAGS
from async_nodes.storage.listing import Filters, Listing

MOST: Final = 200
USUAL: Final = 50
PARAMETERS: Final = (
    "ids", "state", "node", "tag", "created_after", "created_before", "limit", "cursor", "fields",
)  # fmt: skip
_STATES: Final = tuple(state.value for state in NodeState)
_LONGEST_TIME: Final = 64


def blueprint(provider: Provider) -> Blueprint:
    """Return the route."""
    made = Blueprint("listing", __name__)

    @made.get("/v1/tasks")
    def list_tasks() -> Response:
        query.refuse_unknown(PARAMETERS)
        full = query.word("fields", ["brief", "full"]) == "full"
        listing = Listing(provider().store)
        if "ids" in request.args:
            return _named(listing, requested_ids(), full=full)
        return _found(listing, full=full)

    return made


def requested_ids() -> list[str]:
    """Return the ids that the query names, each once.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    for name in request.args:
        if name not in ("ids", "fields"):
            query.refuse(name, f"ids names the tasks: {name} has no place beside it")
    text = query.text("ids", longest=MOST * 30) or ""
    ids = list(dict.fromkeys(text.split(",")))
    if len(ids) > MOST:
        query.refuse("ids", f"ids may name {MOST} tasks, not {len(ids)}")
    for task_id in ids:
        if not well_formed(task_id):
            query.refuse("ids", f"{task_id[:64]!r} is not a task's id")
    return ids


def requested_filters() -> Filters:
    """Return what the query asks for.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    states = query.texts("state", most=len(_STATES), longest=16)
    for state in states:
        query.check_word("state", state, _STATES)
    return Filters(
        states=tuple(map(NodeState, states)),
        nodes=tuple(query.texts("node", most=50, longest=128)),
        tags=tuple(query.texts("tag", most=MAX_TAGS, longest=MAX_TAG)),
        after_ms=_time("created_after"),
        before_ms=_time("created_before", round_up=True),
    )


def _time(name: str, *, round_up: bool = False) -> int | None:
    """Return the milliseconds since 1970 that a parameter stands for."""
    given = query.text(name, longest=_LONGEST_TIME)
    if given is None:
        return None
    try:
        # A plus sign that was not encoded has become a space on its way.
        return epoch_ms(given.replace(" ", "+"), name, round_up=round_up)
    except (AsyncNodesError, OverflowError):
        query.refuse(name, f"{name} must be a time with its zone, such as 2026-12-01T09:00:00Z")


def _found(listing: Listing, *, full: bool) -> Response:
    most = query.number("limit", least=1, most=MOST, default=USUAL)
    cursor = query.text("cursor", longest=128) or ""
    filters = requested_filters()
    page = listing.find(g.tenant, filters, cursor, most=most)
    if not full:
        brief = listing.summaries(g.tenant, page.ids, states=filters.states)
        return _answer([dumps(one) for one in brief], page.next)
    documents, looked_up = listing.documents(g.tenant, page.ids, states=filters.states)
    if looked_up < len(page.places):  # the bytes were enough: the rest is another page
        return _answer(documents, page.places[looked_up - 1].cursor)
    return _answer(documents, page.next)


def _named(listing: Listing, ids: list[str], *, full: bool) -> Response:
    if full:
        documents, looked_up = listing.documents(g.tenant, ids)
        there = {document[12:40].decode() for document in documents}
    else:
        summaries = {one["task_id"]: one for one in listing.summaries(g.tenant, ids)}
        documents, looked_up = [dumps(one) for one in summaries.values()], len(ids)
        there = set(summaries)
    missing = [task_id for task_id in ids[:looked_up] if task_id not in there]
    return _answer(documents, None, missing=missing, left=ids[looked_up:])


def _answer(tasks: Sequence[bytes], following: str | None, **more: list[str]) -> Response:
    """Return the list; the tasks are JSON already."""
    rest = dumps({"next": following, **more})[1:]
    response = Response(b"".join((b'{"tasks":[', b",".join(tasks), b"],", rest)), content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    return response
