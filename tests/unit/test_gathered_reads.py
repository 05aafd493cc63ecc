"""Reads of many greenlets in one command: each gets its own answer, asked for after it asked."""

from __future__ import annotations

from typing import Any

import gevent
import pytest
from gevent.hub import get_hub

from async_nodes.storage.gathered_reads import MAX_KEYS, GatheredReads
from async_nodes.storage.redis_errors import NotSent, OutcomeUnknown


class Link:
    """Keep what is asked, and answer when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], Any]] = []
        self.refusal: Exception | None = None

    def ask(self, *args: str, then: Any) -> None:
        """Take a command."""
        if self.refusal is not None:
            raise self.refusal
        assert args[0] == "MGET"
        self.asked.append((args[1:], then))

    def answer(self, number: int = 0, reply: Any = None) -> None:
        """Give the reply to a command, in the hub as a connection does."""
        keys, then = self.asked[number]
        said = [key.encode() for key in keys] if reply is None else reply
        get_hub().loop.run_callback(then, said)


def outcomes(reading: list[gevent.Greenlet]) -> list[Any]:
    """Return what each greenlet read or met."""
    gevent.joinall(reading, timeout=2)
    return [each.value if each.successful() else each.exception for each in reading]


def test_one_turn_is_one_command() -> None:
    """A key that several ask for goes out once, and all of them get its value."""
    link = Link()
    reads = GatheredReads(link)
    reading = [gevent.spawn(reads.get, key) for key in ("a", "b", "a", "c")]
    gevent.sleep(0.01)
    assert [keys for keys, _ in link.asked] == [("a", "b", "c")]
    link.answer(reply=[b"1", None, b"3"])
    assert outcomes(reading) == [b"1", None, b"1", b"3"]


def test_who_comes_later_asks_anew() -> None:
    """What is under way was perhaps read before; its reply is not for who asks now."""
    link = Link()
    reads = GatheredReads(link)
    first = gevent.spawn(reads.get, "a")
    gevent.sleep(0.01)
    second = gevent.spawn(reads.get, "a")
    gevent.sleep(0.01)
    assert [keys for keys, _ in link.asked] == [("a",), ("a",)]
    link.answer(0, [b"old"])
    link.answer(1, [b"new"])
    assert outcomes([first, second]) == [b"old", b"new"]


def test_a_command_has_its_bound() -> None:
    """Many keys are several commands."""
    link = Link()
    reads = GatheredReads(link)
    wanted = [f"k{number}" for number in range(2 * MAX_KEYS + 1)]
    reading = [gevent.spawn(reads.get, key) for key in wanted]
    gevent.sleep(0.01)
    assert [len(keys) for keys, _ in link.asked] == [MAX_KEYS, MAX_KEYS, 1]
    for number in (2, 0, 1):
        link.answer(number)
    assert outcomes(reading) == [key.encode() for key in wanted]


def test_a_failure_is_told_to_all() -> None:
    """Whether the command left or not; and the next read is made as if nothing had been."""
    link = Link()
    reads = GatheredReads(link)
    reading = [gevent.spawn(reads.get, key) for key in "ab"]
    gevent.sleep(0.01)
    link.answer(reply=OutcomeUnknown("cut"))
    assert [type(each) for each in outcomes(reading)] == [OutcomeUnknown, OutcomeUnknown]
    link.refusal = NotSent("down")
    assert isinstance(outcomes([gevent.spawn(reads.get, "a")])[0], NotSent)
    link.refusal = None
    again = gevent.spawn(reads.get, "a")
    gevent.sleep(0.01)
    link.answer(1)
    assert outcomes([again]) == [b"a"]


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_one_who_leaves_takes_nothing_along(seconds: float) -> None:
    """Before the command goes out or after; who asked for the same key gets its value."""
    link = Link()
    reads = GatheredReads(link)
    leaving, staying = gevent.spawn(reads.get, "a"), gevent.spawn(reads.get, "a")
    gevent.sleep(seconds)
    leaving.kill()
    gevent.sleep(0.01)
    link.answer()
    assert outcomes([staying]) == [b"a"]
