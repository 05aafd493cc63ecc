"""The web process: ``python -m benchmarks.baselines.ardiq.web PORT``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from benchmarks.baselines import starlette_web
from benchmarks.baselines.ardiq.tasks import app, tasks


async def submit(task: Any, inputs: dict[str, Any]) -> str:
    """Send a task and return its id."""
    return str((await task.enqueue(**inputs)).id)


async def read(task_id: str) -> tuple[str, Any]:
    """Look at a result: one GET."""
    found = await app.result(task_id)
    if found is None:
        return "PENDING", None
    return ("SUCCESS" if found.success else "FAILURE"), found.value


@asynccontextmanager
async def connected(_app: Any) -> starlette_web.Connected:
    """Do nothing: the core connects when it is first used."""
    yield


if __name__ == "__main__":
    submits = {name: partial(submit, task) for name, task in tasks.items()}
    starlette_web.serve(submits, read, connected)
