"""Step 5, expose: what the routes of tasks have in common. Find a task, wait for it, answer.

Works within a request; decides nothing about tasks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, NoReturn

from flask import Response, g, request

from async_nodes.access import negotiate
from async_nodes.access.services import Provider, Services
from async_nodes.access.streams import longpoll
from async_nodes.core import strict_json
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import made_at, well_formed
from async_nodes.dispatch.request import DEFAULT_TTL, MAX_REQUEST
from async_nodes.dispatch.submit import Submitted, links_of
from async_nodes.storage.layout import Document

JSON: Final = "application/json"
RETRY_AFTER: Final = "1"
"""Seconds after which a client that polls may look again."""

REVALIDATE: Final = "private, no-cache"
"""Keep a record only to ask whether it is still the same."""

GONE_MS: Final = (DEFAULT_TTL + 86_400) * 1000
"""How long after its making an id without a record is known as that of a task that was: the usual
retention and a day. Later it is as unknown as any other."""

Until = Callable[[Document], bool]


# -- the task --------------------------------------------------------------------------------------


def located(provider: Provider, task_id: str) -> Services:
    """Return the services, unless the id is none: that is known without them.

    Raises:
        AsyncNodesError: ``task_not_found``.
        StoreUnavailable: the store has not answered yet.

    """
    if not well_formed(task_id):
        raise AsyncNodesError("task_not_found", "this is not a task's id")
    return provider()


def find(services: Services, task_id: str) -> Document:
    """Return a task of the request's tenant.

    Raises:
        AsyncNodesError: ``task_not_found``, or ``task_gone`` for an id of ours without a record.

    """
    document = services.store.read(task_id)
    if document is None:
        missing(services, task_id)
    if document.tenant != g.tenant:
        raise AsyncNodesError("task_not_found")
    return document


def missing(services: Services, task_id: str) -> NoReturn:
    """Raise what has to be said of an id without a record; raises what `find` raises."""
    now_ms = services.clock() * 1000
    if services.ids.issued(task_id) and now_ms < made_at(task_id) + GONE_MS:
        raise AsyncNodesError(
            "task_gone",
            "the task was deleted, or it ended longer ago than its ttl, which is "
            f"{DEFAULT_TTL // 3600} h unless the submit says otherwise",
            task_id=task_id,
        )
    raise AsyncNodesError("task_not_found")


# -- what the request says -------------------------------------------------------------------------


def body_of_request(most: int = MAX_REQUEST) -> bytes:
    """Return the request's body, at most so many bytes.

    Raises:
        AsyncNodesError: ``body_too_large``.

    """
    # One more than is allowed: Werkzeug cuts a chunked body at its bound without a word.
    request.max_content_length = most + 1
    raw = request.get_data(cache=False)
    if len(raw) > most:
        raise AsyncNodesError("body_too_large", f"the body may have {most} bytes")
    return raw


def wait_seconds() -> float:
    """Return how long the client wants its answer held; raises ``bad_request``."""
    return negotiate.wait_seconds(request.headers.get("Prefer"), request.args.get("wait"))


def idempotency_key() -> str:
    """Return the client's name for the request, empty for none; raises ``bad_request``."""
    return negotiate.idempotency_key(request.headers.get("Idempotency-Key"))


def ended(document: Document) -> bool:
    """Tell whether a task has ended."""
    return document.state.terminal


def wait_until(
    services: Services,
    task_id: str,
    seconds: float,
    *,
    until: Until,
    first: Document | None = None,
) -> Document | None:
    """Return the task once it passes the test or the time is up; None when it is gone."""
    if first is not None and until(first):
        return first
    started = perf_counter()
    try:
        return longpoll.wait_for(
            services.hub, services.store, task_id, seconds=seconds, until=until
        )
    finally:
        g.waited = perf_counter() - started


# -- the answer ------------------------------------------------------------------------------------


def link(task_id: str) -> str:
    """Return the address of a task."""
    return f"{g.base}/v1/tasks/{task_id}"


def in_json(
    members: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer that nobody is to keep."""
    response = Response(strict_json.dumps(members), status=status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(headers or {})
    return response


def accepted(done: Submitted, document: Document | None = None, **more: Any) -> dict[str, Any]:
    """Return the members that tell of an accepted task, as it is now if it was looked at."""
    return {
        "task_id": done.task_id,
        "state": document.state.value if document else done.state.value,
        "version": document.version if document else done.version,
        "created_at": done.created_at,
        "links": json.loads(links_of(link(done.task_id))),
        **more,
    }


def accept(services: Services, done: Submitted, seconds: float, **more: Any) -> Response:
    """Return 202 for an accepted task, or 200 with the record if it ends within so many seconds.

    Args:
        services: where to look.
        done: the task.
        seconds: to wait.
        more: further members beside those of every accepted task.

    """
    document = wait_until(services, done.task_id, seconds, until=ended) if seconds else None
    if document is not None and document.state.terminal:
        response = record(document)
    else:
        response = in_json(accepted(done, document, **more), 202, {"Retry-After": RETRY_AFTER})
    response.headers["Location"] = link(done.task_id)
    if done.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return preferring(response, seconds)


def record(document: Document) -> Response:
    """Return a task's record as it is stored."""
    return varying(headed(Response(document.json, content_type=JSON), document))


def headed(response: Response, document: Document) -> Response:
    """Add the headers by which a client may keep a record."""
    response.headers["ETag"] = document.etag
    response.headers["Cache-Control"] = REVALIDATE
    return response


def varying(response: Response) -> Response:
    """Say which headers of the request the answer depends on."""
    response.headers["Vary"] = "Accept, Prefer"
    return response


def preferring(response: Response, seconds: float) -> Response:
    """Tell which preference was obeyed (RFC 7240): how long the answer could be held."""
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    elif "respond-async" in request.headers.get("Prefer", ""):
        response.headers["Preference-Applied"] = "respond-async"
    return response
