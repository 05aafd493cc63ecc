"""What a worker says of itself: composed from plain counters each time its lease is renewed.

The pools add one to a number per task; everything else happens here, in the keeper's thread, a few
times a minute.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from async_nodes.core.priority import LISTS
from async_nodes.version import __version__

WINDOW: Final = 60.0
"""Seconds that a rate looks back on; what is older counts less and less."""

Counts = dict[str, int]
"""Tasks begun since the start of the process, by list."""


def no_counts() -> Counts:
    """Return the counters of a pool that has begun nothing."""
    return dict.fromkeys(LISTS, 0)


@dataclass(slots=True)
class Meter:
    """Tell the rate of a count that only rises: an exponentially weighted mean of late.

    The weights are those of `WINDOW`; the mean is divided by their sum, so that it is right from
    the first reading on.
    """

    _read_at: float
    _total: int = 0
    _sum: float = 0.0
    _weight: float = 0.0

    def rate(self, total: int, now: float) -> float:
        """Take a reading; return the count's rise per second.

        Args:
            total: the count.
            now: seconds that only rise.

        """
        passed = now - self._read_at
        if passed > 0:
            share = 1 - math.exp(-passed / WINDOW)
            risen = (total - self._total) / passed
            self._sum += share * (risen - self._sum)
            self._weight += share * (1 - self._weight)
            self._total, self._read_at = total, now
        return self._sum / self._weight if self._weight else 0.0


@dataclass(slots=True, kw_only=True)
class Introspection:
    """Know what there is to say of one worker.

    Args:
        kind: ``io`` or ``cpu``.
        concurrency: bodies at once.
        transport: how messages come, ``fast`` or ``celery``.
        lists: names of `priority.LISTS` that it takes from.
        nodes: how many nodes it knows.
        counts: the pool's.
        clock: seconds that only rise.
        wall: seconds since 1970.

    """

    kind: str
    concurrency: int
    transport: str
    lists: Sequence[str]
    nodes: int
    counts: Mapping[str, int]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _started_ms: int = field(init=False)
    _meters: dict[str, Meter] = field(init=False)

    def __post_init__(self) -> None:
        """Begin to measure."""
        self._started_ms = int(self.wall() * 1000)
        self._meters = {name: Meter(self.clock()) for name in self.lists}

    def compose(self, stalls: int) -> bytes:
        """Return what the worker says of itself now, as JSON.

        Args:
            stalls: how often its event loop stood still.

        """
        now = self.clock()
        known = {
            "kind": self.kind,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": __version__,
            "started_ms": self._started_ms,
            "concurrency": self.concurrency,
            "transport": self.transport,
            "nodes": self.nodes,
            "stalls": stalls,
            "rates": {
                name: round(meter.rate(self.counts[name], now), 3)
                for name, meter in self._meters.items()
            },
        }
        return json.dumps(known, separators=(",", ":")).encode()
