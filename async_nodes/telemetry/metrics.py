"""What the web process counts, and what it asks the store for when it is scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from async_nodes.telemetry.registry import (
    REGISTRY,
    Page,
    Together,
    counts,
    family,
    histograms,
    page,
)

__all__ = ["REGISTRY", "Found", "Page", "StoreCollector", "Together", "page"]

request_duration: Final = histograms("async_nodes_http_request_duration_seconds")
submits: Final = counts("async_nodes_submits_total")
polls: Final = counts("async_nodes_polls_total")
handshakes: Final = counts("async_nodes_tls_handshakes_total")
dropped: Final = counts("async_nodes_sse_dropped_total")()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Hold what the store knew when it was asked.

    Attributes:
        depths: messages that wait, by list such as ``io.high``.
        elsewhere: tasks that wait outside of the list, by list and place.
        ages: seconds that the oldest has waited, by list.
        workers: ids of the live workers, each beginning with its kind.
        dead_letters: of all tenants.
        memory, memory_limit: bytes of the server, 0 for no limit.
        clients: connections of the server.

    """

    depths: Mapping[str, int] = field(default_factory=dict)
    elsewhere: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)
    workers: Iterable[str] = ()
    dead_letters: int = 0
    memory: int = 0
    memory_limit: int = 0
    clients: int = 0


class StoreCollector(Collector):
    """Read what the store knows when somebody asks for the metrics.

    Args:
        ask: asks the store.
        subscribers: returns how many event streams of this process are open.

    """

    def __init__(self, *, ask: Callable[[], Found], subscribers: Callable[[], int]) -> None:
        self._ask = ask
        self._subscribers = subscribers

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: the store need not answer when the process starts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges; those of the store are absent while it does not answer."""
        try:
            found = self._ask()
        except Exception:  # noqa: BLE001 - a scrape reports an outage, it does not fail
            families = []
        else:
            families = list(_of_store(found))
        yield family("async_nodes_store_up", [((), bool(families))])
        yield from families
        yield family("async_nodes_sse_subscribers", [((), self._subscribers())])


def _of_store(found: Found) -> Iterator[Metric]:
    yield family(
        "async_nodes_queue_depth",
        [(name.split("."), waiting) for name, waiting in found.depths.items()],
    )
    yield family(
        "async_nodes_queue_waiting_tasks",
        [((*name.split("."), place), n) for (name, place), n in found.elsewhere.items()],
    )
    yield family(
        "async_nodes_queue_oldest_age_seconds",
        [(name.split("."), age) for name, age in found.ages.items()],
    )
    live = {"io": 0, "cpu": 0}
    for worker in found.workers:
        kind = worker.partition("-")[0]
        live[kind] = live.get(kind, 0) + 1
    yield family("async_nodes_workers", [((kind,), n) for kind, n in live.items()])
    for name, value in (
        ("async_nodes_dead_letters", found.dead_letters),
        ("async_nodes_store_memory_bytes", found.memory),
        ("async_nodes_store_memory_limit_bytes", found.memory_limit),
        ("async_nodes_store_clients", found.clients),
    ):
        yield family(name, [((), value)])
