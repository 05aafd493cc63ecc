"""What one reader has of a channel: a bounded buffer and a way to wait (step *expose*).

A subscription costs a few hundred bytes: no greenlet, no connection. Its reader waits in `get`;
the hub's reader greenlet fills it. It does not know Redis, nor what the messages mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import Any, Final, Literal, Self

from gevent.hub import get_hub
from gevent.lock import BoundedSemaphore
from greenlet import getcurrent

from async_nodes.telemetry.metrics import dropped

MAX_MESSAGES = 1_000
MAX_BYTES = 1 << 20
"""What may wait for one reader; beyond it the buffer is dropped and a `GAP` is told."""


class Signal(Enum):
    """Tell a reader something about its subscription instead of a message.

    GAP: messages were missed; what is in the store now includes them.
    CLOSED: none will come any more.
    """

    GAP = "gap"
    CLOSED = "closed"


GAP: Final[Literal[Signal.GAP]] = Signal.GAP
CLOSED: Final[Literal[Signal.CLOSED]] = Signal.CLOSED


@dataclass(slots=True)
class Message:
    """Hold one event as published, shared by all who read it.

    Attributes:
        version, seq: its position in the task's events; in the feed, milliseconds and a number.
        type: state, progress, chunk, log or done.
        json: the event's data; ``{}`` for done, whose data is the record.
        frame: what a reader made of it for the wire, kept for the other readers.

    """

    version: int
    seq: int
    type: str
    json: bytes
    frame: bytes | None = field(default=None, compare=False, repr=False)
    _lock: Any = field(default=None, compare=False, repr=False)

    @property
    def lock(self) -> BoundedSemaphore:
        """Return a lock for making the frame, where that takes a look into the store."""
        if self._lock is None:
            self._lock = BoundedSemaphore()
        return self._lock


class Subscription:
    """Read one channel's messages as they are published.

    A context manager; leaving it is what frees it. One greenlet reads at a time.

    Args:
        on_close: called once, when the reader leaves.

    """

    __slots__ = (
        "_buffer",
        "_bytes",
        "_ended",
        "_greenlet",
        "_left",
        "_missed",
        "_on_close",
        "_wake_due",
        "confirmed",
    )

    def __init__(self, on_close: Callable[[Subscription], None]) -> None:
        self._on_close = on_close
        self._buffer: deque[Message] = deque()
        self._bytes = 0
        self._missed = False
        self._ended = False
        self._left = False
        self._greenlet: Any = None
        self._wake_due = False
        self.confirmed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave; twice does no harm."""
        if not self._left:
            self._left = True
            self._buffer.clear()
            self._on_close(self)

    # -- for the reader ----------------------------------------------------------------------

    def get(self, timeout: float) -> Message | Signal | None:
        """Return the next message or signal, None when none came within `timeout` seconds."""
        item = self._take()
        if item is not None or timeout <= 0:
            return item
        until = monotonic() + timeout
        while item is None and (rest := until - monotonic()) > 0:
            self._wait(rest)
            item = self._take()
        return item

    def wait_confirmed(self, timeout: float) -> bool:
        """Wait until the server has confirmed that messages will come; false if it did not."""
        until = monotonic() + timeout
        while not (self.confirmed or self._ended) and (rest := until - monotonic()) > 0:
            self._wait(rest)
        return self.confirmed and not self._ended

    def _take(self) -> Message | Signal | None:
        if self._missed:
            self._missed = False
            return GAP
        if self._buffer:
            message = self._buffer.popleft()
            self._bytes -= len(message.json)
            return message
        return CLOSED if self._ended else None

    def _wait(self, seconds: float) -> None:
        hub = get_hub()
        self._greenlet = getcurrent()
        timer = hub.loop.timer(seconds)
        timer.start(self._wake)
        try:
            hub.switch()
        finally:
            self._greenlet = None
            timer.stop()
            timer.close()

    # -- for the hub: nothing here switches greenlets ------------------------------------------

    def deliver(self, message: Message) -> None:
        """Buffer a message, or note a gap where the buffer is full."""
        if self._missed or self._ended:
            return  # the reader will look into the store, where the message's effect is already
        size = len(message.json)
        if len(self._buffer) >= MAX_MESSAGES or self._bytes + size > MAX_BYTES:
            dropped.inc(len(self._buffer) + 1)
            self.miss()
            return
        self._buffer.append(message)
        self._bytes += size
        self._notify()

    def miss(self) -> None:
        """Tell the reader that messages were missed."""
        self._buffer.clear()
        self._bytes = 0
        self._missed = True
        self._notify()

    def confirm(self) -> None:
        """Note that messages come from now on: of an old subscription, that some did not."""
        if self.confirmed:
            self.miss()
        self.confirmed = True
        self._notify()

    def end(self) -> None:
        """Tell the reader, after what it has yet to read, that nothing more will come."""
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        if self._greenlet is not None and not self._wake_due:
            self._wake_due = True
            get_hub().loop.run_callback(self._wake)

    def _wake(self) -> None:
        self._wake_due = False
        greenlet, self._greenlet = self._greenlet, None
        if greenlet is not None:
            greenlet.switch()
