"""Step 5, expose: the queues as they are, and where a task waits in one and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from flask import Blueprint, Response

from async_nodes.access.api import query
from async_nodes.access.api.answers import find, in_json, located
from async_nodes.access.api.controls import lists_of, state
from async_nodes.core.priority import LISTS
from async_nodes.core.waiting import explain
from async_nodes.storage.queues import Queue, Queues

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services


def blueprint(provider: Provider) -> Blueprint:
    """Return the routes."""
    made = Blueprint("queues", __name__)

    @made.get("/v1/queues")
    def list_queues() -> Response:
        return show(provider(), LISTS)

    @made.get("/v1/queues/<name>")
    def show_queue(name: str) -> Response:
        return show(provider(), lists_of(name))

    @made.get("/v1/tasks/<task_id>/queue")
    def show_place(task_id: str) -> Response:
        return place(located(provider, task_id), task_id)

    return made


def show(services: Services, names: Iterable[str]) -> Response:
    """Show some queues."""
    query.refuse_unknown(())
    overview, wanted = Queues(services.store).overview(), frozenset(names)
    shown = [_shown(queue) for queue in overview.queues if queue.name in wanted]
    return in_json({"queues": shown, "exact": overview.exact})


def _shown(queue: Queue) -> dict[str, Any]:
    oldest, crew = queue.oldest_seconds, queue.crew
    return {
        "name": queue.name,
        "kind": queue.name.partition(".")[0],
        **state(queue.control),
        "depth": queue.depth,
        "unclaimed": queue.unclaimed,
        "parked": queue.parked,
        "held": queue.held,
        "delayed": queue.delayed,
        "backoff": queue.backoff,
        "oldest_seconds": None if oldest is None else round(oldest, 3),
        "rate": round(crew.rate, 3),
        "workers": crew.workers,
        "slots": crew.slots,
        "running": crew.running,
    }


def place(services: Services, task_id: str) -> Response:
    """Show where a task waits, and why it has not started."""
    query.refuse_unknown(())
    document = find(services, task_id)
    standing = Queues(services.store).standing(document)
    why = explain(standing.facts)
    eta = why.eta_seconds
    return in_json(
        {
            "task_id": task_id,
            "state": document.state.value,
            "reason": document.why.value or None,
            "queue": standing.list_name,
            "line": standing.place or None,
            "position": standing.position,
            "length": standing.length,
            "why": {"code": why.code, "en": why.en, "zh": why.zh},
            "eta_seconds": None if eta is None else round(eta, 3),
        }
    )
