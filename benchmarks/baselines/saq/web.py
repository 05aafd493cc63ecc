"""The web process: ``python -m benchmarks.baselines.saq.web PORT``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from saq import Status

from benchmarks.baselines import starlette_web
from benchmarks.baselines.saq.tasks import queue
from benchmarks.baselines.settings import KEEP_SECONDS, RECOVERY_SECONDS


async def submit(name: str, inputs: dict[str, Any]) -> str:
    """Send a task and return its key."""
    job = await queue.enqueue(
        name, ttl=KEEP_SECONDS, timeout=RECOVERY_SECONDS, retries=3, kwargs=inputs
    )
    return job.key if job else ""


async def read(task_id: str) -> tuple[str, Any]:
    """Look at a job: one GET."""
    job = await queue.job(task_id)
    if job is None or job.status not in {Status.COMPLETE, Status.FAILED, Status.ABORTED}:
        return "PENDING", None
    return ("SUCCESS", job.result) if job.status == Status.COMPLETE else ("FAILURE", job.error)


@asynccontextmanager
async def connected(_app: Any) -> starlette_web.Connected:
    """Hold the queue open."""
    await queue.connect()
    yield
    await queue.disconnect()


if __name__ == "__main__":
    submits = {name: partial(submit, name) for name in ("echo", "nap")}
    starlette_web.serve(submits, read, connected)
