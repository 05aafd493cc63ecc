"""The kill loop's plan and its verdict: repeatable, and not to be fooled."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.cli.chaos.plan import COUNTED, LONGEST_PAUSE, SHORTEST_PAUSE, Plan
from async_nodes.cli.chaos.verdict import judge

TARGETS = ("worker io", "worker cpu", "web")


@given(seed=st.integers(0, 1_000_000), seconds=st.floats(5, 600), tasks=st.integers(1, 300))
def test_a_plan_is_its_seed(seed: int, seconds: float, tasks: int) -> None:
    """The same seed kills the same processes at the same times, 2 to 5 seconds apart."""
    plan, again = (Plan(tasks, seconds, seed, TARGETS) for _ in range(2))
    moments = [0.0, *(kill.at for kill in plan.kills())]

    assert plan.kills() == again.kills()
    assert list(plan.requests("f")) == list(again.requests("f"))
    assert all(kill.target in TARGETS and kill.at < seconds for kill in plan.kills())
    for earlier, later in pairwise(moments):
        assert SHORTEST_PAUSE - 0.01 <= later - earlier <= LONGEST_PAUSE + 0.01
    assert len(moments) > seconds / LONGEST_PAUSE - 1
    assert [at for at, _ in plan.requests("f")] == sorted(at for at, _ in plan.requests("f"))
    assert len(list(plan.requests("f"))) == tasks


def attempt(outcome: str, start: int) -> dict[str, Any]:
    return {"outcome": outcome, "started_at": f"2026-01-01T00:00:{start:02d}.000Z"}


def record(*attempts: dict[str, Any], state: str = "Succeeded", node: str = "echo") -> Any:
    return {
        "state": state,
        "node": node,
        "attempt": len(attempts),
        "attempts": list(attempts),
    }


KILLED_AT = 1_767_225_602.5  # 2026-01-01T00:00:02.5Z


def test_a_run_in_which_all_is_well() -> None:
    """A loss that is run again is well; how long that took is told."""
    records = {
        "a": record(attempt("succeeded", 1)),
        "b": record(attempt("lost", 2), attempt("succeeded", 6), node=COUNTED),
    }
    verdict = judge(records, ["b 1 x", "b 2 x"], [KILLED_AT])

    assert verdict.passed
    assert (verdict.accepted, verdict.repeats, verdict.recovery) == (2, 1, [3.5])
    assert verdict.to_json()["recovery_seconds"] == {"median": 3.5, "p95": 3.5, "most": 3.5}


def test_what_is_missing_is_lost() -> None:
    """A task without a record, and one that never ended."""
    verdict = judge({"a": None, "b": record(attempt("lost", 1), state="Pending")}, [], [])

    assert verdict.lost == ["a", "b"]
    assert not verdict.passed


def test_what_ends_badly_has_failed() -> None:
    """Nothing of the mix can fail by itself."""
    assert judge({"a": record(state="Failed")}, [], []).failed == ["a"]


def test_a_start_that_nobody_counted_is_a_double() -> None:
    """More lines than attempts, or two successes."""
    twice = record(attempt("succeeded", 1), attempt("succeeded", 2))
    silent = record(attempt("succeeded", 1), node=COUNTED)
    verdict = judge({"a": twice, "b": silent}, ["b 1 x", "b 1 y"], [])

    assert verdict.doubled == ["a", "b"]
    assert not verdict.passed
