"""An open load: requests leave at a fixed rate, whether or not the replies keep up.

A closed loop asks less of a slow server; here what comes late counts from the moment it was due.
"""

from __future__ import annotations

import select
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from benchmarks._load import OK, Connection, Load, unexpected
from benchmarks._processes import BenchmarkError

LONGEST_WAIT: Final = 0.001
"""Seconds in the poller at a time: what is due may be late by so much on the client's account."""


def offer(
    port: int,
    requests: Sequence[bytes],
    *,
    rate: float,
    seconds: float,
    connections: int,
    limit: float,
) -> Load:
    """Send reads at a rate for some seconds; latencies count from when each was due.

    Raises:
        BenchmarkError: a reply is not 200, or ``limit`` seconds passed before all had come.

    """
    load, total = Load(), int(rate * seconds)
    with ExitStack() as links, select.epoll() as poller:
        free: deque[Connection] = deque()
        known: dict[int, Connection] = {}
        for _ in range(connections):
            connection = Connection(port)
            links.callback(connection.link.close)
            poller.register(connection.link, select.EPOLLIN)
            known[connection.link.fileno()] = connection
            free.append(connection)
        due: dict[int, float] = {}
        cpu, started, sent = time.process_time(), time.perf_counter(), 0
        while load.polls < total:
            now = time.perf_counter()
            if now > started + limit:
                raise BenchmarkError(f"the replies to {rate:.0f} reads/s did not come in time")
            while free and sent < total and (at := started + sent / rate) <= now:
                connection = free.popleft()
                due[connection.link.fileno()] = at
                connection.link.sendall(requests[sent % len(requests)])
                sent += 1
            for number, _ in poller.poll(LONGEST_WAIT):
                connection = known[number]
                reply = connection.receive()
                if reply is None:
                    continue
                if reply[0] != OK:
                    raise unexpected("read", *reply)
                load.latencies.append(time.perf_counter() - due[number])
                load.polls += 1
                free.append(connection)
        load.seconds = time.perf_counter() - started
        load.client_cpu = time.process_time() - cpu
    return load
