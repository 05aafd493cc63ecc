"""The web process: ``python -m benchmarks.baselines.huey.web PORT``."""

from __future__ import annotations

from benchmarks.baselines import flask_web  # patches, so it is first

# isort: split

from functools import partial
from typing import Any

from huey.exceptions import TaskException

from benchmarks.baselines.huey.tasks import huey, tasks


def submit(task: Any, inputs: dict[str, Any]) -> str:
    """Send a task and return its id."""
    return str(task(**inputs).id)


def read(task_id: str) -> tuple[str, Any]:
    """Look at a result: one GET."""
    try:
        result = huey.result(task_id, preserve=True)
    except TaskException as error:
        return "FAILURE", str(error)
    return ("PENDING", None) if result is None else ("SUCCESS", result)


if __name__ == "__main__":
    flask_web.serve({name: partial(submit, task) for name, task in tasks.items()}, read)
