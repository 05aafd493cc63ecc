"""What the children of a process count, handed to it over a pipe.

A child writes what has come since it wrote last, once a second at most, and the parent adds it to
its own numbers: one page shows all, totals never fall, and a child that dies leaves nothing behind
but what it did. A line is shorter than what the system writes in one piece, so the lines of
several children do not mix; a full pipe is tried again later and holds up no work.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

from prometheus_client.samples import Exemplar

from async_nodes.telemetry.registry import TALLIES, counts, histograms
from async_nodes.telemetry.tallies import Count

EVERY: Final = 1.0
"""Seconds for which a child gathers before it writes."""

MOST: Final = select.PIPE_BUF


class Pipe:
    """Lead from the children of a process to it. To be made before they are forked."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.write_end, False)

    def listen(self) -> None:
        """Add up in a thread what the children write."""
        threading.Thread(target=self._listen, name="metrics of children", daemon=True).start()

    def _listen(self) -> None:
        with os.fdopen(self.read_end, "rb") as lines:
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):  # half a line of a killed child
                    add(json.loads(line))


def add(row: list[Any]) -> None:
    """Add what a child's line says to this process's numbers."""
    name, labels, what = row
    if isinstance(what, int):
        counts(name)(*labels).inc(what)
        return
    risen, seconds, exemplars = what
    mine = histograms(name)(*labels)
    mine.seconds += seconds
    for index, number in risen:
        mine.counts[index] += number
    for index, trace_id, value, at in exemplars:
        mine.exemplars[index] = Exemplar({"trace_id": trace_id}, value, at)


class _News(NamedTuple):
    """What one metric of a child has more than was told: for the parent, and to remember."""

    name: str
    labels: tuple[str, ...]
    what: Any
    now: Any

    @property
    def line(self) -> bytes:
        return json.dumps([self.name, self.labels, self.what]).encode() + b"\n"


class Reporter:
    """Write what this child has counted since it began.

    Args:
        descriptor: the pipe's end to write to.

    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._told: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        for news in self._news():  # what the parent had counted before the fork is not ours
            self._told[news.name, news.labels] = news.now

    def soon(self) -> None:
        """See to it that what was counted just now is written within a second."""
        if self._timer is None:
            self._timer = threading.Timer(EVERY, self.now)
            self._timer.daemon = True
            self._timer.start()

    def now(self) -> None:
        """Write what is new; what the pipe has no room for is written next time."""
        self._timer = None
        with self._lock:
            for news in self._news():
                line = news.line
                if len(line) <= MOST:
                    try:
                        os.write(self._descriptor, line)
                    except OSError:  # full, or the parent is gone
                        return
                self._told[news.name, news.labels] = news.now

    def _news(self) -> Iterator[_News]:
        for name, tally in list(TALLIES.items()):
            for labels, child in tally.shown():
                before = self._told.get((name, labels))
                risen = _risen_count if isinstance(child, Count) else _risen_durations
                what, now = risen(child, before)
                if what is not None:
                    yield _News(name, labels, what, now)


def _risen_count(count: Any, before: int | None) -> tuple[Any, Any]:
    now = count.total
    return (now - (before or 0)) or None, now


def _risen_durations(durations: Any, before: Any) -> tuple[Any, Any]:
    now = (list(durations.counts), durations.seconds, dict(durations.exemplars))
    counted, seconds, exemplars = before or ([0] * len(now[0]), 0.0, {})
    risen = [(at, n - m) for at, (n, m) in enumerate(zip(now[0], counted, strict=True)) if n > m]
    if not risen:
        return None, now
    shown = [
        (at, one.labels["trace_id"], one.value, one.timestamp)
        for at, one in now[2].items()
        if exemplars.get(at) is not one
    ]
    return [risen, now[1] - seconds, shown], now
