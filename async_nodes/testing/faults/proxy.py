"""A TCP proxy whose connections misbehave as they are told.

It runs on an asyncio loop in a thread of its own and listens on loopback only. Everything random
comes from one seed: the same seed and the same order of connections give the same faults. In a
process that gevent has patched there is no such thread: start the command there,
``python -m async_nodes.testing.faults``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Self, TypeAlias, TypeVar

from async_nodes.testing.faults.toxics import (
    Bandwidth,
    Drawn,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Stall,
    Stream,
    Toxic,
)

_READ: Final = 65_536
_WAITING: Final = 1_000
"""Pieces of one direction that may be under way."""

_LOOK: Final = 0.05
"""Seconds after which something that stands still looks whether its toxic is gone."""

_ANSWER_SECONDS: Final = 10.0
_RESET: Final = struct.pack("ii", 1, 0)
_T = TypeVar("_T")
_Line: TypeAlias = "asyncio.Queue[tuple[float, bytes] | None]"


@dataclass(slots=True)
class Seen:
    """Count what a proxy has done: connections, those it cut, bytes each way."""

    connections: int = 0
    cut: int = 0
    upstream_bytes: int = 0
    downstream_bytes: int = 0


def refuse_gevent() -> None:
    """Refuse a process whose threads are greenlets.

    Raises:
        RuntimeError: gevent has patched it.

    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        message = (
            "gevent has patched this process: run python -m async_nodes.testing.faults instead"
        )
        raise RuntimeError(message)


class FaultProxy:
    """Stand between clients and a server.

    Args:
        upstream: where the server listens, host and port or the path of a socket.
        port: where to listen on 127.0.0.1; 0 for any.
        seed: of everything random.

    """

    def __init__(self, upstream: tuple[str, int] | str, *, port: int = 0, seed: int = 0) -> None:
        self._upstream = upstream
        self._wanted = port
        self._random = Random(seed)
        self._toxics: tuple[Toxic, ...] = ()
        self._links: set[_Link] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._up = True
        self.port = 0
        self.seen = Seen()

    # -- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Listen; raises `OSError` where that is not possible."""
        refuse_gevent()
        loop = asyncio.new_event_loop()
        try:
            self._server = loop.run_until_complete(self._listen())
        except OSError:
            loop.close()
            raise
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None  # noqa: S101 - it was started
        loop.run_forever()
        loop.close()

    def stop(self) -> None:
        """Cut every connection and end; again does nothing."""
        loop, self._loop = self._loop, None
        if loop is None:
            return

        async def end() -> None:
            assert self._server is not None  # noqa: S101 - it was started
            self._server.close()
            tasks = [link.task for link in self._links if link.task is not None]
            for link in tuple(self._links):
                link.abort()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), loop).result(_ANSWER_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join(_ANSWER_SECONDS)

    @property
    def address(self) -> tuple[str, int]:
        """Return where clients connect to."""
        return "127.0.0.1", self.port

    def url(self, scheme: str, path: str = "/0") -> str:
        """Return the address as a URL."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    # -- faults --------------------------------------------------------------------------------

    def add(self, toxic: Toxic) -> None:
        """Put a toxic in force, for connections that are there as well; replaces its namesake."""
        kept = [one for one in self._toxics if one.called != toxic.called]
        self._toxics = (*kept, toxic)

    def remove(self, name: str) -> None:
        """Take a toxic away by its name; raises `KeyError` where there is none."""
        kept = tuple(one for one in self._toxics if one.called != name)
        if len(kept) == len(self._toxics):
            raise KeyError(name)
        self._toxics = kept

    def clear(self) -> None:
        """Take all toxics away, and let connections through again."""
        self._toxics = ()
        self._up = True

    @property
    def toxics(self) -> tuple[Toxic, ...]:
        """Return what is in force."""
        return self._toxics

    def cut(self) -> int:
        """Reset every connection; return how many there were."""

        async def cut_all() -> int:
            links = tuple(self._links)
            for link in links:
                link.abort()
            return len(links)

        return self._do(cut_all)

    def down(self) -> None:
        """Reset every connection, and each new one at once, as if the server were gone."""
        self._up = False
        self.cut()

    def up(self) -> None:
        """Let connections through again."""
        self._up = True

    def _do(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if self._loop is None:
            raise RuntimeError("the proxy is not running")
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(_ANSWER_SECONDS)

    # -- connections: on the loop --------------------------------------------------------------

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self._wanted, limit=_READ)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.seen.connections += 1
        link = _Link(self, writer, Drawn(Random(self._random.random())))
        link.task = asyncio.current_task()
        self._links.add(link)
        try:
            if self._up:
                await link.carry(reader, self._upstream)
            else:
                link.abort()
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            link.abort()
        finally:
            self._links.discard(link)
            link.close()


@dataclass(eq=False)
class _Link:
    """One client's connection and the one to the server."""

    proxy: FaultProxy
    client: asyncio.StreamWriter
    drawn: Drawn
    server: asyncio.StreamWriter | None = None
    task: asyncio.Task[None] | None = None
    began: float = field(default_factory=time.monotonic)
    carried: dict[Stream, int] = field(default_factory=lambda: dict.fromkeys(Stream, 0))

    def toxics(self, stream: Stream) -> list[Toxic]:
        """Return what is wrong with one direction now."""
        toxics = self.proxy.toxics
        return [one for one in self.drawn.those(toxics) if one.stream == stream] if toxics else []

    async def carry(self, reader: asyncio.StreamReader, upstream: tuple[str, int] | str) -> None:
        """Carry both directions until one ends."""
        if isinstance(upstream, str):
            opening = asyncio.open_unix_connection(upstream, limit=_READ)
        else:
            opening = asyncio.open_connection(*upstream, limit=_READ)
        back, self.server = await opening
        up: _Line = asyncio.Queue(_WAITING)
        down: _Line = asyncio.Queue(_WAITING)
        readers = (
            self._take(reader, up, Stream.UPSTREAM),
            self._take(back, down, Stream.DOWNSTREAM),
        )
        ends = (
            self._deliver(up, self.server, Stream.UPSTREAM),
            self._deliver(down, self.client, Stream.DOWNSTREAM),
            self._watch(),
        )
        taking = [asyncio.ensure_future(each) for each in readers]
        ending = [asyncio.ensure_future(each) for each in ends]
        try:
            done, _ = await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            for each in (*taking, *ending):
                each.cancel()
            await asyncio.gather(*taking, *ending, return_exceptions=True)

    async def _watch(self) -> None:
        """Reset the connection when it is due."""
        while True:
            for stream in Stream:
                for toxic in self.toxics(stream):
                    due = isinstance(toxic, ResetPeer) and toxic.timeout
                    if due is not False and time.monotonic() - self.began >= due:
                        self.proxy.seen.cut += 1
                        self.abort()
                        return
            await asyncio.sleep(_LOOK)

    async def _take(self, reader: asyncio.StreamReader, line: _Line, stream: Stream) -> None:
        """Read one direction; what is delayed does not hold up what is read."""
        due = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(_READ):
                delays = [one for one in self.toxics(stream) if isinstance(one, Latency)]
                wait = sum(one.delay(self.drawn.random) for one in delays)
                due = max(due, time.monotonic() + wait)  # in order, whatever the jitter
                await line.put((due, data))
        await line.put(None)

    async def _deliver(self, line: _Line, writer: asyncio.StreamWriter, stream: Stream) -> None:
        """Send one direction until its end, or until a toxic ends it."""
        while (item := await line.get()) is not None:
            due, data = item
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if not await self._let_pass(stream):
                return
            for piece, pause in self._sliced(data, stream):
                if not await self._send(piece, writer, stream):
                    return
                if pause:
                    await asyncio.sleep(pause)
        for toxic in self.toxics(stream):
            if isinstance(toxic, SlowClose):
                await asyncio.sleep(toxic.delay)

    async def _let_pass(self, stream: Stream) -> bool:
        """Wait while the direction is stalled; false once that has to end the connection."""
        began = time.monotonic()
        while stalls := [one for one in self.toxics(stream) if isinstance(one, Stall)]:
            ends = [one.timeout for one in stalls if one.timeout]
            if ends and time.monotonic() - began >= min(ends):
                self.proxy.seen.cut += 1
                return False
            await asyncio.sleep(_LOOK)
        return True

    def _sliced(self, data: bytes, stream: Stream) -> list[tuple[bytes, float]]:
        for toxic in self.toxics(stream):
            if isinstance(toxic, Slicer):
                return [(piece, toxic.delay) for piece in toxic.pieces(data, self.drawn.random)]
        return [(data, 0.0)]

    async def _send(self, piece: bytes, writer: asyncio.StreamWriter, stream: Stream) -> bool:
        """Send a piece as fast as may be; false once no more may be sent."""
        limits = [one.bytes for one in self.toxics(stream) if isinstance(one, LimitData)]
        left = min(limits, default=len(piece) + self.carried[stream]) - self.carried[stream]
        for toxic in self.toxics(stream):
            if isinstance(toxic, Bandwidth):
                seconds = toxic.seconds(len(piece))
                while seconds is None and toxic in self.toxics(stream):  # noqa: ASYNC110 - a look
                    await asyncio.sleep(_LOOK)
                await asyncio.sleep(seconds or 0.0)
        writer.write(piece[:left] if left < len(piece) else piece)
        await writer.drain()
        sent = max(min(left, len(piece)), 0)
        self.carried[stream] += sent
        if stream is Stream.UPSTREAM:
            self.proxy.seen.upstream_bytes += sent
        else:
            self.proxy.seen.downstream_bytes += sent
        if limits and left <= len(piece):
            self.proxy.seen.cut += 1
            return False
        return True

    def abort(self) -> None:
        """Reset both ends."""
        for writer in (self.client, self.server):
            if writer is None:
                continue
            found: socket.socket | None = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                if found is not None:
                    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    def close(self) -> None:
        """Close both ends."""
        for writer in (self.client, self.server):
            if writer is not None:
                writer.close()
