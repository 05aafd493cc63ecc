"""What calls did in a stretch of time, as plain numbers: how many, how many failed, how long.

A stretch is a *slice*; a *window* is a fixed number of slices. Durations are counted by size, each
bound 10 % above the one before, so that a percentile is off by 5 % at most and slices of many
processes add up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

_SHORTEST, _GROWTH, _SIZES = 0.001, 1.1, 144

BOUNDS: Final = tuple(_SHORTEST * _GROWTH**size for size in range(_SIZES))
"""Upper bounds of the sizes in seconds, from a millisecond to a quarter of an hour."""


@dataclass(slots=True)
class Counts:
    """Count calls.

    Attributes:
        calls: how many have ended.
        failures: how many of them failed.
        sizes: how many took how long: the size's place in `BOUNDS` -> calls.

    """

    calls: int = 0
    failures: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def add(self, seconds: float, *, failed: bool) -> None:
        """Count a call that has ended."""
        self.calls += 1
        self.failures += failed
        size = bisect_left(BOUNDS, seconds)
        self.sizes[size] = self.sizes.get(size, 0) + 1

    def take_in(self, other: Counts) -> None:
        """Add what others have counted."""
        self.calls += other.calls
        self.failures += other.failures
        for size, calls in other.sizes.items():
            self.sizes[size] = self.sizes.get(size, 0) + calls

    @property
    def failure_rate(self) -> float:
        """Return the share of calls that failed, 0 when there were none."""
        return self.failures / self.calls if self.calls else 0.0

    def percentile(self, share: float) -> float:
        """Return the seconds within which a share of the calls had ended, 0 without any.

        Args:
            share: 0.95 for the P95.

        """
        rank, seen = share * sum(self.sizes.values()), 0
        for size in sorted(self.sizes):
            seen += self.sizes[size]
            if seen >= rank:
                return middle(size)
        return 0.0

    def encoded(self) -> str:
        """Return the counts as the scripts keep them: ``calls failures size:calls …``."""
        sizes = (f"{size}:{calls}" for size, calls in sorted(self.sizes.items()))
        return " ".join([str(self.calls), str(self.failures), *sizes])

    @classmethod
    def decoded(cls, text: str) -> Self:
        """Return the counts that `encoded` wrote."""
        calls, failures, *sizes = text.split()
        pairs = (one.split(":") for one in sizes)
        return cls(int(calls), int(failures), {int(size): int(n) for size, n in pairs})


def middle(size: int) -> float:
    """Return what stands for the durations of a size: the geometric middle of its bounds."""
    if size >= _SIZES:
        return BOUNDS[-1]
    return BOUNDS[size] / _GROWTH**0.5 if size else BOUNDS[0]


def total(slices: Mapping[int, Counts], numbers: Iterable[int]) -> Counts:
    """Return the sum of some slices; one that is not there counts nothing."""
    whole = Counts()
    for number in numbers:
        if number in slices:
            whole.take_in(slices[number])
    return whole
