"""Step 5, expose: the live workers, what each says of itself and what it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response, g

from async_nodes.access.api import query
from async_nodes.access.api.answers import in_json
from async_nodes.core.contracts import epoch_ms, iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.workers import Worker, Workers

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services


def blueprint(provider: Provider) -> Blueprint:
    """Return the routes."""
    made = Blueprint("workers", __name__)

    @made.get("/v1/workers")
    def list_workers() -> Response:
        return show_all(provider())

    @made.get("/v1/workers/<worker_id>")
    def show_worker(worker_id: str) -> Response:
        return show(provider(), worker_id)

    return made


def show_all(services: Services) -> Response:
    """Show the live workers."""
    query.refuse_unknown(())
    return in_json({"workers": [_shown(one) for one in Workers(services.store).all()]})


def show(services: Services, worker_id: str) -> Response:
    """Show a worker with what it runs of the tenant's tasks."""
    query.refuse_unknown(())
    workers = Workers(services.store)
    worker = workers.find(worker_id)
    if worker is None:
        detail = f"there is no live worker {worker_id[:64]!r}; GET /v1/workers lists them"
        raise AsyncNodesError("not_found", detail)
    now_ms = services.clock() * 1000
    tasks = [_task(one, now_ms) for one in workers.tasks(worker_id, g.tenant)]
    return in_json({**_shown(worker), "tasks": tasks})


def _shown(worker: Worker) -> dict[str, Any]:
    said, slots = worker.said, worker.slots
    started_ms = said.get("started_ms")
    return {
        "worker_id": worker.worker_id,
        "kind": worker.kind,
        "host": said.get("host"),
        "pid": said.get("pid"),
        "version": said.get("version"),
        "transport": said.get("transport"),
        "started_at": None if started_ms is None else iso(started_ms),
        "lease_seconds": round(worker.lease_seconds, 3),
        "concurrency": slots,
        "running": worker.running,
        "free": None if slots is None else max(slots - worker.running, 0),
        "rates": dict(worker.rates),
        "nodes": said.get("nodes"),
        "stalls": said.get("stalls"),
    }


def _task(brief: dict[str, Any], now_ms: float) -> dict[str, Any]:
    started_ms = epoch_ms(brief["started_at"], "")
    return {
        "task_id": brief["task_id"],
        "node": brief["node"],
        "attempt": brief["attempt"],
        "started_at": brief["started_at"],
        "seconds": round(max(now_ms - started_ms, 0) / 1000, 3),
    }
