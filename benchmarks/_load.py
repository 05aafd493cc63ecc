"""The load client: one process, raw keep-alive sockets, a closed loop over each of them.

It is the same for both sides and cheap, so that the machine's CPU goes to what is measured.
"""

from __future__ import annotations

import heapq
import re
import select
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from benchmarks._processes import BenchmarkError
from benchmarks._sides import STATE, TASK_ID, Side, holds_inputs, inputs_of

FIRST_POLL: Final = 0.005
LONGEST_POLL: Final = 1.0
OK: Final = 200
ACCEPTED: Final = 202
EXCERPT: Final = 300
RECEIVE: Final = 1 << 16

_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:\s*(\d+)")

Reply = tuple[int, bytes]
"""HTTP status and body."""

Talk = Generator[bytes | tuple[bytes, ...] | float, Reply, None]
"""What a connection does: it sends the bytes yielded (a tuple: as packets of their own) and gets
the reply, or pauses for seconds."""


@dataclass(slots=True)
class Load:
    """Hold what the client saw.

    Attributes:
        latencies: seconds; per task from the submit to the reply that showed the end, or per read.
        polls: reads sent.
        ids: the tasks, in the order they ended.
        seconds: the whole, first request to last reply.
        client_cpu: CPU seconds of the client.

    """

    latencies: list[float] = field(default_factory=list)
    polls: int = 0
    ids: list[bytes] = field(default_factory=list)
    seconds: float = 0.0
    client_cpu: float = 0.0


def live(side: Side, tasks: int, connections: int, *, limit: float) -> Load:
    """Live ``tasks`` lives of a task, ``connections`` at a time.

    A life is a submit, and reads until one shows the end: the first `FIRST_POLL` seconds after
    the submit's reply, each next one after twice the pause, as a well-behaved client does it.

    Raises:
        BenchmarkError: a task did not succeed with the right output, or ``limit`` seconds passed.

    """
    load, numbers = Load(), iter(range(1, tasks + 1))
    run_talks(side.port, [_lives(side, numbers, load) for _ in range(connections)], load, limit)
    return load


def _lives(side: Side, numbers: Iterator[int], load: Load) -> Talk:
    for number in numbers:
        started = time.perf_counter()
        status, body = yield side.dialect.submit(side.port, inputs_of(number))
        found = TASK_ID.search(body)
        if status != ACCEPTED or found is None:
            raise unexpected("submit", status, body)
        request, pause = side.dialect.poll(side.port, found[1]), FIRST_POLL
        while True:
            yield pause
            status, body = yield request
            load.polls += 1
            if _is_over(side, number, status, body):
                break
            pause = min(pause * 2, LONGEST_POLL)
        load.latencies.append(time.perf_counter() - started)
        load.ids.append(found[1])


def _is_over(side: Side, number: int, status: int, body: bytes) -> bool:
    state = STATE.search(body)
    if status == OK and state is not None:
        if state[1] in side.dialect.waiting:
            return False
        if state[1] == side.dialect.success and holds_inputs(body, number):
            return True
    raise unexpected("read", status, body)


def read(
    side: Side, requests: Sequence[bytes], times: int, connections: int, *, limit: float
) -> Load:
    """Send ``times`` reads, taken from ``requests`` in turn, as fast as the replies come.

    Raises:
        BenchmarkError: a reply is not 200, or ``limit`` seconds passed.

    """
    load, turns = Load(), iter(range(times))
    run_talks(side.port, [_reads(requests, turns, load) for _ in range(connections)], load, limit)
    return load


def _reads(requests: Sequence[bytes], turns: Iterator[int], load: Load) -> Talk:
    for turn in turns:
        started = time.perf_counter()
        status, body = yield requests[turn % len(requests)]
        if status != OK:
            raise unexpected("read", status, body)
        load.polls += 1
        load.latencies.append(time.perf_counter() - started)


def submit(side: Side, times: int, connections: int, *, limit: float, apart: bool = False) -> Load:
    """Submit ``times`` tasks as fast as the replies come.

    Args:
        side: where.
        times: how many.
        connections: how many at a time.
        limit: seconds.
        apart: whether head and body leave as packets of their own, as many clients send them.

    Raises:
        BenchmarkError: a task was not accepted, or ``limit`` seconds passed.

    """
    load, numbers = Load(), iter(range(1, times + 1))
    talks = [_submits(side, numbers, load, apart=apart) for _ in range(connections)]
    run_talks(side.port, talks, load, limit)
    return load


def _submits(side: Side, numbers: Iterator[int], load: Load, *, apart: bool) -> Talk:
    for number in numbers:
        request = side.dialect.submit(side.port, inputs_of(number))
        end = request.index(b"\r\n\r\n") + 4
        started = time.perf_counter()
        status, body = yield (request[:end], request[end:]) if apart else request
        found = TASK_ID.search(body)
        if status != ACCEPTED or found is None:
            raise unexpected("submit", status, body)
        load.ids.append(found[1])
        load.latencies.append(time.perf_counter() - started)


def unexpected(what: str, status: int, body: bytes) -> BenchmarkError:
    """Return what a reply that is not the one expected ends a benchmark with."""
    return BenchmarkError(f"a {what} was answered {status}: {body[:EXCERPT]!r}")


# -- the loop --------------------------------------------------------------------------------------


class Connection:
    """One socket and what has come over it so far."""

    def __init__(self, port: int) -> None:
        self.link = socket.create_connection(("127.0.0.1", port))
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def receive(self) -> Reply | None:
        """Read what is there; return the reply once it is whole."""
        data = self.link.recv(RECEIVE)
        if not data:
            raise BenchmarkError("the server closed a connection")
        self._buffer += data
        reply = parse(self._buffer)
        if reply is not None:
            self._buffer = b""
        return reply


class _Talker(Connection):
    """A connection and what is talked on it."""

    def __init__(self, port: int, talk: Talk) -> None:
        super().__init__(port)
        self.talk = talk


def parse(data: bytes) -> Reply | None:
    """Return a whole HTTP/1.1 reply, None when some of it is missing.

    Raises:
        BenchmarkError: it has no Content-Length: neither side answers that way.

    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    length = _LENGTH.search(data, 0, end)
    if length is None:
        raise BenchmarkError(f"a reply without Content-Length: {data[:EXCERPT]!r}")
    body = data[end + 4 :]
    return (int(data[9:12]), body) if len(body) >= int(length[1]) else None


def run_talks(port: int, talks: Sequence[Talk], load: Load, limit: float) -> None:
    """Hold all talks at once until each has ended; time them."""
    with ExitStack() as links, select.epoll() as poller:
        loop = _Loop(poller)
        for talk in talks:
            connection = _Talker(port, talk)
            links.callback(connection.link.close)
            loop.add(connection)
        cpu, started = time.process_time(), time.perf_counter()
        loop.run(started + limit)
        load.seconds = time.perf_counter() - started
        load.client_cpu = time.process_time() - cpu


class _Loop:
    """Wake each connection when its reply is there or its pause is over."""

    def __init__(self, poller: select.epoll) -> None:
        self._poller = poller
        self._connections: dict[int, _Talker] = {}
        self._pauses: list[tuple[float, int, _Talker]] = []
        self._turns = count()  # orders pauses that end together

    def add(self, connection: _Talker) -> None:
        self._connections[connection.link.fileno()] = connection
        self._poller.register(connection.link, select.EPOLLIN)

    def run(self, end: float) -> None:
        for connection in list(self._connections.values()):
            self._step(connection, None)
        while self._connections:
            now = time.perf_counter()
            if now > end:
                raise BenchmarkError("a round took longer than it may: the server does not keep up")
            while self._pauses and self._pauses[0][0] <= now:
                self._step(heapq.heappop(self._pauses)[2], (0, b""))
            pause = self._pauses[0][0] - now if self._pauses else 1.0
            for number, _ in self._poller.poll(max(0.0, min(pause, 1.0))):
                connection = self._connections[number]
                reply = connection.receive()
                if reply is not None:
                    self._step(connection, reply)

    def _step(self, connection: _Talker, reply: Reply | None) -> None:
        """Give a reply (None at the start) and do what the talk asks for next."""
        try:
            wanted = next(connection.talk) if reply is None else connection.talk.send(reply)
        except StopIteration:
            del self._connections[connection.link.fileno()]
            self._poller.unregister(connection.link)
            return
        if isinstance(wanted, float):
            due = time.perf_counter() + wanted
            heapq.heappush(self._pauses, (due, next(self._turns), connection))
            return
        for piece in wanted if isinstance(wanted, tuple) else (wanted,):
            connection.link.sendall(piece)
