"""What the connections to Redis of this process have done, added up over all of them.

A connection counts in plain numbers of its own, and is named here once. What a closed one has done
stays counted.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from async_nodes.telemetry.registry import REGISTRY, Read, Rows, histograms

commit_rows: Final = histograms("async_nodes_group_commit_rows")()
"""The rows of each flush of the group commit."""

_NAMES: Final = (
    "async_nodes_redis_round_trips_total",
    "async_nodes_redis_sends_total",
    "async_nodes_redis_errors_total",
    "async_nodes_redis_connects_total",
    "async_nodes_redis_waiting",
)
_COUNTED: Final = ("calls", "sends", "timeouts", "refused", "connects", "cuts")


class Stats(Protocol):
    """What a connection has counted so far."""

    calls: int
    sends: int
    timeouts: int
    refused: int
    connects: int
    cuts: int
    waiting: int


@dataclass(slots=True)
class LinkStats:
    """Count for a connection that has no figures of its own."""

    calls: int = 0
    sends: int = 0
    timeouts: int = 0
    refused: int = 0
    connects: int = 0
    cuts: int = 0
    waiting: int = 0


class Counting(Protocol):
    """A connection that counts."""

    @property
    def stats(self) -> Stats:
        """Return what it has counted so far."""
        ...


class Connections:
    """Add up what several connections count."""

    def __init__(self) -> None:
        self._living: dict[int, weakref.ref[Counting]] = {}
        self._before = dict.fromkeys(_COUNTED, 0)

    def add(self, connection: Counting) -> None:
        """Count a connection in from now on, without keeping it alive."""
        self._living[id(connection)] = weakref.ref(connection)

    def closed(self, connection: Counting) -> None:
        """Keep what a connection has done, which will do no more."""
        if self._living.pop(id(connection), None) is not None:
            last = connection.stats
            for name in _COUNTED:
                self._before[name] += getattr(last, name)

    def total(self) -> tuple[dict[str, int], int]:
        """Return the counts, and how many replies are awaited now."""
        sums, waiting = dict(self._before), 0
        for key, found in list(self._living.items()):
            connection = found()
            if connection is None:
                self._living.pop(key, None)
                continue
            now = connection.stats
            waiting += now.waiting
            for name in _COUNTED:
                sums[name] += getattr(now, name)
        return sums, waiting

    def read(self) -> Iterator[tuple[str, Rows]]:
        """Return the metrics."""
        sums, waiting = self.total()
        kinds = (("timeout", "timeouts"), ("refused", "refused"), ("cut", "cuts"))
        yield "async_nodes_redis_round_trips_total", [((), sums["calls"])]
        yield "async_nodes_redis_sends_total", [((), sums["sends"])]
        yield "async_nodes_redis_errors_total", [((kind,), sums[name]) for kind, name in kinds]
        yield "async_nodes_redis_connects_total", [((), sums["connects"])]
        yield "async_nodes_redis_waiting", [((), waiting)]


CONNECTIONS: Final = Connections()
"""Those of this process."""

REGISTRY.register(Read(_NAMES, CONNECTIONS.read))
