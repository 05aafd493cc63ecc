"""What is told of breakers: their state, what changed, what was refused, the bounds and figures.

The numbers of a worker are its own; those that come from the store are the same in every process,
so a dashboard takes the highest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from async_nodes.core.breaker import Condition, State
from async_nodes.telemetry.registry import REGISTRY, counts, family

__all__ = ["REGISTRY", "BreakerCollector", "fallbacks", "hedges", "refused", "show", "transitions"]

LEVELS: Final[Mapping[State, int]] = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}
"""The states as numbers: the higher, the less gets through."""

transitions: Final = counts("async_nodes_breaker_transitions_total")
refused: Final = counts("async_nodes_breaker_refused_total")
fallbacks: Final = counts("async_nodes_breaker_fallbacks_total")
hedges: Final = counts("async_nodes_hedges_total")


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
        figures = {name: one.figures for name, one in known.items()}
        yield family(
            "async_nodes_breaker_state", [((n,), LEVELS[one.state]) for n, one in known.items()]
        )
        yield family(
            "async_nodes_breaker_degraded",
            [((name, one.mode), 1) for name, one in known.items() if one.mode],
        )
        bounds = [(name, "rate", one.rate_limit) for name, one in figures.items()]
        bounds += [(name, "p95", one.p95_limit) for name, one in figures.items()]
        yield family(
            "async_nodes_breaker_threshold",
            [((name, of), limit) for name, of, limit in bounds if limit is not None],
        )
        yield family(
            "async_nodes_breaker_measured",
            [
                ((name, of), getattr(one, of))
                for name, one in figures.items()
                for of in ("rate", "p95", "failure_rate")
            ],
        )


_sources: Final[list[Callable[[], Mapping[str, Condition]]]] = []


def _here() -> Mapping[str, Condition]:
    return _sources[0]()


def show(conditions: Callable[[], Mapping[str, Condition]]) -> None:
    """Show the breakers of this process, in place of those shown before.

    Args:
        conditions: returns them by name.

    """
    if not _sources:
        REGISTRY.register(BreakerCollector(_here))
    _sources[:] = [conditions]
