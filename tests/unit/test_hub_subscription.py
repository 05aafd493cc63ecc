"""One reader's bounded buffer, and the messages in it."""

from __future__ import annotations

import time
from collections.abc import Callable

import gevent
import pytest

from async_nodes.access.streams.hub import Hub, parse_message
from async_nodes.access.streams.subscription import (
    CLOSED,
    GAP,
    MAX_BYTES,
    MAX_MESSAGES,
    Message,
    Subscription,
)
from async_nodes.core.errors import AsyncNodesError


def opened(on_close: Callable[[Subscription], None] = lambda _: None) -> Subscription:
    subscription = Subscription(on_close)
    subscription.confirm()
    return subscription


def chunk(seq: int, json: bytes = b"{}") -> Message:
    return Message(2, seq, "chunk", json)


def test_messages_come_in_order() -> None:
    """What is delivered is read in the same order, then there is nothing."""
    subscription = opened()
    for seq in range(1, 4):
        subscription.deliver(chunk(seq))

    assert [subscription.get(0) for _ in range(4)] == [chunk(1), chunk(2), chunk(3), None]


def test_a_waiting_reader_is_woken() -> None:
    """A message that comes while the reader waits is returned at once."""
    subscription = opened()
    gevent.spawn_later(0.02, subscription.deliver, chunk(1))
    start = time.monotonic()

    assert subscription.get(5) == chunk(1)
    assert time.monotonic() - start < 1


def test_waiting_ends_in_time() -> None:
    """Without a message None is returned when the time is up, not before."""
    subscription = opened()
    start = time.monotonic()

    assert subscription.get(0.05) is None
    assert 0.045 < time.monotonic() - start < 1


def test_a_late_wake_up_does_not_shorten_a_later_wait() -> None:
    """A wake-up that finds no message is not taken for the end of the time."""
    subscription = opened()
    gevent.spawn_later(0.01, subscription._wake)
    start = time.monotonic()

    assert subscription.get(0.05) is None
    assert time.monotonic() - start > 0.045


@pytest.mark.parametrize(
    ("count", "size"), [(MAX_MESSAGES + 1, 2), (5, MAX_BYTES // 4), (1, MAX_BYTES + 1)]
)
def test_an_overflow_is_a_gap(count: int, size: int) -> None:
    """Past a thousand messages or a MiB the buffer is dropped and the reader told once."""
    subscription = opened()
    for seq in range(count):
        subscription.deliver(chunk(seq, b"x" * size))

    assert subscription.get(0) is GAP
    assert subscription.get(0) is None
    subscription.deliver(chunk(9))
    assert subscription.get(0) == chunk(9)


def test_what_was_read_makes_room() -> None:
    """A reader that keeps up never meets the bound."""
    subscription = opened()
    for seq in range(3 * MAX_MESSAGES):
        subscription.deliver(chunk(seq, b"x" * 2_000))
        assert subscription.get(0) == chunk(seq, b"x" * 2_000)


def test_what_comes_during_a_gap_is_not_kept() -> None:
    """Until the reader has taken the gap, the store is the only source: nothing doubles."""
    subscription = opened()
    subscription.miss()
    subscription.deliver(chunk(1))

    assert subscription.get(0) is GAP
    assert subscription.get(0) is None


def test_a_second_confirmation_is_a_gap() -> None:
    """After a reconnect an old reader is told to look into the store."""
    subscription = opened()
    assert subscription.get(0) is None
    subscription.deliver(chunk(1))

    subscription.confirm()

    assert subscription.get(0) is GAP
    assert subscription.get(0) is None


def test_the_end_comes_after_what_is_left() -> None:
    """A closed subscription first gives out its buffer, then says so for ever."""
    subscription = opened()
    subscription.deliver(chunk(1))
    subscription.end()
    subscription.deliver(chunk(2))

    assert [subscription.get(1) for _ in range(3)] == [chunk(1), CLOSED, CLOSED]


def test_the_end_wakes_a_reader() -> None:
    """A reader that waits for a message, or for the confirmation, is told at once."""
    waiting, unconfirmed = opened(), Subscription(lambda _: None)
    gevent.spawn_later(0.02, waiting.end)
    gevent.spawn_later(0.02, unconfirmed.end)

    assert waiting.get(5) is CLOSED
    assert unconfirmed.wait_confirmed(5) is False


def test_leaving_is_told_once() -> None:
    """Leaving twice, by the block and by hand, counts once."""
    left: list[Subscription] = []
    with opened(left.append) as subscription:
        subscription.close()

    assert left == [subscription]


def test_a_confirmation_is_waited_for_in_time() -> None:
    """True once it came, false when it did not."""
    late, never = Subscription(lambda _: None), Subscription(lambda _: None)
    gevent.spawn_later(0.02, late.confirm)

    assert late.wait_confirmed(5) is True
    assert never.wait_confirmed(0.02) is False


def test_a_published_message_is_understood() -> None:
    """Position, kind and JSON with any spaces are told apart."""
    assert parse_message(b'12-3 chunk {"text": "a b"}') == Message(
        12, 3, "chunk", b'{"text": "a b"}'
    )


@pytest.mark.parametrize(
    "payload", [b"", b"1-1 chunk", b"1 chunk {}", b"x-1 chunk {}", b"1-1 \xff {}"]
)
def test_a_foreign_message_is_none(payload: bytes) -> None:
    """What anybody else publishes on a channel does not break the hub."""
    assert parse_message(payload) is None


@pytest.mark.native
def test_the_hub_refuses_an_unpatched_process() -> None:
    """Without gevent's patches every reader would block all others: the error says so."""
    with pytest.raises(AsyncNodesError) as caught:
        Hub(None, None)  # type: ignore[arg-type]

    assert caught.value.code == "unpatched"
