"""The group commit: one flusher greenlet per process, whatever waits goes out together.

Nothing is tuned. A flush carries what gathered while the previous one was in flight, so an idle
process sends single rows at once and a busy one sends hundreds per script call.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import gevent
from gevent.event import Event
from gevent.hub import get_hub
from greenlet import getcurrent

from async_nodes.storage.commit import (
    SUBMITS,
    Link,
    Pending,
    Row,
    elsewhere,
    given_up,
    passes,
    run_many,
    settled,
    size_of,
    take_batch,
    verdict_of,
)
from async_nodes.storage.redis_errors import NotSent, StoreBusy, StoreUnavailable
from async_nodes.storage.script_library import Script
from async_nodes.telemetry.redis_metrics import commit_rows

ORDER = ("accept", "submit", "claim", "apply", "complete", "finish", "cancel", "lost")
"""Scripts in the order one flush runs them: a task's chunks come before its end. All others
follow."""

MAX_WAITING = 20_000
MAX_WAITING_BYTES = 64 << 20
"""Rows, and bytes in them, that may wait for a slow server; a single row beyond is taken when
nothing else waits. What a worker has to say of its tasks is bounded by its slots, and is never
refused for its size: a result would be lost."""

_FLUSH_TIMEOUT = 5.0
_AT_WORK, _HUNG = 0.5, 0.05
_TOO_SLOW = "not sent in time: the store is slow to answer"
_PAUSE_FIRST, _PAUSE_MOST = 0.02, 0.25


class _Together:
    """Wake one greenlet once the last of its rows is answered."""

    __slots__ = ("_left", "greenlet")

    def __init__(self, rows: int, greenlet: Any) -> None:
        self._left = rows
        self.greenlet = greenlet

    def switch(self) -> None:
        """Count one answered row."""
        self._left -= 1
        if not self._left and self.greenlet is not None:
            self.greenlet.switch()


class GroupCommit:
    """Gather rows from all greenlets and send them together.

    Args:
        link: the process's shared connection.
        scripts: the rendered scripts.
        base: common start of all keys.
        flush_timeout: seconds one flush may take before its rows count as unknown.
        least_left: seconds of its patience that a row must have left when it is sent; else it is
            refused. Where connections are few and the server is slow, one that has less would cut
            the time of all that go with it.

    """

    def __init__(
        self,
        link: Link,
        scripts: Mapping[str, Script],
        base: str,
        *,
        flush_timeout: float = _FLUSH_TIMEOUT,
        least_left: float = 0.0,
    ) -> None:
        self._link = link
        self._scripts = scripts
        self._base = base
        self._flush_timeout = flush_timeout
        self._least_left = least_left
        self._queues: dict[str, deque[Pending]] = {name: deque() for name in ORDER}
        self._waiting = 0
        self._waiting_bytes = 0
        self._is_alive = True
        self._work = Event()
        self._flusher: gevent.Greenlet | None = None
        self._hub = get_hub()
        self._answered: list[Pending] = []
        self.flushes = 0
        self.rows = 0

    def commit(self, script: str, row: Row, *, patience: float) -> Any:
        """Return the row's verdict; only the calling greenlet waits.

        Raises:
            TypeError: the row cannot be sent, and would keep others from being sent with it.
            StoreBusy: too many rows wait already.
            StoreUnavailable: no verdict within `patience` seconds.

        """
        until = time.monotonic() + patience
        pending = Pending(script, row, until, size_of(row), waiter=getcurrent())
        self._put([pending])
        try:
            # No timer: the flusher answers every row within its patience and one flush.
            self._hub.switch()
        finally:
            pending.waiter = None  # killed or answered: whoever comes later finds nobody to wake
        return verdict_of(pending.reply)

    def commit_many(self, script: str, rows: Sequence[Row], *, patience: float) -> list[Any]:
        """Return a verdict or an error for each row; the calling greenlet waits once for all.

        Raises:
            TypeError: a row cannot be sent.
            StoreBusy: too many rows wait already.

        """
        if not rows:
            return []
        until = time.monotonic() + patience
        together = _Together(len(rows), getcurrent())
        waiting = [Pending(script, row, until, size_of(row), waiter=together) for row in rows]
        self._put(waiting)
        try:
            self._hub.switch()
        finally:
            together.greenlet = None
        return [settled(pending.reply) for pending in waiting]

    def _put(self, rows: Sequence[Pending]) -> None:
        size = sum([row.size for row in rows])
        if self._waiting >= MAX_WAITING:
            raise StoreBusy(f"{self._waiting} rows wait for the store")
        if (
            rows[0].script in SUBMITS
            and self._waiting
            and self._waiting_bytes + size > MAX_WAITING_BYTES
        ):
            raise StoreBusy(f"{self._waiting_bytes:,} bytes wait for the store")
        self._waiting += len(rows)
        self._waiting_bytes += size
        self._queues.setdefault(rows[0].script, deque()).extend(rows)
        if self._flusher is None or self._flusher.dead:
            self._flusher = gevent.spawn(self._run)
        if not self._work.is_set():
            self._work.set()

    def _run(self) -> None:
        pause = _PAUSE_FIRST
        while True:
            self._work.wait()
            if self._least_left:
                self._give_up_late(self._least_left)
            batches = [batch for queue in self._queues.values() if (batch := take_batch(queue))]
            if not batches:
                self._work.clear()
                continue
            try:
                settled = self._flush(batches)
            except StoreUnavailable as error:
                self._put_back(batches, error)
                settled = False
            except Exception as error:  # noqa: BLE001 - a row nobody can pack is its senders' fault
                for pending in (pending for batch in batches for pending in batch):
                    self._answer(pending, error)
                settled = True
            if settled:
                pause = _PAUSE_FIRST
            else:
                self._give_up_late()
                gevent.sleep(self._at_most(pause))
                pause = min(pause * 2, _PAUSE_MOST)

    def _flush(self, batches: list[list[Pending]]) -> bool:
        """Send the batches and answer their rows; false if the server put some of them off."""
        calls = []
        for batch in batches:
            args = [argument for pending in batch for argument in pending.row]
            calls.append((self._scripts[batch[0].script], self._base, args))
        shortest = min(pending.until for batch in batches for pending in batch)
        # Who has waited for long among many waits for a server that works: it gets the time that
        # work takes. One that has just failed to answer gets none.
        least = _AT_WORK if self._is_alive else _HUNG
        timeout = max(min(self._flush_timeout, shortest - time.monotonic()), least)
        self._is_alive = False
        replies = run_many(self._link, calls, timeout=timeout)
        self._is_alive = True
        self.flushes += 1
        settled = True
        for batch, reply in zip(batches, replies, strict=True):
            self.rows += len(batch)
            commit_rows.observe(len(batch))
            put_off = []
            for index, pending in enumerate(batch):
                verdict = reply if isinstance(reply, Exception) else reply[index]
                if passes(verdict, pending.script) and time.monotonic() < pending.until:
                    put_off.append(pending)
                    if (word := elsewhere(verdict)) is not None:
                        self._link.doubt(word)
                else:
                    self._answer(pending, verdict)
            self._queues[batch[0].script].extendleft(reversed(put_off))
            settled = settled and not put_off
        return settled

    def _answer(self, pending: Pending, reply: object) -> None:
        self._waiting -= 1
        self._waiting_bytes -= pending.size
        pending.reply = reply
        if not self._answered:
            self._hub.loop.run_callback(self._wake)
        self._answered.append(pending)

    def _wake(self) -> None:
        """Go on with everybody who has an answer; runs in the hub, once for a whole flush."""
        answered, self._answered = self._answered, []
        for pending in answered:
            if pending.waiter is not None:
                pending.waiter.switch()

    def _give_up_late(self, left: float = 0.0) -> None:
        """Answer those whose patience ended, or has no more left, while others were being sent.

        A flush takes only so many bytes: without this each of them would wait for one of its own.
        """
        now = time.monotonic() + left
        for script, queue in self._queues.items():
            if not any(pending.until <= now for pending in queue):
                continue
            kept = [pending for pending in queue if pending.until > now]
            for pending in queue:
                if pending.until <= now:
                    self._answer(pending, given_up(pending, NotSent(_TOO_SLOW), now))
            self._queues[script] = deque(kept)

    def _at_most(self, pause: float) -> float:
        """Return a pause, cut short where somebody's patience ends earlier."""
        first = min((queue[0].until for queue in self._queues.values() if queue), default=None)
        if first is None:
            return pause
        return min(pause, max(first - time.monotonic(), _PAUSE_FIRST))

    def _put_back(self, batches: list[list[Pending]], error: StoreUnavailable) -> None:
        now = time.monotonic()
        for batch in batches:
            for pending in reversed(batch):
                final = given_up(pending, error, now)
                if final is None:
                    self._queues[pending.script].appendleft(pending)
                else:
                    self._answer(pending, final)
