"""The web process: ``python -m benchmarks.baselines.dramatiq.web PORT``."""

from __future__ import annotations

from benchmarks.baselines import flask_web  # patches, so it is first

# isort: split

from functools import partial
from typing import Any

from dramatiq import Actor
from dramatiq.results import ResultFailure, ResultMissing

from benchmarks.baselines.dramatiq.tasks import actors, backend


def submit(actor: Actor[..., Any], inputs: dict[str, Any]) -> str:
    """Send a task; its id begins with the actor, whose name is part of where the result is."""
    return f"{actor.actor_name}-{actor.send(**inputs).message_id}"


def read(task_id: str) -> tuple[str, Any]:
    """Look at a result: one LINDEX."""
    name, _, message_id = task_id.partition("-")
    message = actors[name].message().copy(message_id=message_id)
    try:
        return "SUCCESS", backend.get_result(message)
    except ResultMissing:
        return "PENDING", None
    except ResultFailure as error:
        return "FAILURE", str(error)


if __name__ == "__main__":
    flask_web.serve({name: partial(submit, actor) for name, actor in actors.items()}, read)
