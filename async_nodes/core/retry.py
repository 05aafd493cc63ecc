"""When a failed attempt is tried again: full jitter, a cap, a budget, Retry-After.

The schedule is "full jitter": a uniform draw from zero to the capped exponential, which spreads
a crowd of simultaneous failures best (Marc Brooker, "Exponential Backoff And Jitter", 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from async_nodes.core.errors import AsyncNodesError

MAX_ATTEMPTS = 100
MAX_MULTIPLIER = 100.0
MAX_INTERVAL_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bound how often and how fast a task is tried again.

    Attributes:
        max_attempts: starts allowed in all, 1..100; losses of the process do not count.
        initial_ms: upper bound of the first delay.
        max_ms: upper bound of every delay.
        multiplier: growth of the bound per attempt, >= 1.
        jitter: draw the delay uniformly from 0 to the bound; the bound itself when false.
        total_ms: budget from the first start to the last, or None for no budget.

    """

    max_attempts: int = 3
    initial_ms: int = 500
    max_ms: int = 30_000
    multiplier: float = 2.0
    jitter: bool = True
    total_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that no schedule can mean."""
        checks = (
            (
                "max_attempts",
                1 <= self.max_attempts <= MAX_ATTEMPTS,
                f"1..{MAX_ATTEMPTS}",
            ),
            (
                "initial_ms",
                0 <= self.initial_ms <= MAX_INTERVAL_MS,
                f"0..{MAX_INTERVAL_MS}",
            ),
            ("max_ms", 0 <= self.max_ms <= MAX_INTERVAL_MS, f"0..{MAX_INTERVAL_MS}"),
            ("multiplier", 1.0 <= self.multiplier <= MAX_MULTIPLIER, "1..100"),
            ("total_ms", self.total_ms is None or self.total_ms >= 0, "0 or more"),
        )
        for name, holds, allowed in checks:
            if not holds:
                raise AsyncNodesError(
                    "invalid_request",
                    f"retry_policy.{name} must be {allowed}",
                    pointer=f"/retry_policy/{name}",
                )

    def delay_ms(self, started: int, *, draw: float, retry_after_ms: int = 0) -> int:
        """Return the pause in milliseconds before the next start.

        Args:
            started: starts made so far, 1 or more.
            draw: a uniform random number in [0, 1).
            retry_after_ms: never sooner than this, whatever the schedule says.

        """
        try:
            bound = min(float(self.max_ms), self.initial_ms * self.multiplier ** (started - 1))
        except OverflowError:
            bound = float(self.max_ms)
        pause = bound * draw if self.jitter else bound
        return max(int(pause), retry_after_ms)

    def allows(self, started: int, *, elapsed_ms: int, delay_ms: int) -> bool:
        """Tell whether another start fits the policy.

        Args:
            started: starts counted so far.
            elapsed_ms: time since the first start.
            delay_ms: pause before the next one.

        """
        if started >= self.max_attempts:
            return False
        return self.total_ms is None or elapsed_ms + delay_ms <= self.total_ms

    def to_json(self) -> dict[str, Any]:
        """Return the policy as a JSON object."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
