"""Replace all web processes, one after the other: what comes next. Pure.

A successor starts, and once it does its work its predecessor leaves. If one cannot start, the
replacement ends there: the processes that run are known to work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

START_SECONDS = 30.0
"""How long a successor may take until it does its work."""


class Step(Enum):
    """What to do now."""

    WAIT = auto()
    START = auto()
    HAND_OVER = auto()
    GIVE_UP = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class Roll:
    """Hold how far a replacement is.

    Attributes:
        left: numbers of the processes that have yet to be replaced, the current one first.
        started_at: when the current one's successor was started, None before.

    """

    left: tuple[int, ...]
    started_at: float | None = None

    def step(self, now: float, *, ready: bool = False, dead: bool = False) -> Step:
        """Return what to do.

        Args:
            now: on the clock of `started_at`.
            ready: whether the successor does its work.
            dead: whether the successor has ended.

        """
        if not self.left:
            return Step.DONE
        if self.started_at is None:
            return Step.START
        if dead or (not ready and now >= self.started_at + START_SECONDS):
            return Step.GIVE_UP
        return Step.HAND_OVER if ready else Step.WAIT

    def begun(self, now: float) -> Roll:
        """Return it with the current successor started."""
        return replace(self, started_at=now)

    def handed_over(self) -> Roll:
        """Return it with the current process replaced."""
        return Roll(self.left[1:])
