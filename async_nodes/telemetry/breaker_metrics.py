"""What is told of breakers: their state, what changed, what was refused, the bounds and figures.

The numbers of a worker are its own; those that come from the store are the same in every process,
so a dashboard takes the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from async_nodes.core.breaker import Condition, State
from async_nodes.telemetry.tallies import Counts
from async_nodes.telemetry.work_metrics import REGISTRY

LEVELS: Final[Mapping[State, int]] = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
"""The states as numbers: the higher, the less gets through."""

transitions: Final = Counts(
    "async_nodes_breaker_transitions_total",
    "Changes of a breaker's state that this process noticed, by the state it went to.",
    ("breaker", "state"),
)
refused: Final = Counts(
    "async_nodes_breaker_refused_total",
    "Calls that a breaker did not let through.",
    ("breaker",),
)
fallbacks: Final = Counts(
    "async_nodes_breaker_fallbacks_total",
    "Attempts that were answered by something else, by what it was.",
    ("node", "kind"),
)
hedges: Final = Counts(
    "async_nodes_hedges_total",
    "Second calls beside one that was slow, by which of the two answered.",
    ("node", "winner"),
)


class BreakerCollector(Collector):
    """Show breakers when the metrics are asked for.

    Args:
        conditions: returns them by name; an error of its own shows none.

    """

    def __init__(self, conditions: Callable[[], Mapping[str, Condition]]) -> None:
        self._conditions = conditions

    def describe(self) -> Iterable[Metric]:
        """Name nothing ahead: the store need not answer when the process starts."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        try:
            known = dict(self._conditions())
        except Exception:  # noqa: BLE001 - a scrape tells what it can
            return
        state = GaugeMetricFamily(
            "async_nodes_breaker_state", "0 closed, 1 half-open, 2 open.", labels=["breaker"]
        )
        degraded = GaugeMetricFamily(
            "async_nodes_breaker_degraded",
            "1 while a node is in the degraded mode that it declares.",
            labels=["breaker", "mode"],
        )
        bound = GaugeMetricFamily(
            "async_nodes_breaker_threshold",
            "Bounds of a breaker: rate in calls per second, p95 in seconds.",
            labels=["breaker", "of"],
        )
        found = GaugeMetricFamily(
            "async_nodes_breaker_measured",
            "What the last judged window had: rate, p95 in seconds, failure_rate.",
            labels=["breaker", "of"],
        )
        for name, condition in sorted(known.items()):
            figures = condition.figures
            state.add_metric([name], LEVELS[condition.state])
            if condition.mode:
                degraded.add_metric([name, condition.mode], 1)
            for of, limit in (("rate", figures.rate_limit), ("p95", figures.p95_limit)):
                if limit is not None:
                    bound.add_metric([name, of], limit)
            for of in ("rate", "p95", "failure_rate"):
                found.add_metric([name, of], getattr(figures, of))
        yield from (state, degraded, bound, found)


for _each in (transitions, refused, fallbacks, hedges):
    REGISTRY.register(_each)
