"""The one registry of a process: what it counts, made from the catalogue, and its page.

A module asks here for the metrics that it counts, by name, once. They begin to be shown then, so a
web process shows nothing of a worker's.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from async_nodes.telemetry.catalogue import CATALOGUE, Described, Kind
from async_nodes.telemetry.tallies import Counts, Histograms, Level
from async_nodes.version import __version__

REGISTRY: Final = CollectorRegistry()
"""All that this process counts or knows."""

TALLIES: Final[dict[str, Counts | Histograms]] = {}
"""What of it is added up, by name; a child of the process hands its part over."""

Rows = Iterable[tuple[Sequence[str], float]]
"""Values of a metric, each with those of its labels."""


def _row(name: str, kind: Kind) -> Described:
    row = CATALOGUE[name]
    if row.kind is not kind:
        message = f"{name} is a {row.kind} in the catalogue, no {kind}"
        raise ValueError(message)
    return row


def counts(name: str) -> Counts:
    """Return the counter of that name; the first call begins to show it."""
    found = TALLIES.get(name)
    if found is None:
        row = _row(name, Kind.COUNTER)
        found = TALLIES[name] = Counts(name, row.en, row.labels)
        REGISTRY.register(found)
    return cast("Counts", found)


def histograms(name: str) -> Histograms:
    """Return the histogram of that name; the first call begins to show it."""
    found = TALLIES.get(name)
    if found is None:
        row = _row(name, Kind.HISTOGRAM)
        found = TALLIES[name] = Histograms(name, row.en, row.labels, bounds=row.bounds)
        REGISTRY.register(found)
    return cast("Histograms", found)


def level(name: str) -> Level:
    """Begin to show a number that rises and falls, and return it."""
    made = Level(name, _row(name, Kind.GAUGE).en)
    REGISTRY.register(made)
    return made


def family(name: str, rows: Rows) -> Metric:
    """Return a metric as it is shown, for numbers that are kept elsewhere.

    Args:
        name: of a counter or gauge in the catalogue.
        rows: its values.

    """
    row = CATALOGUE[name]
    made: Any = CounterMetricFamily if row.kind is Kind.COUNTER else GaugeMetricFamily
    shown: Metric = made(name, row.en, labels=row.labels)
    for labels, value in rows:
        cast("Any", shown).add_metric(labels, value)
    return shown


class Read(Collector):
    """Show numbers that something else keeps, read when somebody asks.

    Args:
        names: of the metrics, from the catalogue.
        read: returns each with its values; may leave some out.

    """

    def __init__(
        self, names: Sequence[str], read: Callable[[], Iterable[tuple[str, Rows]]]
    ) -> None:
        self._names = names
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name the metrics ahead, so that no others take their names."""
        return [family(name, ()) for name in self._names]

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        for name, rows in self._read():
            yield family(name, rows)


class Together(Collector):
    """Show several collectors as one: of each name there is one metric, with all values.

    Args:
        parts: whose metrics; a value that an earlier part has is not taken again.

    """

    def __init__(self, *parts: Collector | CollectorRegistry) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        found: dict[str, Metric] = {}
        for part in self._parts:
            for metric in part.collect():
                known = found.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples.extend(metric.samples)
        return iter(found.values())


class Page(NamedTuple):
    """Hold the metrics as text, and what kind of text."""

    content_type: str
    body: bytes


def page(accept: str | None, *parts: Collector) -> Page:
    """Return the metrics of several collectors as text.

    Args:
        accept: the request's header; OpenMetrics, which shows exemplars, where it asks for that.
        parts: whose metrics; `REGISTRY` alone where none is named.

    """
    encoder, content_type = choose_encoder(accept or "")
    return Page(content_type, encoder(Together(*(parts or (REGISTRY,)))))


REGISTRY.register(
    Read(
        ["async_nodes_build_info"],
        lambda: [("async_nodes_build_info", [((__version__, platform.python_version()), 1)])],
    )
)
