"""The queue and the worker's settings. README.md beside it has the reasons."""

from __future__ import annotations

import os
from typing import Any, Final

from redis.asyncio import Redis
from saq import Queue
from saq.queue.redis import RedisQueue

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import CONNECTIONS, RECOVERY_SECONDS, REDIS

MOST: Final = min(int(os.environ.get("BASELINE_CONCURRENCY", "60")), 60)
"""Jobs at once: each is a loop with a connection of its own."""

queue: Final[Queue] = RedisQueue(
    Redis.from_url(f"{REDIS}/0", max_connections=CONNECTIONS), max_concurrent_ops=MOST
)


async def echo(_ctx: Any, **inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return await jobs.async_echo(**inputs)


async def nap(_ctx: Any, **inputs: Any) -> dict[str, Any]:
    """Sleep, and note the number in a file."""
    return await jobs.async_nap(**inputs)


settings: Final = {
    "queue": queue,
    "functions": [("echo", echo), ("nap", nap)],
    "concurrency": MOST,
    "timers": {"sweep": RECOVERY_SECONDS},
}
