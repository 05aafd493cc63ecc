"""What a worker counts, under the two names that were asked for and two of our own.

`celery_task_runtime` and `celery_active_tasks` keep the names dashboards for Celery know.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from async_nodes.telemetry.tallies import Histograms, Level

_log = logging.getLogger(__name__)

_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
)  # fmt: skip

REGISTRY: Final = CollectorRegistry()
_runtime: Final = Histograms(
    "celery_task_runtime",
    "Seconds a node's body ran (the name is kept for compatibility)",
    ("node",),
    bounds=_BUCKETS,
)
_waited: Final = Histograms(
    "async_nodes_task_queue_wait_seconds",
    "Seconds from being claimable to being claimed",
    ("node",),
    bounds=_BUCKETS,
)
_active: Final = Level(
    "celery_active_tasks",
    "Bodies running in this process (the name is kept for compatibility)",
)
for _each in (_runtime, _waited, _active):
    REGISTRY.register(_each)

schedules: Final[Counter[str]] = Counter()
"""What this process did with schedules that were due, by outcome.

Plain numbers that the keeper's thread alone writes: a metric's lock belongs to the greenlets.
"""


class _ScheduleCounts(Collector):
    """Show `schedules` when the metrics are asked for."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            "async_nodes_schedules",
            "What was done with schedules that were due",
            labels=["outcome"],
        )
        for outcome, number in sorted(dict(schedules).items()):
            family.add_metric([outcome], number)
        yield family


REGISTRY.register(_ScheduleCounts())


class observe_attempt:  # noqa: N801 - reads as the statement it is
    """Count a body as running inside the block and observe how long it took.

    Args:
        node: the node's name.
        waited_seconds: how long its task had waited to be claimed.

    """

    __slots__ = ("_runtime", "_started")

    def __init__(self, node: str, waited_seconds: float) -> None:
        self._runtime = _runtime(node)
        _waited(node).observe(waited_seconds)

    def __enter__(self) -> None:
        _active.now += 1
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        _active.now -= 1
        self._runtime.observe(time.monotonic() - self._started)


def expose(port: int | None, *, host: str = "127.0.0.1") -> None:
    """Serve this process's metrics on a port, where one is set and free."""
    if port is None:
        return
    try:
        start_http_server(port, addr=host, registry=REGISTRY)
    except OSError as error:
        _log.warning(
            "No metrics from this process: port %d cannot be taken: %s",
            port,
            error,
            extra={"action": "metrics_port_busy"},
        )
