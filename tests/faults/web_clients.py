"""A crowd of HTTP clients as browsers and libraries are: what may be sent again is, and no more.

A kept connection that ends without a byte of the answer is replaced, and the request sent once
more: a read has no effect, and a submit carries its Idempotency-Key. Everything else is a failure.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.event_stream import Parser, ServerEvent

ANSWER_SECONDS = 10.0
STREAM_SECONDS = 60.0


class CutError(ConnectionError):
    """Report a connection that ended in the middle of an answer, or before one on a new one."""


@dataclass
class Crowd:
    """Poll, submit and follow streams until told to stop.

    Attributes:
        port: on 127.0.0.1.
        polls: answers to polls.
        resent: requests that had to be sent again.
        failures: what no client should see.
        accepted: ids of submitted tasks.
        resumed: how many times a stream was followed further on another connection.
        slowest: seconds of the slowest poll.

    """

    port: int
    polls: int = 0
    resent: int = 0
    failures: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    resumed: int = 0
    slowest: float = 0.0
    stopping: bool = False

    async def poll(self, task_id: str, *, every: float) -> None:
        """Read one task again and again over a kept connection."""
        client = _Kept(self)
        while not self.stopping:
            began = time.monotonic()
            status, _ = await self._guarded(client.ask("GET", f"/v1/tasks/{task_id}"))
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.polls += 1
            if status != 200:
                self.failures.append(f"a poll: {status}")
            await asyncio.sleep(every)
        client.close()

    async def submit(self, *, every: float) -> None:
        """Submit tasks over a kept connection, each under a key of its own."""
        client = _Kept(self)
        body = json.dumps({"node": "echo", "inputs": {"text": "x"}}).encode()
        while not self.stopping:
            headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
            status, answer = await self._guarded(client.ask("POST", "/v1/tasks", body, headers))
            if status in (200, 202):
                self.accepted.append(json.loads(answer)["task_id"])
            else:
                self.failures.append(f"a submit: {status} {answer[:200]!r}")
            await asyncio.sleep(every)
        client.close()

    async def _guarded(self, asked: Any) -> tuple[int, bytes]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer: tuple[int, bytes] = await asked
                return answer
        except (OSError, TimeoutError) as error:
            return 0, repr(error).encode()

    async def follow(self, task_id: str) -> list[ServerEvent]:
        """Return all events of a task, over as many connections as that takes."""
        events: list[ServerEvent] = []
        last = ""
        while True:
            parser = Parser()
            parser.last_event_id = last
            try:
                await self._stream(task_id, parser, events)
            except OSError as error:  # only where a process was killed, which the test decides
                self.failures.append(f"a stream: {error!r}")
            last = parser.last_event_id
            if events and events[-1].type == "done":
                return events
            self.resumed += 1
            pause = parser.retry[-1] / 1000 if parser.retry else 1.0
            await asyncio.sleep(pause)

    async def _stream(self, task_id: str, parser: Parser, events: list[ServerEvent]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            headers = {"Last-Event-ID": parser.last_event_id} if parser.last_event_id else {}
            path = f"/v1/tasks/{task_id}/events"
            writer.write(_request("GET", path, b"", {"Accept": "text/event-stream", **headers}))
            status, fields = await _head(reader)
            if status != 200:
                raise CutError(f"status {status}")
            async with asyncio.timeout(STREAM_SECONDS):
                async for piece in _chunks(reader, fields):
                    events += parser.feed(piece)
        finally:
            writer.close()


class _Kept:
    """One client with a connection that it keeps."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return status and body."""
        kept = self._streams is not None
        try:
            return await self._exchange(method, path, body, headers or {})
        except (CutError, ConnectionError) as error:
            self.close()
            if not kept or error.args[:1] == ("within",):
                raise
        self._crowd.resent += 1
        return await self._exchange(method, path, body, headers or {})

    async def _exchange(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._crowd.port)
        reader, writer = self._streams
        writer.write(_request(method, path, body, headers))
        status, fields = await _head(reader)
        try:
            answer = await reader.readexactly(int(fields.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise CutError("within", "an answer") from error
        if fields.get("connection", "").lower() == "close":
            self.close()
        return status, answer

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _request(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        raise CutError("within" if error.partial else "before", "an answer") from error
    first, *lines = raw.decode("latin-1").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines if line)
    return int(first.split()[1]), {name.lower(): value for name, value in fields.items()}


async def _chunks(reader: asyncio.StreamReader, fields: dict[str, str]) -> Any:
    """Yield the pieces of a chunked body."""
    assert fields.get("transfer-encoding") == "chunked", fields
    try:
        while size := int(await reader.readline(), 16):
            yield await reader.readexactly(size)
            await reader.readline()
    except (asyncio.IncompleteReadError, ValueError) as error:
        raise CutError("within", "a stream") from error


def check_once(events: list[ServerEvent], *, chunks: int) -> None:
    """Check that a stream brought everything, once and in order."""
    positions = [event.position for event in events]
    assert positions == sorted(set(positions)), positions
    kinds = Counter(event.type for event in events)
    assert kinds["done"] == 1
    assert events[-1].type == "done"
    told = "".join(event.json["text"] for event in events if event.type == "chunk")
    assert told == "".join(pieces(chunks))


def pieces(chunks: int) -> list[str]:
    """Return what a followed task streams: no two alike."""
    return [f"{number} " for number in range(chunks)]
