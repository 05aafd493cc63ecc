"""A client of event streams for tests against the web process."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import Protocol, Self

from tests.event_stream import Parser, ServerEvent


class Connecting(Protocol):
    """Somebody who knows where the web process is."""

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection of one's own."""


class Stream:
    """Read one stream.

    Args:
        web: where.
        path: with its query.
        headers: ``_`` in a name is ``-``.

    Attributes:
        events: all that came so far.
        parser: knows comments and the last id.
        status: of the answer.

    """

    def __init__(self, web: Connecting, path: str, **headers: str) -> None:
        self.parser = Parser()
        self.events: list[ServerEvent] = []
        self._connection = web.connect()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", path, headers=sent)
        self._response: http.client.HTTPResponse = self._connection.getresponse()
        self.status = self._response.status
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._connection.close()

    def read(self, seconds: float = 10.0) -> bool:
        """Read what is there or comes next; false when nothing came in time or at the end."""
        if self.ended:
            return False
        if self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        try:
            piece = self._response.read1(65536)
        except TimeoutError:
            return False
        self.ended = not piece
        self.events += self.parser.feed(piece)
        return not self.ended

    def until(self, test: Callable[[list[ServerEvent]], object], seconds: float = 10.0) -> None:
        """Read until what has come passes a test."""
        until = time.monotonic() + seconds
        while not test(self.events):
            rest = until - time.monotonic()
            assert rest > 0, f"it did not come: {self.events}"
            assert self.read(rest) or test(self.events), f"it ended: {self.events}"

    def rest(self, seconds: float = 10.0) -> list[ServerEvent]:
        """Return all events of a stream that ends by itself."""
        until = time.monotonic() + seconds
        while not self.ended:
            assert time.monotonic() < until, f"it does not end: {self.events}"
            self.read(max(until - time.monotonic(), 0.1))
        return self.events
