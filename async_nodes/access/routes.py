"""Step 5, expose: the routes of tasks. Submit, read, follow, cancel.

Each reads what the request asks for, asks the store, and shows the record as it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, NoReturn, Self

from flask import Blueprint, Response, g, request

from async_nodes.access import longpoll, negotiate, sse
from async_nodes.access.guard import check_content_type
from async_nodes.access.lane_handover import raise_met
from async_nodes.access.services import Provider, Services
from async_nodes.core import strict_json
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import well_formed
from async_nodes.core.states import NodeState
from async_nodes.dispatch.submit import Submitted, links_of
from async_nodes.storage.layout import Document
from async_nodes.telemetry import metrics

JSON: Final = "application/json"
RETRY_AFTER: Final = "1"
"""Seconds after which a client that polls may look again."""

MAX_BODY: Final = 1 << 20
"""Bytes of a request's body."""

REVALIDATE: Final = "private, no-cache"
"""Keep a record only to ask whether it is still the same."""

Until = Callable[[Document], bool]


def blueprint(provider: Provider) -> Blueprint:
    """Return the routes under ``/v1/tasks``."""
    made = Blueprint("tasks", __name__)

    @made.post("/v1/tasks")
    def submit_task() -> Response:
        with _counted(metrics.submits) as counted:
            raise_met(request.environ)
            return submit(provider(), counted)

    @made.get("/v1/tasks/<task_id>")
    def read_task(task_id: str) -> Response:
        with _counted(metrics.polls) as counted:
            raise_met(request.environ)
            return read(_located(provider, task_id), task_id, counted)

    @made.get("/v1/tasks/<task_id>/events")
    def follow_task(task_id: str) -> Response:
        return follow(_located(provider, task_id), task_id)

    @made.post("/v1/tasks/<task_id>/cancel")
    def cancel_task(task_id: str) -> Response:
        return cancel(_located(provider, task_id), task_id)

    return made


class _counted:  # noqa: N801 - reads as the statement it is
    """Count a request once, by the outcome its route names or by the error that ended it."""

    def __init__(self, counter: metrics.Children) -> None:
        self._counter = counter
        self.outcome = "ok"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, AsyncNodesError):
            self.outcome = error.code
        elif error is not None:
            self.outcome = "error"
        self._counter(self.outcome).inc()


def _located(provider: Provider, task_id: str) -> Services:
    """Return the services, unless the id is none: that is known without them."""
    if not well_formed(task_id):
        raise AsyncNodesError("task_not_found", "this is not a task's id")
    return provider()


# -- submit ----------------------------------------------------------------------------------------


def submit(services: Services, counted: _counted) -> Response:
    """Accept a task: 202, or 200 with the record when it ended while the client waits."""
    check_content_type(request.content_type)
    seconds = _wait()
    key = negotiate.idempotency_key(request.headers.get("Idempotency-Key"))
    done = services.submitter.submit(
        _body(),
        tenant=g.tenant,
        idempotency_key=key,
        traceparent=g.traceparent,
    )
    counted.outcome = "replayed" if done.replayed else "accepted"
    document = _waited(services, done.task_id, seconds, until=_ended) if seconds else None
    if document is not None and document.state.terminal:
        response = _record(document)
    else:
        response = _accepted(done, document)
    response.headers["Location"] = _link(done.task_id)
    if done.replayed:
        response.headers["Idempotency-Replayed"] = "true"
    return _preferring(response, seconds)


def _accepted(done: Submitted, document: Document | None) -> Response:
    members = {
        "task_id": done.task_id,
        "state": document.state.value if document else done.state.value,
        "version": document.version if document else done.version,
        "created_at": done.created_at,
        "links": json.loads(links_of(_link(done.task_id))),
    }
    return _json(members, 202, {"Retry-After": RETRY_AFTER})


# -- read ------------------------------------------------------------------------------------------


def read(services: Services, task_id: str, counted: _counted) -> Response:
    """Show a task's record, now or as soon as it is what the client waits for."""
    document = find(services, task_id)
    if negotiate.wants_events(request.headers.get("Accept")):
        counted.outcome = "events"
        return _varying(sse.respond(services.hub, services.store, document, after=_after()))
    known = request.headers.get("If-None-Match")
    seconds = _wait()
    if seconds:
        until = _ended if known is None else _differs_from(known)
        counted.outcome = "waited"
        waited = _waited(services, task_id, seconds, until=until, first=document)
        if waited is None:
            _missing(services, task_id)
        document = waited
    if negotiate.matches(known, document.etag):
        counted.outcome = "not_modified"
        return _preferring(_varying(_headed(Response(status=304), document)), seconds)
    return _preferring(_shown(task_id, document), seconds)


def _shown(task_id: str, document: Document) -> Response:
    """Return the record in the format that the query names."""
    wanted = request.args.get("format", "record")
    if wanted == "record":
        return _record(document)
    if wanted != "node_state":
        raise AsyncNodesError("bad_request", "format must be record or node_state")
    return _headed(_json(node_state(task_id, document), 200), document)


def node_state(task_id: str, document: Document) -> dict[str, Any]:
    """Return a task as the specification's state object: ``{id, status, timestamp}``."""
    started = document.started_at if document.state is not NodeState.PENDING else 0
    last = document.finished_at or started or document.queued_at or document.created_at
    return {"id": task_id, "status": document.state.value, "timestamp": iso(int(last))}


def follow(services: Services, task_id: str) -> Response:
    """Stream a task's events."""
    document = find(services, task_id)
    return sse.respond(services.hub, services.store, document, after=_after())


def find(services: Services, task_id: str) -> Document:
    """Return a task of the request's tenant.

    Raises:
        AsyncNodesError: ``task_not_found``, or ``task_gone`` for an id of ours without a record.

    """
    document = services.store.read(task_id)
    if document is None:
        _missing(services, task_id)
    if document.tenant != g.tenant:
        raise AsyncNodesError("task_not_found")
    return document


def _missing(services: Services, task_id: str) -> NoReturn:
    if services.ids.issued(task_id):
        raise AsyncNodesError("task_gone", task_id=task_id)
    raise AsyncNodesError("task_not_found")


# -- cancel ----------------------------------------------------------------------------------------


def cancel(services: Services, task_id: str) -> Response:
    """Cancel a task: 200 when it is cancelled, 202 while its worker is being asked."""
    seconds = _wait()
    _check_empty_body()
    done = services.store.cancel(task_id, tenant=g.tenant)
    if done.verdict == "gone":
        find(services, task_id)  # another tenant's task is as unknown as one that is not there
        raise AsyncNodesError("task_gone", task_id=task_id)
    if done.verdict == "finished" and done.state is not None:
        raise _finished(task_id, done.state, done.version)
    if done.verdict == "cancelled":
        return _preferring(_cancelled(task_id, done.version, stopped=True), seconds)
    document = _waited(services, task_id, seconds, until=_ended) if seconds else None
    if document is not None and document.state.terminal:
        if document.state is not NodeState.CANCELLED:
            raise _finished(task_id, document.state, document.version)
        error = json.loads(document.json)["error"] or {}
        stopped = error.get("stopped") is not False
        return _preferring(_cancelled(task_id, document.version, stopped=stopped), seconds)
    members = {
        "task_id": task_id,
        "state": NodeState.RUNNING.value,
        "version": document.version if document else done.version,
        "stopped": False,
    }
    return _preferring(_json(members, 202, {"Retry-After": RETRY_AFTER}), seconds)


def _cancelled(task_id: str, version: int, *, stopped: bool) -> Response:
    state = NodeState.CANCELLED.value
    members = {"task_id": task_id, "state": state, "version": version, "stopped": stopped}
    return _json(members, 200)


def _finished(task_id: str, state: NodeState, version: int) -> AsyncNodesError:
    detail = f"the task had already ended: {state.value}"
    return AsyncNodesError(
        "task_finished", detail, task_id=task_id, state=state.value, version=version
    )


def _check_empty_body() -> None:
    """A cancel says everything in its address; a body may be there for clients that send one."""
    raw = _body()
    if not raw:
        return
    check_content_type(request.content_type)
    if strict_json.loads(raw) != {}:
        raise AsyncNodesError("invalid_request", "a cancel takes no fields", pointer="")


# -- shared ----------------------------------------------------------------------------------------


def _body() -> bytes:
    raw = request.get_data(cache=False)
    if len(raw) > MAX_BODY:
        raise AsyncNodesError("body_too_large")
    return raw


def _ended(document: Document) -> bool:
    return document.state.terminal


def _differs_from(known: str) -> Until:
    return lambda document: not negotiate.matches(known, document.etag)


def _wait() -> float:
    return negotiate.wait_seconds(request.headers.get("Prefer"), request.args.get("wait"))


def _after() -> str | None:
    return request.args.get("after")


def _waited(
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


def _link(task_id: str) -> str:
    return f"/v1/tasks/{task_id}"


def _json(
    members: Mapping[str, Any], status: int, headers: Mapping[str, str] | None = None
) -> Response:
    response = Response(strict_json.dumps(members), status=status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    response.headers.update(headers or {})
    return response


def _record(document: Document) -> Response:
    response = Response(document.json, content_type=JSON)
    return _varying(_headed(response, document))


def _headed(response: Response, document: Document) -> Response:
    response.headers["ETag"] = document.etag
    response.headers["Cache-Control"] = REVALIDATE
    return response


def _varying(response: Response) -> Response:
    response.headers["Vary"] = "Accept, Prefer"
    return response


def _preferring(response: Response, seconds: float) -> Response:
    """Tell which preference was obeyed (RFC 7240): how long the answer could be held."""
    if seconds:
        response.headers["Preference-Applied"] = f"wait={seconds:g}"
    elif "respond-async" in request.headers.get("Prefer", ""):
        response.headers["Preference-Applied"] = "respond-async"
    return response
