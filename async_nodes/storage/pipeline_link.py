"""One connected socket on which many callers' commands travel together (part of *store*).

A `Call` is a place in the queue of replies. A `Link` writes calls in order, without blocking, and
hands each reply to the oldest call. It lives in gevent's hub: nothing here may block or switch,
and it does not know who waits for a call, nor for how long.
"""

from __future__ import annotations

import ssl
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Any

import hiredis
from redis.connection import SSLConnection
from redis.exceptions import ResponseError

from async_nodes.storage.resp import INCOMPLETE, Reply, new_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.storage.redis_address import RedisPyConnection

# One read; large enough that an 8 MiB reply needs few of them, kept once per link.
_READ_BYTES = 256 * 1024
# Calls are joined up to here for one send: beyond it copying costs more than the system call.
_JOIN_BYTES = 256 * 1024
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class LinkBrokenError(Exception):
    """Say why a link cannot be used any more."""


class Call:
    """Hold one caller's commands, their place in the stream and the replies so far.

    Attributes:
        payload: the packed commands.
        expected: how many replies end the call.
        deadline: monotonic time at which the caller stops waiting.
        greenlet: who waits; None when nobody does (any more). The place in the queue stays.
        offset: where the payload starts in the link's byte stream, -1 before it has a place.
        written_at: monotonic time at which it got that place.
        posted: nobody ever waited; a failure is logged instead.
        replies, error: the outcome; `error` wins.

    """

    __slots__ = (
        "deadline",
        "error",
        "expected",
        "greenlet",
        "offset",
        "payload",
        "posted",
        "replies",
        "written_at",
    )

    def __init__(self, payload: bytes, expected: int, deadline: float, greenlet: Any) -> None:
        self.payload = payload
        self.expected = expected
        self.deadline = deadline
        self.greenlet = greenlet
        self.posted = False
        self.offset = -1
        self.written_at = 0.0
        self.replies: list[Reply] = []
        self.error: Exception | None = None

    def failure(self) -> Exception | None:
        """Return what went wrong with the call, be it the connection or an error reply."""
        if self.error is not None:
            return self.error
        return next((reply for reply in self.replies if isinstance(reply, ResponseError)), None)


def take_socket(connection: RedisPyConnection) -> Any:
    """Return the socket of a connected redis-py connection.

    `_sock` is private to redis-py; a contract test holds it, and an upgrade that moves it fails
    here with a clear sentence rather than somewhere in the hub.
    """
    sock = getattr(connection, "_sock", None)
    if not all(callable(getattr(sock, name, None)) for name in ("recv_into", "send", "fileno")):
        msg = "this redis-py keeps its socket elsewhere than in Connection._sock"
        raise RuntimeError(msg)
    return sock


class Link:
    """Carry calls over one socket, in order and without blocking.

    Args:
        connection: redis-py's connection, connected; the link owns it from here on.
        loop: gevent's event loop.

    """

    def __init__(self, connection: RedisPyConnection, loop: Any) -> None:
        self._connection = connection
        self._socket = take_socket(connection)
        self._socket.settimeout(0.0)
        self._tls = isinstance(connection, SSLConnection)
        self._reader = new_reader()
        self._buffer = bytearray(_READ_BYTES)
        self._chunk = memoryview(b"")
        self._placed = 0  # bytes that have a place in the stream
        self._offered = 0  # bytes the kernel or TLS may have passed on
        self.awaiting: deque[Call] = deque()
        self._heard_at = monotonic()
        self._blocked = False
        self.sends = 0
        # ref=False: an idle link must not keep the program alive.
        self._readable = loop.io(self._socket.fileno(), 1, ref=False)
        self._writable = loop.io(self._socket.fileno(), 2, ref=False)
        self._on_writable: Callable[[], None] = lambda: None

    def start(self, on_readable: Callable[[], None], on_writable: Callable[[], None]) -> None:
        """Call back, in the hub, when replies can be read or more can be written."""
        self._on_writable = on_writable
        self._readable.start(on_readable)

    def close(self) -> None:
        """Close the socket; twice does no harm."""
        for watcher in (self._readable, self._writable):
            watcher.stop()
            watcher.close()
        self._chunk = memoryview(b"")
        self._connection.disconnect()  # type: ignore[no-untyped-call]

    @property
    def unsent_bytes(self) -> int:
        """Count the bytes that have a place but were not taken by the kernel."""
        return len(self._chunk)

    def may_have_been_sent(self, call: Call) -> bool:
        """Tell whether any byte of a call may have left this process."""
        return 0 <= call.offset < self._offered

    def silent_for(self, now: float) -> float:
        """Return for how many seconds the oldest call has waited without any sign of the server."""
        if not self.awaiting:
            return 0.0
        return now - max(self.awaiting[0].written_at, self._heard_at)

    def write(self, queue: deque[Call]) -> int:
        """Send from a queue until it is empty or the socket is full; return bytes newly placed.

        Raises:
            LinkBrokenError: the socket failed.

        """
        before = self._placed
        while self._chunk or self._join(queue):
            if not self._send_some():
                self._writable.start(self._on_writable)
                return self._placed - before
        self._writable.stop()
        return self._placed - before

    def _join(self, queue: deque[Call]) -> bool:
        now = monotonic()
        payloads: list[bytes] = []
        size = 0
        while queue and (not size or size + len(queue[0].payload) <= _JOIN_BYTES):
            call = queue.popleft()
            payloads.append(call.payload)
            call.offset = self._placed + size
            call.written_at = now
            size += len(call.payload)
            call.payload = b""  # a large value should not live twice
            self.awaiting.append(call)
        self._placed += size
        self._chunk = memoryview(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        return size > 0

    def _send_some(self) -> bool:
        if self._tls:
            # TLS may pass on records of a write that it then reports as not done.
            self._offered = self._placed
        self.sends += 1
        try:
            sent: int = self._socket.send(self._chunk)
        except _WOULD_BLOCK:
            sent = 0
        except OSError as error:
            raise LinkBrokenError(f"writing failed: {error}") from error
        self._chunk = self._chunk[sent:]
        if not self._tls:
            self._offered = self._placed - len(self._chunk)
        if sent and self._blocked:
            self._heard_at = monotonic()  # room in a full buffer: the server has read
        self._blocked = not sent
        return sent > 0

    def read(self, finished: list[Call]) -> bool:
        """Read what has arrived and append the calls whose replies are complete; True if any bytes.

        Raises:
            LinkBrokenError: the server closed the connection or does not speak RESP; calls
                finished before that are in the list.

        """
        count = self._receive()
        while count:
            self._heard_at = monotonic()
            self._reader.feed(self._buffer, 0, count)  # type: ignore[arg-type] # takes any buffer
            self._hand_out(finished)
            # Decrypted bytes left inside TLS do not make the socket readable again.
            if not (self._tls and self._socket.pending()):
                return True
            count = self._receive()
        return False

    def _receive(self) -> int:
        try:
            count: int = self._socket.recv_into(self._buffer)
        except _WOULD_BLOCK:
            return 0
        except OSError as error:
            raise LinkBrokenError(f"reading failed: {error}") from error
        if not count:
            raise LinkBrokenError("the server closed the connection")
        return count

    def _hand_out(self, finished: list[Call]) -> None:
        gets, awaiting = self._reader.gets, self.awaiting
        try:
            while (reply := gets()) is not INCOMPLETE:
                if not awaiting:
                    raise LinkBrokenError("the server sent a reply nobody asked for")
                call = awaiting[0]
                call.replies.append(reply)
                if len(call.replies) == call.expected:
                    finished.append(awaiting.popleft())
        except hiredis.HiredisError as error:
            raise LinkBrokenError(f"the server does not speak RESP: {error}") from error
