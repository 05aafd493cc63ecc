"""The worker's settings. README.md beside it has the reasons."""

from __future__ import annotations

from typing import Any, Final

from arq import func
from arq.connections import RedisSettings

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import (
    CONNECTIONS,
    KEEP_SECONDS,
    RECOVERY_SECONDS,
    REDIS,
    SLOTS,
)

SETTINGS: Final = RedisSettings.from_dsn(f"{REDIS}/0")
SETTINGS.max_connections = CONNECTIONS


async def echo(_ctx: Any, **inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return await jobs.async_echo(**inputs)


async def nap(_ctx: Any, **inputs: Any) -> dict[str, Any]:
    """Sleep, and note the number in a file."""
    return await jobs.async_nap(**inputs)


class Worker:
    """What arq's worker is told."""

    functions = (func(echo, name="echo"), func(nap, name="nap"))
    redis_settings = SETTINGS
    max_jobs = SLOTS
    poll_delay = 0.05
    keep_result = KEEP_SECONDS
    job_timeout = RECOVERY_SECONDS - 10  # after a crash it is claimed ten seconds later
    log_results = False
