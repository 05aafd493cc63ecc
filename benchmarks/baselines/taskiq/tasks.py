"""The broker, the result backend and the tasks. README.md beside it has the reasons."""

from __future__ import annotations

import os
from typing import Any, Final

from taskiq import AsyncBroker
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import CONNECTIONS, KEEP_SECONDS, RECOVERY_SECONDS, REDIS

URL: Final = f"{REDIS}/0"
backend: Final[RedisAsyncResultBackend[Any]] = RedisAsyncResultBackend(
    URL, result_ex_time=KEEP_SECONDS, max_connection_pool_size=CONNECTIONS
)


def _broker() -> AsyncBroker:
    """Return the broker without acknowledgements, or that on streams, which has them."""
    if os.environ.get("BASELINE_ACKNOWLEDGES") == "1":
        return RedisStreamBroker(
            URL,
            consumer_id="0",
            idle_timeout=RECOVERY_SECONDS * 1000,
            unacknowledged_lock_timeout=RECOVERY_SECONDS,
            max_connection_pool_size=CONNECTIONS,
        )
    return ListQueueBroker(URL, max_connection_pool_size=CONNECTIONS)


broker: Final = _broker().with_result_backend(backend)
tasks: Final = {
    name: broker.register_task(function, task_name=name)
    for name, function in (("echo", jobs.async_echo), ("nap", jobs.async_nap))
}
