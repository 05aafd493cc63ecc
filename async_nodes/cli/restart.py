"""When a process that died is started again, and when there is no point. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Bound how fast and how often a dying process comes back.

    Attributes:
        first, longest: seconds before the first and before any restart; doubled in between.
        settled: a process that lived this many seconds was well, whatever ended it.
        patience: restarts in a row of a process that never settled.

    """

    first: float = 0.5
    longest: float = 5.0
    settled: float = 10.0
    patience: int = 5

    def deaths(self, before: int, lived: float) -> int:
        """Return how many deaths in a row this one is."""
        return 1 if lived >= self.settled else before + 1

    def delay(self, deaths: int, *, status: int, is_starting: bool) -> float | None:
        """Return the seconds until the next start, or None to give up.

        Args:
            deaths: deaths in a row, this one included.
            status: the exit status; negative for a signal.
            is_starting: whether the whole was never ready so far. A process that ends by itself
                then has said why, and would say it again.

        """
        if deaths > self.patience or (is_starting and status >= 0):
            return None
        return min(self.first * 2.0 ** (deaths - 1), self.longest)
