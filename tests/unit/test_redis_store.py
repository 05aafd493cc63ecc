"""What the adapter decides by itself, which is little; what the store promises is a contract."""

from __future__ import annotations

import time
from typing import Any

import pytest

from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_errors import (
    NotSent,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
)
from async_nodes.storage.redis_store import ASK_AGAIN_WITHIN, RedisStore
from tests.contract.real_store import IDS, submission

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


class Verdicts:
    """Answer rows as told."""

    def __init__(self, *said: Any) -> None:
        self.said = list(said)

    def commit_many(self, _script: str, rows: list[Any], *, patience: float) -> list[Any]:
        """Return the answers."""
        assert len(rows) == len(self.said)
        return self.said


def submitted(*said: Any) -> tuple[list[str], list[Any]]:
    """Return the ids of tasks, and what came of submitting them."""
    anything: Any = Verdicts(*said)
    store = RedisStore(link=anything, committer=anything, keys=Keys(), scripts={})
    asked = [submission(IDS.make(number)) for number in range(len(said))]
    return [one.task_id for one in asked], store.submit_many(asked)


def test_one_of_many_whose_fate_is_unknown_is_told_by_its_id() -> None:
    """The others keep their own answers."""
    ids, (first, second, third) = submitted([b"ok", 1, 5], OutcomeUnknown("cut"), StoreFull("full"))

    assert (first.task_id, first.version, first.created_ms) == (ids[0], 1, 5)
    assert (second.code, second.extra) == ("outcome_unknown", {"task_id": ids[1]})
    assert third.code == "store_unavailable"


def test_many_of_which_none_was_sent_fail_together() -> None:
    """That is one 503, and not many; an unknown one among them is told by itself."""
    with pytest.raises(NotSent):
        submitted(NotSent("down"), NotSent("down"))
    assert [one.code for one in submitted(NotSent("down"), OutcomeUnknown("cut"))[1]] == [
        "store_unavailable", "outcome_unknown",
    ]  # fmt: skip
