"""The decisions of a breaker: when it opens, when it tries again, when it closes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.breaker import (
    ALPHA,
    PRISTINE,
    SLICES,
    Breaker,
    Cause,
    Condition,
    Degraded,
    Figures,
    State,
    closed,
    forced,
    half_opened,
    judged,
    opened,
    passes,
    thresholds,
    tried,
)
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.windows import Counts

START = 1_700_000_000_000
PLAIN = Breaker(window=1.0)
LOADED = Breaker(window=1.0, base_rate=10, base_latency=0.1, failures=10**6)

breakers = st.builds(
    Breaker,
    window=st.sampled_from([0.5, 1.0, 10.0]),
    base_rate=st.none() | st.floats(1, 100),
    base_latency=st.none() | st.floats(0.01, 1),
    failures=st.integers(0, 60),
    failure_rate=st.floats(0, 1),
    trials=st.integers(7, 20),
    close_at=st.floats(0.5, 1),
    degraded=st.none() | st.just(Degraded("less", latency=0.5)),
)
draws = st.floats(0, 1, exclude_max=True)


def counts_of(calls: int, failures: int = 0, *, seconds: float = 0.05) -> Counts:
    made = Counts()
    for number in range(calls):
        made.add(seconds, failed=number < failures)
    return made


def window_by_window(
    breaker: Breaker, windows: list[tuple[int, int, float]], known: Condition = PRISTINE
) -> list[Condition]:
    """Judge once a second slice of every window, with (calls, failures, seconds) in the one before.

    Returns:
        The condition after each window.

    """
    size = breaker.slice_ms * SLICES
    first = START // size
    known = judged(breaker, known, {}, now_ms=first * size, draw=0.5)
    slices: dict[int, Counts] = {}
    found = []
    for number, (calls, failures, seconds) in enumerate(windows, first):
        slices[number * SLICES + 3] = counts_of(calls, failures, seconds=seconds)
        known = judged(breaker, known, slices, now_ms=(number + 1) * size + 1, draw=0.5)
        found.append(known)
    return found


# -- the rule of failures --------------------------------------------------------------------------


@given(st.integers(0, 120), st.integers(0, 120))
def test_more_than_fifty_failures_and_thirty_percent_open_it(good: int, bad: int) -> None:
    """Both, and at once: the window slides."""
    at = START // PLAIN.slice_ms
    slices = {at: counts_of(good + bad, bad)}

    after = judged(PLAIN, PRISTINE, slices, now_ms=START, draw=0.5)

    assert (after.state is State.OPEN) == (bad > 50 and bad > 0.3 * (good + bad))
    assert (after.cause is Cause.FAILURES) == (after.state is State.OPEN)


def test_failures_of_a_window_ago_are_forgotten() -> None:
    """Sixty failures count for ten slices and no longer."""
    at = START // PLAIN.slice_ms
    slices = {at: counts_of(60, 60)}

    def state(slices_later: int) -> State:
        now_ms = (at + slices_later) * PLAIN.slice_ms
        return judged(PLAIN, PRISTINE, slices, now_ms=now_ms, draw=0.5).state

    assert [state(9), state(10)] == [State.OPEN, State.CLOSED]


def test_what_opened_it_does_not_open_it_again() -> None:
    """After closing only what happens from then on is held against it."""
    at = START // PLAIN.slice_ms
    known = closed(PRISTINE, Cause.TRIALS_SUCCEEDED, now_ms=START)

    after = judged(PLAIN, known, {at: counts_of(60, 60)}, now_ms=START + 100, draw=0.5)

    assert after.state is State.CLOSED


# -- the rule of load and latency ------------------------------------------------------------------


def test_three_windows_in_a_row_over_both_thresholds_open_it() -> None:
    """Two of them do not."""
    busy = (20, 0, 0.3)

    states = [one.state for one in window_by_window(LOADED, [busy] * 3)]

    assert states == [State.CLOSED, State.CLOSED, State.OPEN]


@pytest.mark.parametrize("between", [(20, 0, 0.05), (5, 0, 0.3), (0, 0, 0.1)])
def test_a_window_within_one_threshold_begins_the_count_again(
    between: tuple[int, int, float],
) -> None:
    """Fast, or little to do, or silence."""
    busy = (20, 0, 0.3)

    after = window_by_window(LOADED, [busy, busy, between, busy, busy])

    assert [one.over for one in after] == [1, 2, 0, 1, 2]
    assert after[-1].state is State.CLOSED


def test_silence_of_many_windows_begins_the_count_again() -> None:
    """Those of which nobody kept counts."""
    size = LOADED.slice_ms * SLICES
    known = window_by_window(LOADED, [(20, 0, 0.3)] * 2)[-1]

    after = judged(LOADED, known, {}, now_ms=(known.window + 10) * size, draw=0.5)

    assert after.over == 0
    assert after.load == pytest.approx(known.load * (1 - ALPHA) ** 10)


@given(st.floats(0, 1))
def test_the_thresholds_are_those_of_the_specification(load: float) -> None:
    """BaseQPS · (1 + 0.3 s) and BaseLatency · (1.5 - 0.2 s)."""
    rate, latency = thresholds(LOADED, load)

    assert rate == pytest.approx(10 * (1 + 0.3 * load))
    assert latency == pytest.approx(0.1 * (1.5 - 0.2 * load))


@given(st.lists(st.integers(0, 40), min_size=1, max_size=12))
def test_s_is_the_weighted_mean_of_clipped_utilisation(calls: list[int]) -> None:
    """Alpha 0.3; a window over the usual rate counts as 1."""
    expected = 0.0
    for one in calls:
        expected = ALPHA * min(one / 10, 1.0) + (1 - ALPHA) * expected

    after = window_by_window(LOADED, [(one, 0, 0.01) for one in calls])[-1]

    assert after.load == pytest.approx(expected)
    assert 0 <= after.load <= 1


def test_a_window_is_judged_once() -> None:
    """Looked at by many processes, it counts as one."""
    size = LOADED.slice_ms * SLICES
    known = window_by_window(LOADED, [(20, 0, 0.3)])[-1]

    again = judged(LOADED, known, {}, now_ms=known.window * size + 7, draw=0.5)

    assert again is known


# -- open, half-open, closed -----------------------------------------------------------------------


@given(breakers, draws)
def test_it_is_open_for_its_time_give_or_take_the_jitter(breaker: Breaker, draw: float) -> None:
    """30 s and a tenth, where nothing else is declared."""
    after = opened(breaker, PRISTINE, Cause.FAILURES, now_ms=START, draw=draw)

    assert 0.9 * 30_000 - 1 <= after.until_ms - START <= 1.1 * 30_000


@given(breakers, st.lists(st.booleans(), max_size=60))
def test_the_last_trials_decide(breaker: Breaker, results: list[bool]) -> None:
    """It closes with the share that is asked for, and opens once that is out of reach."""
    known = half_opened(PRISTINE, now_ms=START)
    done = 0
    for passed in results:
        known = tried(breaker, known, passed=passed, now_ms=START + 1, draw=0.5)
        done += 1
        if known.state is not State.HALF_OPEN:
            break
    good = sum(results[:done])

    if known.state is State.CLOSED:
        assert done == breaker.trials
        assert good / done >= breaker.close_at - 1e-9
    elif known.state is State.OPEN:
        assert (good + breaker.trials - done) / breaker.trials < breaker.close_at + 1e-9
    else:
        assert done < breaker.trials


@pytest.mark.parametrize(
    ("results", "state"),
    [("1111111", "closed"), ("1101111", "closed"), ("1111100", "open"), ("111111", "half-open")],
)
def test_six_of_seven_close_it(results: str, state: str) -> None:
    """Six sevenths are 85.7 %; two failures are one too many."""
    known = half_opened(PRISTINE, now_ms=START)
    for one in results:
        known = tried(PLAIN, known, passed=one == "1", now_ms=START, draw=0.5)

    assert known.state == state


@given(st.floats(0.001, 1), st.floats(0, 1), st.booleans())
def test_a_trial_that_is_too_slow_is_no_success(
    seconds: float,
    load: float,
    failed: bool,  # noqa: FBT001
) -> None:
    """The bound is the threshold of latency at the time."""
    known = replace(half_opened(PRISTINE, now_ms=START), load=load)

    passed = passes(LOADED, known, seconds=seconds, failed=failed)

    assert passed == (not failed and seconds <= 0.1 * (1.5 - 0.2 * load))


@given(st.sampled_from([State.OPEN, State.CLOSED]), st.booleans())
def test_a_trial_that_comes_late_changes_nothing(state: State, passed: bool) -> None:  # noqa: FBT001
    """It was let through by a half-open breaker that has decided since."""
    known = replace(PRISTINE, state=state)

    assert tried(PLAIN, known, passed=passed, now_ms=START, draw=0.5) is known


@given(st.sampled_from(["open", "closed"]), st.integers(0, 200))
def test_a_forced_breaker_does_not_decide(mode: str, failures: int) -> None:
    """Until it is told to again."""
    known = forced(PRISTINE, mode, now_ms=START)
    at = START // PLAIN.slice_ms + 2
    slices = {at: counts_of(failures, failures)}

    assert (known.state, known.forced) == (mode, mode)
    assert judged(PLAIN, known, slices, now_ms=START + 200, draw=0.5) is known


def test_back_on_auto_it_decides_again() -> None:
    """Closed, and by what happens from then on."""
    known = forced(forced(PRISTINE, "open", now_ms=START), "auto", now_ms=START)
    at = START // PLAIN.slice_ms

    before = judged(PLAIN, known, {at: counts_of(60, 60)}, now_ms=START, draw=0.5)
    after = judged(PLAIN, known, {at + 1: counts_of(60, 60)}, now_ms=START + 100, draw=0.5)

    assert (known.state, known.forced) == (State.CLOSED, "")
    assert (before.state, after.state) == (State.CLOSED, State.OPEN)


# -- degraded modes --------------------------------------------------------------------------------


def test_a_mode_is_entered_and_left_by_itself() -> None:
    """After one bad window; left after three good ones."""
    breaker = Breaker(window=1.0, degraded=Degraded("less", failure_rate=0.1))
    bad, good = (20, 5, 0.01), (20, 0, 0.01)

    after = window_by_window(breaker, [good, bad, good, good, good, good])

    assert [one.mode for one in after] == ["", "less", "less", "less", "", ""]
    assert after[1].state is State.CLOSED


def test_a_few_calls_enter_no_mode() -> None:
    """One failure of nine is no sign."""
    breaker = Breaker(window=1.0, degraded=Degraded("less", failure_rate=0.1))

    assert [one.mode for one in window_by_window(breaker, [(9, 1, 0.01)] * 2)] == ["", ""]


def test_slowness_enters_a_mode_too() -> None:
    """Where the declaration has a bound of latency."""
    breaker = Breaker(window=1.0, degraded=Degraded("less", latency=0.2))

    assert window_by_window(breaker, [(20, 0, 0.3)])[-1].mode == "less"


def test_an_open_breaker_is_in_its_mode() -> None:
    """So what it lets through in half-open is the little that the mode does."""
    breaker = Breaker(degraded=Degraded("less"))

    known = opened(breaker, PRISTINE, Cause.FAILURES, now_ms=START, draw=0.5)

    assert (known.mode, half_opened(known, now_ms=START).mode) == ("less", "less")


# -- as data ---------------------------------------------------------------------------------------


@given(
    breakers,
    st.lists(
        st.tuples(st.integers(0, 80), st.integers(0, 80), st.sampled_from([0.01, 0.3, 2.0])),
        max_size=8,
    ),
)
def test_every_change_raises_the_version_and_comes_back_from_json(
    breaker: Breaker, windows: list[tuple[int, int, float]]
) -> None:
    """Whatever happens; and what does not change keeps it."""
    before = PRISTINE
    for after in window_by_window(breaker, windows):
        assert (after.version > before.version) == (after != before)
        assert Condition.from_json(json.loads(json.dumps(after.to_json()))) == after
        before = after


def test_members_of_later_releases_are_left_out() -> None:
    """A rolling upgrade has processes of both kinds."""
    known = replace(PRISTINE, figures=Figures(calls=3))
    told = known.to_json()

    assert Condition.from_json({**told, "later": 1}) == known
    assert Condition.from_json({**told, "figures": {**told["figures"], "later": 1}}) == known


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0},
        {"window": float("nan")},
        {"base_rate": 0},
        {"base_latency": -1},
        {"windows": 0},
        {"failures": -1},
        {"failure_rate": 1.1},
        {"open_seconds": 0},
        {"jitter": 2},
        {"trials": 6},
        {"trials": 7.5},
        {"close_at": 0},
        {"key": ""},
        {"key": "a\nb"},
    ],
    ids=str,
)
def test_a_breaker_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """When it is declared, by name."""
    with pytest.raises(AsyncNodesError, match=next(iter(wrong))) as refused:
        Breaker(**wrong)

    assert refused.value.code == "invalid_node"


@pytest.mark.parametrize(
    "wrong", [{"name": ""}, {"failure_rate": -1}, {"latency": 0}, {"calm": 0}], ids=str
)
def test_a_mode_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """When it is declared, by name."""
    with pytest.raises(AsyncNodesError, match=next(iter(wrong))):
        Degraded(**{"name": "less", **wrong})
