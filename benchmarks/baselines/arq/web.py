"""The web process: ``python -m benchmarks.baselines.arq.web PORT``."""

from __future__ import annotations

from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from arq import ArqRedis, create_pool
from arq.jobs import Job

from benchmarks.baselines import starlette_web
from benchmarks.baselines.arq.tasks import SETTINGS

pools: list[ArqRedis] = []


async def submit(name: str, inputs: dict[str, Any]) -> str:
    """Send a task and return its id."""
    job = await pools[0].enqueue_job(name, **inputs)
    return job.job_id if job else ""


async def read(task_id: str) -> tuple[str, Any]:
    """Look at a result: one GET."""
    info = await Job(task_id, pools[0]).result_info()
    if info is None:
        return "PENDING", None
    return ("SUCCESS", info.result) if info.success else ("FAILURE", str(info.result))


@asynccontextmanager
async def connected(_app: Any) -> starlette_web.Connected:
    """Hold the pool open."""
    pools.append(await create_pool(SETTINGS))
    yield
    await pools[0].aclose()


if __name__ == "__main__":
    submits = {name: partial(submit, name) for name in ("echo", "nap")}
    starlette_web.serve(submits, read, connected)
