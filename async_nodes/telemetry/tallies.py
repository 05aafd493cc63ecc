"""Counters and histograms that cost a request next to nothing.

The library's own take a lock for each number, which in a process patched by gevent is a lock of
Python's. Here a number is added by one statement, which no other thread of CPython can divide, and
the library is asked only when somebody reads the metrics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString


class Count:
    """Count what happened."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0

    def inc(self, times: int = 1) -> None:
        """Add to it."""
        self.total += times


class Durations:
    """Count durations, or other sizes, by their length.

    Args:
        bounds: upper bounds of the buckets in seconds, ascending.

    Attributes:
        counts: of each bucket alone.
        seconds: the sum.
        exemplars: the last traced one of a bucket, by the bucket's number.

    """

    __slots__ = ("_bounds", "counts", "exemplars", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, seconds: float) -> None:
        """Add one."""
        self.seconds += seconds
        self.counts[bisect_left(self._bounds, seconds)] += 1

    def remember(self, seconds: float, trace_id: str) -> None:
        """Keep a trace as the example of the bucket that an observed duration fell into."""
        found = Exemplar({"trace_id": trace_id}, seconds, time.time())
        self.exemplars[bisect_left(self._bounds, seconds)] = found


_Child = TypeVar("_Child", Count, Durations)


class _Tallies(Collector, Generic[_Child]):
    """Keep a metric's children by the values of their labels."""

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self._name = name
        self._about = about
        self._labels = labels
        self._children: dict[tuple[str, ...], _Child] = {}

    def describe(self) -> Iterable[Metric]:
        """Name the metric ahead, so that no other one takes its name."""
        return self.collect()

    def _child(self, values: tuple[str, ...], made: _Child) -> _Child:
        if len(values) != len(self._labels):
            message = f"{self._name} has the labels {self._labels}, not {len(values)} values"
            raise ValueError(message)
        return self._children.setdefault(values, made)

    def shown(self) -> list[tuple[tuple[str, ...], _Child]]:
        """Return what there is now, by the values of the labels."""
        return list(self._children.items())


class Counts(_Tallies[Count]):
    """Keep the counts of a metric.

    Args:
        name: with ``_total`` at its end.
        about: for people.
        labels: their names.

    """

    def __call__(self, *values: str) -> Count:
        """Return the count of these label values."""
        return self._children.get(values) or self._child(values, Count())

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = CounterMetricFamily(self._name, self._about, labels=self._labels)
        for values, count in self.shown():
            family.add_metric(values, count.total)
        yield family


class Histograms(_Tallies[Durations]):
    """Keep the histograms of a metric.

    Args:
        name: with its unit at the end.
        about: for people.
        labels: their names.
        bounds: upper bounds of the buckets in seconds, ascending.

    """

    def __init__(
        self, name: str, about: str, labels: Sequence[str], *, bounds: Sequence[float]
    ) -> None:
        super().__init__(name, about, labels)
        self._bounds: Final = tuple(bounds)
        shown: Callable[[float], str] = floatToGoString
        self._names: Final = [*map(shown, bounds), "+Inf"]

    def __call__(self, *values: str) -> Durations:
        """Return the histogram of these label values."""
        return self._children.get(values) or self._child(values, Durations(self._bounds))

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for values, durations in self.shown():
            below = accumulate(durations.counts)
            found = map(durations.exemplars.get, range(len(self._names)))
            buckets: Any = list(zip(self._names, below, found, strict=True))
            family.add_metric(values, buckets, durations.seconds)
        yield family


class Level(Collector):
    """Keep a number that rises and falls.

    Args:
        name: of the metric.
        about: for people.

    Attributes:
        now: the number; to be changed in place.
        read: returns it, where something else keeps it.

    """

    def __init__(self, name: str, about: str) -> None:
        self.now = 0
        self.read: Callable[[], int] | None = None
        self._name = name
        self._about = about

    def describe(self) -> Iterable[Metric]:
        """Name the metric ahead, so that no other one takes its name."""
        return self.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        value = self.now if self.read is None else self.read()
        yield GaugeMetricFamily(self._name, self._about, value=value)
