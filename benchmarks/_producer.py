"""A process that submits, the way the web process does, without the web: ``python -m`` this.

It reads one order a line from stdin (``single TASKS SUBMITTERS``, ``bulk TASKS SIZE``,
``alone TASKS``, ``check``) and answers each with one line of JSON.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - gevent first
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any, Final  # noqa: E402

import gevent  # noqa: E402
import redis  # noqa: E402

from async_nodes.access.services import Services  # noqa: E402
from async_nodes.core.errors import AsyncNodesError  # noqa: E402
from async_nodes.core.states import NodeState  # noqa: E402
from async_nodes.dispatch.celery_factory import make_app  # noqa: E402
from async_nodes.dispatch.connect import open_shared  # noqa: E402
from async_nodes.dispatch.submit import Submitter  # noqa: E402
from async_nodes.nodes.registry import registry  # noqa: E402
from async_nodes.settings import Settings  # noqa: E402
from async_nodes.storage.redis_store import RedisStore  # noqa: E402
from benchmarks._sides import inputs_of  # noqa: E402

READ_AT_ONCE: Final = 500
FIRST_TASK_SECONDS: Final = 20.0


class Producer:
    """Submit tasks and remember them until they are checked."""

    def __init__(self, store: RedisStore, submitter: Submitter, url: str) -> None:
        self._store = store
        self._submitter = submitter
        self._url = url
        self._made: list[str] = []
        self._number = 0

    def single(self, tasks: int, submitters: int) -> dict[str, Any]:
        """Submit one by one from many greenlets, as requests of many connections do."""
        began = time.perf_counter()
        left = iter(range(tasks))
        gevent.joinall(
            [gevent.spawn(self._some, left) for _ in range(submitters)], raise_error=True
        )
        return {"seconds": time.perf_counter() - began}

    def _some(self, left: Any) -> None:
        for _ in left:
            key = f"key-{self._number}"
            said = self._submitter.submit(self._body(), tenant="default", idempotency_key=key)
            self._made.append(said.task_id)

    def bulk(self, tasks: int, size: int) -> dict[str, Any]:
        """Submit in requests of so many."""
        began = time.perf_counter()
        for first in range(0, tasks, size):
            items = [self._body() for _ in range(min(size, tasks - first))]
            for said in self._submitter.submit_many(items, tenant="default"):
                if isinstance(said, AsyncNodesError):
                    raise said
                self._made.append(said.task_id)
        return {"seconds": time.perf_counter() - began}

    def alone(self, tasks: int) -> dict[str, Any]:
        """Submit one at a time; return how long it took each until its end was seen."""
        latencies = []
        with redis.Redis.from_url(self._url) as client, client.pubsub() as listener:
            listener.psubscribe(self._store.keys.channel("*"))
            listener.get_message(timeout=1.0)
            for _ in range(tasks):
                began = time.perf_counter()
                said = self._submitter.submit(self._body(), tenant="default")
                self._made.append(said.task_id)
                while not _is_end(listener.get_message(timeout=FIRST_TASK_SECONDS)):
                    pass
                latencies.append(time.perf_counter() - began)
        return {"latencies": latencies}

    def check(self) -> dict[str, Any]:
        """Return how many tasks were submitted since the last check and how many succeeded."""
        made, self._made = self._made, []
        succeeded = 0
        for first in range(0, len(made), READ_AT_ONCE):
            found = self._store.controls(made[first : first + READ_AT_ONCE])
            succeeded += sum(one.state is NodeState.SUCCEEDED for one in found.values())
        return {"made": len(made), "succeeded": succeeded}

    def _body(self) -> bytes:
        self._number += 1
        return b'{"node":"echo","inputs":%s}' % inputs_of(self._number)


def _is_end(message: Any) -> bool:
    if message is None:
        raise TimeoutError("a task's end was not seen in time")
    return message["type"] == "pmessage" and b" done " in message["data"]


def main() -> None:
    """Take orders until stdin ends."""
    settings = Settings.load()
    # With a worker's patience: on a busy machine a request's would end the measurement.
    store = open_shared(settings, make_app(settings), worker=True, title="bench:producer")
    services = Services.assemble(settings, store, _nobody, registry(settings.imports))
    producer = Producer(store, services.submitter, settings.store_url)
    orders: dict[str, Callable[..., dict[str, Any]]] = {
        name: getattr(producer, name) for name in ("single", "bulk", "alone", "check")
    }
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        name, *numbers = line.split()
        print(json.dumps(orders[name](*map(int, numbers))), flush=True)


_nobody: Any = None  # no watcher asks this process for events


if __name__ == "__main__":
    main()
