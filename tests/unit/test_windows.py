"""Counts of calls: percentiles within a twentieth, sums over processes, their text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.windows import BOUNDS, Counts, total

durations = st.lists(st.floats(0.001, BOUNDS[-1]), min_size=1, max_size=60)


def counted(seconds: list[float], *, failed: bool = False) -> Counts:
    counts = Counts()
    for one in seconds:
        counts.add(one, failed=failed)
    return counts


@given(durations)
def test_a_p95_is_right_within_a_twentieth(seconds: list[float]) -> None:
    """Of the call at that rank, whatever the others took."""
    exact = sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]

    assert counted(seconds).percentile(0.95) == pytest.approx(exact, rel=0.05)


@given(durations, durations)
def test_what_processes_have_counted_adds_up(here: list[float], there: list[float]) -> None:
    """Two slices together are what one process would have counted."""
    slices = {1: counted(here), 2: counted(there, failed=True)}

    whole = total(slices, range(5))

    assert (whole.calls, whole.failures) == (len(here) + len(there), len(there))
    assert whole.sizes == counted(here + there).sizes


@given(durations, st.booleans())
def test_counts_come_back_from_their_text(seconds: list[float], failed: bool) -> None:  # noqa: FBT001
    """The store keeps text."""
    counts = counted(seconds, failed=failed)

    assert Counts.decoded(counts.encoded()) == counts


def test_nothing_counted_has_no_rate() -> None:
    """An empty window is neither slow nor failing."""
    assert (Counts().failure_rate, Counts().percentile(0.95)) == (0.0, 0.0)


def test_what_takes_longer_than_any_bound_counts_as_the_longest() -> None:
    """A call of a day is not lost."""
    assert counted([86_400.0]).percentile(0.95) == BOUNDS[-1]
