"""Step 5, expose: the bytes of a connection, which may be looked at before they are taken.

Stands where gevent's server expects a buffered file. What the fast lane looked at and does not
answer is still here for the server's own parser, and so is the way the connection ended.
"""

from __future__ import annotations

from typing import Any, Final

from gevent.exceptions import InvalidSwitchError
from gevent.hub import get_hub
from greenlet import getcurrent

_READABLE: Final = 1
_PIECE: Final = 16 << 10
_MOST: Final = 64 << 10
"""Bytes asked of the socket at a time: a piece, or up to this when more is known to come."""


class Reader:
    """Read a socket, with a look ahead.

    Args:
        sock: gevent's socket; its time-out bounds every wait.

    Attributes:
        closed: never set: the socket's owner ends it.

    """

    __slots__ = ("_at", "_data", "_ended", "_failure", "_receive", "closed")

    def __init__(self, sock: Any) -> None:
        self._receive = sock.recv
        self._data = b""  # what has arrived; taken up to `_at`
        self._at = 0
        self._ended = False
        self._failure: tuple[object, ...] | None = None
        self.closed = False

    @property
    def empty(self) -> bool:
        """Tell whether all that has arrived was taken."""
        return self._at == len(self._data)

    def peek(self, least: int = 1) -> bytes:
        """Return what waits to be taken, at least so many bytes unless the connection ends before.

        A failure is kept for whoever takes: nobody has asked for the bytes yet.
        """
        while len(self._data) - self._at < least and self._arrives(least):
            pass  # until it is enough
        return self._data[self._at :] if self._at else self._data

    def take(self, count: int) -> None:
        """Take bytes that a look has shown."""
        self._at += count
        if self._at == len(self._data):
            self._data, self._at = b"", 0

    def readline(self, limit: int = -1) -> bytes:
        """Take a line with its end; shorter at `limit` bytes and where the connection ends.

        Raises:
            OSError: the connection failed or timed out before.

        """
        looked = 0
        while True:
            end = self._data.find(b"\n", self._at + looked) + 1
            available = len(self._data) - self._at
            if end or 0 <= limit <= available or not self._arrives():
                break
            looked = available
        if not end and not 0 <= limit <= available:
            self._raise_failure()
        size = end - self._at if end else available
        return self._taken(min(size, limit) if limit >= 0 else size)

    def read(self, size: int | None = -1) -> bytes:
        """Take bytes: as many as asked for, or all until the connection ends.

        Raises:
            OSError: the connection failed or timed out before.

        """
        if size is None or size < 0:
            while self._arrives():
                pass  # until the end
            self._raise_failure()
            return self._taken(len(self._data) - self._at)
        pieces: list[bytes] = []
        missing = size
        while missing:
            if self.empty and not self._arrives(missing):
                self._raise_failure()
                break
            pieces.append(self._taken(min(missing, len(self._data) - self._at)))
            missing -= len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Forget what was not taken."""
        self.closed = True
        self._data, self._at = b"", 0

    def _arrives(self, wanted: int = 0) -> bool:
        """Wait for more; false when the connection has ended or failed."""
        if self._ended:
            return False
        try:
            piece = self._receive(min(max(_PIECE, wanted), _MOST))
        except OSError as failure:
            self._failure, self._ended = failure.args, True  # without its frames
            return False
        if not piece:
            self._ended = True
            return False
        self._data = piece if self.empty else self._data[self._at :] + piece
        self._at = 0
        return True

    def _taken(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        self.take(count)
        return found

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise OSError(*self._failure)


class Rest:
    """Wait until something can be read, once for each request of a connection.

    gevent's own way is to try, fail, and make a watcher's start, stop and messenger for each wait.
    Here the watcher runs on while a request is answered, and the socket is read once it is known
    that there is something to read.

    Args:
        sock: a plain gevent socket; TLS may hold bytes that the loop knows nothing of.

    """

    __slots__ = ("_greenlet", "_hub", "_watcher", "_watches")

    def __init__(self, sock: Any) -> None:
        self._hub: Any = get_hub()
        self._watcher = self._hub.loop.io(sock.fileno(), _READABLE)
        self._watches = False
        self._greenlet: Any = None

    def wait(self) -> None:
        """Return when the socket can be read, has ended or has failed."""
        if not self._watches:
            self._watches = True
            self._watcher.start(self._wake)
        self._greenlet = getcurrent()
        try:
            said = self._hub.switch()
        finally:
            self._greenlet = None
        if said is not self:
            message = f"a connection at rest was switched to with {said!r}"
            raise InvalidSwitchError(message)

    def close(self) -> None:
        """End; before the socket does."""
        self._watcher.close()

    def _wake(self) -> None:
        """Go on with who waits; called by the loop."""
        if self._greenlet is not None:
            self._greenlet.switch(self)
        else:  # more than is wanted now: the loop would come back for it at once
            self._watches = False
            self._watcher.stop()
