"""What a breaker has refused does not count as tried."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from async_nodes.core.errors import AsyncNodesError, RetryableError
from async_nodes.core.ports import Claim
from async_nodes.core.retry import RetryPolicy
from async_nodes.execution import refusals
from async_nodes.execution.breakers import BreakerOpen

REFUSED = BreakerOpen("node:a", 30, why="it is open")
FAILED = RetryableError("no")


def claim(spent: int) -> Claim:
    return Claim("t_1", "", 0, spent, spent, 0, 0, 0, 0, 0, 0, 0, 0, "", b"", b"")


def counted(error: Exception, refused: int, failed: int, *, most: int = 3) -> int:
    """Return what counts as spent of attempts so far, the last of which ended with this error."""
    codes = ["breaker_open"] * refused + ["node_failed"] * failed
    document = {"attempts": [{"error": {"code": code}} for code in codes]}

    def read(_task_id: str) -> Any:
        return SimpleNamespace(json=json.dumps(document).encode())

    policy = RetryPolicy(max_attempts=most)
    return refusals.without(claim(len(codes) + 1), error, policy, read=read).spent


@pytest.mark.parametrize(
    ("refused", "failed", "spent"), [(0, 0, 1), (1, 0, 1), (10, 0, 1), (10, 1, 1), (10, 2, 2)]
)
def test_a_refusal_leaves_the_attempts_there_are(refused: int, failed: int, spent: int) -> None:
    """However often it is refused, only what failed was tried."""
    assert counted(REFUSED, refused, failed) == spent


@pytest.mark.parametrize(("refused", "failed", "spent"), [(10, 0, 1), (10, 1, 2), (10, 2, 3)])
def test_a_failure_counts_itself(refused: int, failed: int, spent: int) -> None:
    """The third one is the last of three, whatever came between."""
    assert counted(FAILED, refused, failed) == spent


def test_a_single_attempt_is_answered_at_once() -> None:
    """A policy of one attempt wants an answer, not a place in a queue."""
    policy = RetryPolicy(max_attempts=1)
    spent = refusals.without(claim(1), REFUSED, policy, read=lambda _: 1 / 0).spent

    assert not policy.allows(spent, elapsed_ms=0, delay_ms=0)


def test_a_task_is_refused_so_often_at_most() -> None:
    """Somebody should look."""
    assert counted(REFUSED, refusals.MOST - 2, 0) == 1
    assert counted(REFUSED, refusals.MOST - 1, 0) == refusals.MOST


def test_without_the_store_the_stricter_count_holds() -> None:
    """The end of an attempt does not wait for it."""

    def read(_task_id: str) -> Any:
        raise AsyncNodesError("store_unavailable")

    assert refusals.without(claim(7), FAILED, RetryPolicy(), read=read).spent == 7


def test_an_attempt_that_may_be_followed_by_another_asks_nobody() -> None:
    """The usual retry costs no round trip."""
    assert refusals.without(claim(2), FAILED, RetryPolicy(), read=lambda _: 1 / 0).spent == 2
