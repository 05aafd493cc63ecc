"""The web process: ``python -m benchmarks.baselines.taskiq.web PORT``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from taskiq_redis.exceptions import ResultIsMissingError

from benchmarks.baselines import starlette_web
from benchmarks.baselines.taskiq.tasks import backend, broker, tasks


async def submit(task: Any, inputs: dict[str, Any]) -> str:
    """Send a task and return its id."""
    return str((await task.kiq(**inputs)).task_id)


async def read(task_id: str) -> tuple[str, Any]:
    """Look at a result: one GET."""
    try:
        result = await backend.get_result(task_id)
    except ResultIsMissingError:
        return "PENDING", None
    return ("FAILURE", str(result.error)) if result.is_err else ("SUCCESS", result.return_value)


@asynccontextmanager
async def connected(_app: Any) -> starlette_web.Connected:
    """Hold the broker open."""
    await broker.startup()
    yield
    await broker.shutdown()


if __name__ == "__main__":
    submits = {name: partial(submit, task) for name, task in tasks.items()}
    starlette_web.serve(submits, read, connected)
