"""Step 5, expose: what can be done with a task that has ended: run it again, or delete it."""

from __future__ import annotations

from flask import Blueprint, Response, g, request

from async_nodes.access.api.answers import (
    accept,
    body_of_request,
    find,
    idempotency_key,
    located,
    wait_seconds,
)
from async_nodes.access.guard import check_content_type
from async_nodes.access.services import Provider, Services
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.again import LOOK_AGAIN, not_finished
from async_nodes.telemetry import metrics


def blueprint(provider: Provider) -> Blueprint:
    """Return the routes."""
    made = Blueprint("retries", __name__)

    @made.post("/v1/tasks/<task_id>/retry")
    def retry_task(task_id: str) -> Response:
        return retry(located(provider, task_id), task_id)

    @made.delete("/v1/tasks/<task_id>")
    def delete_task(task_id: str) -> Response:
        return delete(located(provider, task_id), task_id)

    return made


def retry(services: Services, task_id: str) -> Response:
    """Accept a new task that does the same again, with changes if the body has some."""
    seconds, key = wait_seconds(), idempotency_key()
    raw = body_of_request()
    if raw:
        check_content_type(request.content_type)
    done = services.submitter.retry(
        find(services, task_id),
        raw or b"{}",
        tenant=g.tenant,
        idempotency_key=key,
        traceparent=g.traceparent,
    )
    metrics.submits("replayed" if done.replayed else "accepted").inc()
    return accept(services, done, seconds, retry_of=task_id)


def delete(services: Services, task_id: str) -> Response:
    """Delete a task that has ended: 204, and from then on it is gone."""
    document = find(services, task_id)
    if not document.state.terminal:
        raise not_finished(task_id, document)
    done = services.store.delete(task_id, tenant=g.tenant)
    # One that is gone by now was there a moment ago: deleted by this request or by another.
    if done.verdict in ("deleted", "gone"):
        response = Response(status=204)
        del response.headers["Content-Type"]
        return response
    raise AsyncNodesError(
        "task_not_finished",
        "the task has ended, but its node is still to clean up",
        retry_after=LOOK_AGAIN,
        task_id=task_id,
        state=document.state.value,
        version=document.version,
    )
