"""The broker, the result backend and the tasks. README.md beside it has the reasons."""

from __future__ import annotations

from typing import Final

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from redis import Redis

from benchmarks.baselines import jobs
from benchmarks.baselines.settings import CONNECTIONS, KEEP_SECONDS, RECOVERY_SECONDS, REDIS

client: Final = Redis.from_url(f"{REDIS}/0", max_connections=CONNECTIONS)
backend: Final = RedisBackend(client=client)
broker: Final = RedisBroker(client=client, heartbeat_timeout=RECOVERY_SECONDS * 1000)
broker.add_middleware(Results(backend=backend, store_results=True, result_ttl=KEEP_SECONDS * 1000))
dramatiq.set_broker(broker)

actors: Final = {
    name: dramatiq.actor(function, actor_name=name)
    for name, function in (("echo", jobs.echo), ("nap", jobs.nap))
}
