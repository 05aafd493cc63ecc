"""When a second call is made beside one that is slow, and how the two race."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from async_nodes.core.windows import Counts
from async_nodes.telemetry import breaker_metrics

if TYPE_CHECKING:
    from async_nodes.nodes.protection import Hedge

FEWEST: Final = 20
"""Calls before which nothing is known about how long one takes."""

GENERATION: Final = 500
"""Calls after which the older ones begin to be forgotten."""


class Racing(Protocol):
    """A host that can run two calls at once; see `GreenHost.race`."""

    def race(
        self, call: Callable[[bool], Any], after: float, second: Callable[[], bool]
    ) -> tuple[Any, bool]:
        """Return the first answer, and whether it is the second call's."""


class Hedging:
    """Hedge the calls of one node.

    Args:
        node: its name.
        hedge: what it declares.

    """

    def __init__(self, node: str, hedge: Hedge) -> None:
        self._node = node
        self._hedge = hedge
        self._older, self._newer = Counts(), Counts()
        self.calls = self.extra = 0

    def run(self, call: Callable[[bool], Any], host: Racing, *, after: float | None = None) -> Any:
        """Make a call, and a second one if it is slow and that is within bounds.

        Args:
            call: told whether it is the second one.
            host: lets the two race.
            after: seconds in place of the declared ones.

        """
        self.calls += 1
        after = after or self.after()
        started = time.monotonic()
        if after is None:
            value = call(False)
        else:
            value, by_second = host.race(call, after, self._may)
            if by_second:
                breaker_metrics.hedges(self._node, "second").inc()
        self.observe(time.monotonic() - started)
        return value

    def after(self) -> float | None:
        """Return the seconds until the second call, None while nobody knows what is slow."""
        if self._hedge.after is not None:
            return self._hedge.after
        known = Counts()
        known.take_in(self._older)
        known.take_in(self._newer)
        return known.percentile(0.95) if known.calls >= FEWEST else None

    def observe(self, seconds: float) -> None:
        """Take how long a call took."""
        self._newer.add(seconds, failed=False)
        if self._newer.calls >= GENERATION:
            self._older, self._newer = self._newer, Counts()

    def _may(self) -> bool:
        """Tell whether one more second call is within the bound, and count it."""
        if self.extra + 1 > self._hedge.most * max(self.calls, 1 / self._hedge.most):
            return False
        self.extra += 1
        breaker_metrics.hedges(self._node, "made").inc()
        return True
