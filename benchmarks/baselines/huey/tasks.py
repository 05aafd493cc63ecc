"""The huey and its tasks. README.md beside it has the reasons."""

from __future__ import annotations

from typing import Final

from huey import RedisExpireHuey
from redis import ConnectionPool

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import CONNECTIONS, KEEP_SECONDS, REDIS

huey: Final = RedisExpireHuey(
    "baseline",
    connection_pool=ConnectionPool.from_url(f"{REDIS}/0", max_connections=CONNECTIONS),
    expire_time=KEEP_SECONDS,
)
tasks: Final = {
    name: huey.task(name=name)(function)
    for name, function in (("echo", jobs.echo), ("nap", jobs.nap))
}
