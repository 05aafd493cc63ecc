"""The simulated model, connected: HTTP/1.1 for one peer, which notices a disconnect at once.

Only what a model's clients need: keep-alive, bodies with a length, one request after another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from async_nodes.testing import model_wire as wire

MAX_HEAD = 64 * 1024
MAX_BODY = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """Hold one complete request; header names are lower-case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class BadRequestError(Exception):
    """Report bytes that are no request this server takes: a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Peer(asyncio.Protocol):
    """Read requests, run the handler for each, and cancel it the moment the client is gone."""

    def __init__(self, handler: Callable[[Request, Peer], Awaitable[None]]) -> None:
        self._handler = handler
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - the protocol's contract
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Collect bytes; start on a request when it is complete."""
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        """Cancel what runs: a client that stops sending has left."""
        # Long before a write would fail.
        self._stop()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what runs."""
        self._transport = None
        self._stop()
        self._writable.set()

    def pause_writing(self) -> None:
        """Hold `send` back."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let `send` go on."""
        self._writable.set()

    async def send(self, data: bytes) -> None:
        """Write, and wait while the client does not read."""
        if self._transport is not None:
            self._transport.write(data)
        await self._writable.wait()

    def reset(self) -> None:
        """Break the connection without an ending."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End the connection after what was written."""
        if self._transport is not None:
            self._transport.close()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _next(self) -> None:
        if self._task is not None or self._transport is None:
            return
        try:
            request = self._take()
        except BadRequestError as error:
            self._transport.write(wire.plain(error.status, wire.error(error.status, str(error))))
            self._transport.close()
            return
        if request is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(request))

    async def _run(self, request: Request) -> None:
        try:
            await self._handler(request, self)
        except asyncio.CancelledError:
            self.close()
        finally:
            self._task = None
        self._next()

    def _take(self) -> Request | None:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD:
                raise BadRequestError(431, "the headers are too large")
            return None
        method, target, headers = _head(bytes(self._buffer[:end]))
        length = _length(headers)
        if len(self._buffer) < end + 4 + length:
            if headers.get("expect", "").lower() == "100-continue" and self._transport:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        path, _, query = target.partition("?")
        return Request(method, path, query, headers, body)


def _head(raw: bytes) -> tuple[str, str, dict[str, str]]:
    first, *lines = raw.decode("latin-1").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):  # noqa: PLR2004
        raise BadRequestError(400, "the request line is not HTTP/1.1")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return parts[0], parts[1], headers


def _length(headers: Mapping[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequestError(411, "send the body with a Content-Length")
    text = headers.get("content-length", "0")
    if not (text.isascii() and text.isdigit()):
        raise BadRequestError(400, "Content-Length is not a number")
    if int(text[:20]) > MAX_BODY:
        raise BadRequestError(413, f"the body is larger than {MAX_BODY} bytes")
    return int(text)
