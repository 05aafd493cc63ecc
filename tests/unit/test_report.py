"""What a running body says: numbered, in order, and all of it before its end."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Applied, Claim
from async_nodes.execution.report import Report

CLAIM = Claim("t", "f" * 16, 2, 3, 3, 0, 0, 0, 0, 0, 0, 1_000, 0, "default", b"{}", b"{}")


class SlowStore:
    """Note chunks; let the first one wait until it may arrive."""

    def __init__(self) -> None:
        self.arrived: list[tuple[int, Any]] = []
        self.may_arrive = threading.Event()
        self.waiting = threading.Event()

    def chunk(self, task_id: str, fence: str, chunk: bytes, *, number: int = 0) -> Applied:
        """Take a chunk."""
        assert (task_id, fence) == (CLAIM.task_id, CLAIM.fence)
        self.waiting.set()
        self.may_arrive.wait(5)
        self.arrived.append((number, json.loads(chunk)))
        return Applied(applied=True, version=2, cancel_asked=False)


def report_on(store: Any, **options: Any) -> Report:
    """Return a report of one attempt."""
    return Report(store, CLAIM, **options)


def test_chunks_carry_their_number_to_the_store() -> None:
    """The store can tell a chunk that is sent again from the next one."""
    store = SlowStore()
    store.may_arrive.set()
    report = report_on(store)
    report.chunk("a")
    report.chunk({"b": 1})

    assert store.arrived == [
        (1, {"text": "a", "attempt": 3, "n": 1}),
        (2, {"data": {"b": 1}, "attempt": 3, "n": 2}),
    ]


def test_the_end_waits_for_what_a_timer_sends() -> None:
    """A body that ends while a joined chunk is on its way does not overtake it."""
    store = SlowStore()
    timers: list[Any] = []

    def later(_seconds: float, function: Any) -> Any:
        timers.append(threading.Thread(target=function))
        return lambda: None

    report = report_on(store, coalesce=60.0, later=later)
    report._last_flush = float("inf")  # the first piece waits for the timer
    report.chunk("late")
    timers[0].start()
    assert store.waiting.wait(5)
    ended = threading.Event()

    def end() -> None:
        report.flush()
        ended.set()

    body = threading.Thread(target=end)
    body.start()
    assert not ended.wait(0.05)
    store.may_arrive.set()
    assert ended.wait(5)
    body.join()
    timers[0].join()
    assert [number for number, _ in store.arrived] == [1]


def test_usage_is_refused_where_the_body_can_hear_it() -> None:
    """A count whose name is not JSON is refused at once and leaves the earlier counts alone."""
    report = report_on(SlowStore())
    report.usage({"tokens": 2})
    with pytest.raises(AsyncNodesError, match="surrogate"):
        report.usage({"half\ud800": 1})
    report.usage({"tokens": 3})
    assert json.loads(report.side.usage) == {"tokens": 5}
