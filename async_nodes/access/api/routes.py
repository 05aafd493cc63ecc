"""Step 5, expose: the routes of tasks. Submit, read, follow, cancel.

Each reads what the request asks for, asks the store, and shows the record as it is stored.
"""

from __future__ import annotations

import json
from typing import Any, Self

from flask import Blueprint, Response, g, request

from async_nodes.access import negotiate
from async_nodes.access.api.answers import (
    RETRY_AFTER,
    Until,
    accept,
    body_of_request,
    ended,
    find,
    headed,
    idempotency_key,
    in_json,
    located,
    missing,
    preferring,
    record,
    varying,
    wait_seconds,
    wait_until,
)
from async_nodes.access.guard import check_content_type
from async_nodes.access.lane.handover import raise_met
from async_nodes.access.services import Provider, Services
from async_nodes.access.streams import sse
from async_nodes.core import strict_json
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import NodeState
from async_nodes.storage.layout import Document
from async_nodes.telemetry import metrics
from async_nodes.telemetry.tallies import Counts


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
            return read(located(provider, task_id), task_id, counted)

    @made.get("/v1/tasks/<task_id>/events")
    def follow_task(task_id: str) -> Response:
        return follow(located(provider, task_id), task_id)

    @made.post("/v1/tasks/<task_id>/cancel")
    def cancel_task(task_id: str) -> Response:
        return cancel(located(provider, task_id), task_id)

    return made


class _counted:  # noqa: N801 - reads as the statement it is
    """Count a request once, by the outcome its route names or by the error that ended it."""

    def __init__(self, counter: Counts) -> None:
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


# -- submit ----------------------------------------------------------------------------------------


def submit(services: Services, counted: _counted) -> Response:
    """Accept a task: 202, or 200 with the record when it ended while the client waits."""
    check_content_type(request.content_type)
    seconds = wait_seconds()
    key = idempotency_key()
    done = services.submitter.submit(
        body_of_request(),
        tenant=g.tenant,
        idempotency_key=key,
        traceparent=g.traceparent,
    )
    counted.outcome = "replayed" if done.replayed else "accepted"
    return accept(services, done, seconds)


# -- read ------------------------------------------------------------------------------------------


def read(services: Services, task_id: str, counted: _counted) -> Response:
    """Show a task's record, now or as soon as it is what the client waits for."""
    document = find(services, task_id)
    if negotiate.wants_events(request.headers.get("Accept")):
        counted.outcome = "events"
        return varying(sse.respond(services.hub, services.store, document, after=_after()))
    known = request.headers.get("If-None-Match")
    seconds = wait_seconds()
    if seconds:
        until = ended if known is None else _differs_from(known)
        counted.outcome = "waited"
        waited = wait_until(services, task_id, seconds, until=until, first=document)
        if waited is None:
            missing(services, task_id)
        document = waited
    if negotiate.matches(known, document.etag):
        counted.outcome = "not_modified"
        return preferring(varying(headed(Response(status=304), document)), seconds)
    return preferring(_shown(task_id, document), seconds)


def _shown(task_id: str, document: Document) -> Response:
    """Return the record in the format that the query names."""
    wanted = request.args.get("format", "record")
    if wanted == "record":
        return record(document)
    if wanted != "node_state":
        raise AsyncNodesError("bad_request", "format must be record or node_state")
    return headed(in_json(node_state(task_id, document), 200), document)


def node_state(task_id: str, document: Document) -> dict[str, Any]:
    """Return a task as the specification's state object: ``{id, status, timestamp}``."""
    started = document.started_at if document.state is not NodeState.PENDING else 0
    last = document.finished_at or started or document.queued_at or document.created_at
    return {"id": task_id, "status": document.state.value, "timestamp": iso(int(last))}


def follow(services: Services, task_id: str) -> Response:
    """Stream a task's events."""
    document = find(services, task_id)
    return sse.respond(services.hub, services.store, document, after=_after())


# -- cancel ----------------------------------------------------------------------------------------


def cancel(services: Services, task_id: str) -> Response:
    """Cancel a task: 200 when it is cancelled, 202 while its worker is being asked."""
    seconds = wait_seconds()
    _check_empty_body()
    done = services.store.cancel(task_id, tenant=g.tenant)
    if done.verdict == "gone":
        find(services, task_id)  # another tenant's task is as unknown as one that is not there
        raise AsyncNodesError("task_gone", task_id=task_id)
    if done.verdict == "finished" and done.state is not None:
        raise _finished(task_id, done.state, done.version)
    if done.verdict == "cancelled":
        return preferring(_cancelled(task_id, done.version, stopped=True), seconds)
    document = wait_until(services, task_id, seconds, until=ended) if seconds else None
    if document is not None and document.state.terminal:
        if document.state is not NodeState.CANCELLED:
            raise _finished(task_id, document.state, document.version)
        error = json.loads(document.json)["error"] or {}
        stopped = error.get("stopped") is not False
        return preferring(_cancelled(task_id, document.version, stopped=stopped), seconds)
    members = {
        "task_id": task_id,
        "state": NodeState.RUNNING.value,
        "version": document.version if document else done.version,
        "stopped": False,
    }
    return preferring(in_json(members, 202, {"Retry-After": RETRY_AFTER}), seconds)


def _cancelled(task_id: str, version: int, *, stopped: bool) -> Response:
    state = NodeState.CANCELLED.value
    members = {"task_id": task_id, "state": state, "version": version, "stopped": stopped}
    return in_json(members, 200)


def _finished(task_id: str, state: NodeState, version: int) -> AsyncNodesError:
    detail = f"the task had already ended: {state.value}"
    return AsyncNodesError(
        "task_finished", detail, task_id=task_id, state=state.value, version=version
    )


def _check_empty_body() -> None:
    """A cancel says everything in its address; a body may be there for clients that send one."""
    raw = body_of_request()
    if not raw:
        return
    check_content_type(request.content_type)
    if strict_json.loads(raw) != {}:
        raise AsyncNodesError("invalid_request", "a cancel takes no fields", pointer="")


# -- shared ----------------------------------------------------------------------------------------


def _differs_from(known: str) -> Until:
    return lambda document: not negotiate.matches(known, document.etag)


def _after() -> str | None:
    return request.args.get("after")
