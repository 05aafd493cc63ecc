"""What the adapter decides by itself, which is little; what the store promises is a contract."""

from __future__ import annotations

import time
from typing import Any

import pytest

from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_errors import NotSent, StoreUnavailable
from async_nodes.storage.redis_store import ASK_AGAIN_WITHIN, RedisStore

TASK = "t_00000000000000000000000000"


class Link:
    """Fail so many times, after so long, then answer with nothing."""

    def __init__(self, failures: int, after: float = 0.0) -> None:
        self.calls = 0
        self._failures = failures
        self._after = after

    def call(self, *_args: Any, timeout: float | None = None) -> None:
        """Answer as told."""
        self.calls += 1
        if self.calls <= self._failures:
            time.sleep(self._after)
            raise NotSent("cut")


def store_over(link: Link) -> RedisStore:
    anything: Any = link
    return RedisStore(link=anything, committer=anything, keys=Keys(), scripts={})


def test_a_read_that_was_cut_is_asked_again() -> None:
    """One cut connection is no reason for a 503."""
    link = Link(failures=1)
    assert store_over(link).read(TASK) is None
    assert link.calls == 2


def test_a_read_is_asked_again_once_only() -> None:
    """A store that is away is told of, not waited for."""
    link = Link(failures=5)
    with pytest.raises(StoreUnavailable):
        store_over(link).read(TASK)
    assert link.calls == 2


def test_a_read_that_hung_is_not_asked_again() -> None:
    """The caller's time is used up by then."""
    link = Link(failures=1, after=ASK_AGAIN_WITHIN * 1.5)
    with pytest.raises(StoreUnavailable):
        store_over(link).glance(TASK)
    assert link.calls == 1
