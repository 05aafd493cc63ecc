"""The retry policy: full jitter, cap, budget, Retry-After."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import MAX_INTERVAL_MS, RetryPolicy

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    initial_ms=st.integers(0, MAX_INTERVAL_MS),
    max_ms=st.integers(0, MAX_INTERVAL_MS),
    multiplier=st.floats(1, 100),
    jitter=st.booleans(),
    total_ms=st.none() | st.integers(0, 10**9),
)
draws = st.floats(0, 1, exclude_max=True)


def test_the_bound_doubles_up_to_the_cap() -> None:
    """Without jitter the pauses are the bounds themselves."""
    policy = RetryPolicy(initial_ms=500, max_ms=3_000, jitter=False)

    assert [policy.delay_ms(n, draw=0.3) for n in range(1, 6)] == [500, 1000, 2000, 3000, 3000]


def test_jitter_draws_from_zero_to_the_bound() -> None:
    """The draw is a fraction of the bound: full jitter."""
    policy = RetryPolicy(initial_ms=1_000)

    assert [policy.delay_ms(1, draw=draw) for draw in (0.0, 0.25, 0.999)] == [0, 250, 999]


@given(policies, st.integers(1, 100), draws, st.integers(0, MAX_INTERVAL_MS))
def test_a_pause_is_within_its_bounds(
    policy: RetryPolicy, started: int, draw: float, retry_after: int
) -> None:
    """Never over the cap, unless a server asked for longer; never sooner than it asked."""
    pause = policy.delay_ms(started, draw=draw, retry_after_ms=retry_after)

    assert retry_after <= pause <= max(policy.max_ms, retry_after)


@given(policies)
def test_the_longest_exponent_does_not_overflow(policy: RetryPolicy) -> None:
    """The hundred-thousandth start has a pause too."""
    assert 0 <= policy.delay_ms(100_000, draw=0.5) <= policy.max_ms


def test_starts_are_bounded() -> None:
    """max_attempts counts the first start too."""
    policy = RetryPolicy(max_attempts=3)

    assert [policy.allows(n, elapsed_ms=0, delay_ms=0) for n in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]


def test_the_budget_counts_the_pause_to_come() -> None:
    """A start that would fall behind total_ms is not made."""
    policy = RetryPolicy(total_ms=1_000)

    assert policy.allows(1, elapsed_ms=600, delay_ms=400)
    assert not policy.allows(1, elapsed_ms=600, delay_ms=401)


WRONG: list[dict[str, Any]] = [
    {"max_attempts": 0},
    {"max_attempts": 101},
    {"initial_ms": -1},
    {"initial_ms": MAX_INTERVAL_MS + 1},
    {"max_ms": -1},
    {"multiplier": 0.5},
    {"multiplier": float("nan")},
    {"multiplier": 101.0},
    {"total_ms": -1},
]


@pytest.mark.parametrize("change", WRONG)
def test_a_policy_that_no_schedule_can_mean_is_refused(change: dict[str, Any]) -> None:
    """The error points at the field."""
    (name,) = change

    with pytest.raises(AsyncNodesError, match=name) as refused:
        RetryPolicy(**change)

    assert (refused.value.code, refused.value.pointer) == (
        "invalid_request",
        f"/retry_policy/{name}",
    )


@given(policies)
def test_a_policy_survives_json(policy: RetryPolicy) -> None:
    """Its JSON object makes the same policy again."""
    assert RetryPolicy(**policy.to_json()) == policy
