"""Metrics of one process, in the text format of Prometheus.

Every process serves its own; nothing is shared through files. Base units, no label that grows
with use: a task's id is never one.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from async_nodes.telemetry.tallies import Counts, Histograms
from async_nodes.version import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REGISTRY: Final = CollectorRegistry()
"""All metrics of this process."""

_build = Gauge(
    "async_nodes_build_info",
    "Always 1; the labels tell what runs.",
    ("version", "python"),
    registry=REGISTRY,
)
_build.labels(__version__, platform.python_version()).set(1)

request_duration: Final = Histograms(
    "async_nodes_http_request_duration_seconds",
    "Time from a request to the start of its answer; a wait that was asked for is part of it.",
    ("route", "method", "status"),
    bounds=BUCKETS,
)
submits: Final = Counts(
    "async_nodes_submits_total",
    "Requests to submit a task, by what became of them.",
    ("outcome",),
)
polls: Final = Counts(
    "async_nodes_polls_total",
    "Requests to read a task, by what became of them.",
    ("outcome",),
)
handshakes: Final = Counts(
    "async_nodes_tls_handshakes_total",
    "Connections to the TLS port, by what became of their handshake.",
    ("outcome",),
)
for _each in (request_duration, submits, polls, handshakes):
    REGISTRY.register(_each)


class StoreCollector(Collector):
    """Read what the store knows when somebody asks for the metrics.

    Args:
        depths: messages that wait, by list such as ``io.high``.
        workers: ids of the live workers, each beginning with its kind.
        subscribers: open event streams of this process.

    """

    def __init__(
        self,
        *,
        depths: Callable[[], Mapping[str, int]],
        workers: Callable[[], Iterable[str]],
        subscribers: Callable[[], int],
    ) -> None:
        self._depths = depths
        self._workers = workers
        self._subscribers = subscribers

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: the store need not answer when the process starts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; those of the store are absent while it does not answer."""
        up = GaugeMetricFamily("async_nodes_store_up", "Whether the task store answers.")
        try:
            families = list(self._of_store())
        except Exception:  # noqa: BLE001 - a scrape reports an outage, it does not fail
            up.add_metric([], 0)
            families = []
        else:
            up.add_metric([], 1)
        yield up
        yield from families
        yield GaugeMetricFamily(
            "async_nodes_sse_subscribers",
            "Open event streams and long polls of this process.",
            value=self._subscribers(),
        )

    def _of_store(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily(
            "async_nodes_queue_depth",
            "Messages that wait for a worker.",
            labels=("queue", "priority"),
        )
        for name, waiting in self._depths().items():
            kind, _, priority = name.partition(".")
            depth.add_metric([kind, priority], waiting)
        yield depth
        live = {"io": 0, "cpu": 0}
        for worker in self._workers():
            kind = worker.partition("-")[0]
            live[kind] = live.get(kind, 0) + 1
        workers = GaugeMetricFamily(
            "async_nodes_workers", "Workers with a live lease.", labels=("kind",)
        )
        for kind, count in live.items():
            workers.add_metric([kind], count)
        yield workers


def exposition(*more: Collector) -> bytes:
    """Return the metrics of this process, and those of further collectors, as text."""
    text: bytes = generate_latest(REGISTRY)
    for collector in more:
        registry = CollectorRegistry()
        registry.register(collector)
        text += generate_latest(registry)
    return text
