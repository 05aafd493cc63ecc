"""The keeper: a native thread beside the work that holds the worker's lease.

It renews the lease, fires timers, sweeps up after the dead, and watches the event loop of an I/O
worker. It must go on while the loop is blocked, so it uses a native thread, a native socket and
nothing that gevent has patched; it speaks to people by writing to stderr at once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from async_nodes.core.errors import AsyncNodesError
from async_nodes.execution import attempt, endings
from async_nodes.storage.retention import Retention
from async_nodes.telemetry import work_metrics

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim
    from async_nodes.storage.ends import Ends
    from async_nodes.storage.redis_store import RedisStore

try:
    from gevent.monkey import get_original

    _start_thread = get_original("_thread", "start_new_thread")
    _sleep = get_original("time", "sleep")
    _get_ident = get_original("_thread", "get_ident")
except ImportError:  # a worker without gevent
    from _thread import get_ident as _get_ident
    from _thread import start_new_thread as _start_thread
    from time import sleep as _sleep

TICK = 0.1
SWEEP_EVERY = 1.0
TIDY_EVERY = 30.0
COMPARE_EVERY = 5.0
RELIEVE_EVERY = 5.0
REPORT_STALL_AFTER = 1.0
SHORTEST_STALL, LONGEST_STALL = 2.0, 5.0
NAMELESS_STALL = 30.0
EXIT_BLOCKED = 75  # EX_TEMPFAIL: start me again


class Loop(Protocol):
    """The event loop under watch: when it last turned."""

    last_turn: float


def _nothing(_stalls: int) -> bytes:
    return b""


class Keeper:
    """Keep one worker's promise.

    Args:
        store: a blocking store of its own.
        worker: the worker's id.
        lease_seconds: how long the lease lasts.
        held: returns the ids popped and not started; called from the keeper's thread.
        known: returns the ids of all tasks the worker has; called from the keeper's thread.
        on_lease_lost: told that the worker's tasks were given away.
        on_ended: told of tasks that ended without a worker, for their compensation.
        ends: what is cleaned up after here; renewed with the lease.
        on_schedules: told of schedules that are due, none at most times.
        info: composes what the worker says of itself, given how often its event loop stood still.
        loop: the event loop to watch, or None.

    """

    def __init__(  # noqa: PLR0913 - what it watches, and whom it tells
        self,
        *,
        store: RedisStore,
        worker: str,
        lease_seconds: float,
        held: Callable[[], Sequence[str]],
        known: Callable[[], Collection[str]],
        on_lease_lost: Callable[[], None],
        on_ended: Callable[[Sequence[str]], None],
        on_schedules: Callable[[Sequence[str]], None],
        ends: Ends | None = None,
        info: Callable[[int], bytes] = _nothing,
        loop: Loop | None = None,
    ) -> None:
        self._store = store
        self._retention = Retention(store)
        self._worker = worker
        self._renew_every = lease_seconds / 3
        self._held = held
        self._known = known
        self._unknown: set[str] = set()
        self._on_lease_lost = on_lease_lost
        self._on_ended = on_ended
        self._on_schedules = on_schedules
        self._ends = ends
        self._info = info
        self._stalls = 0
        self._loop = loop
        self._watched = _get_ident()
        self._stopping = False
        self._stopped = False
        self._renewed_at = self._swept_at = self._tidied_at = self._fire_at = 0.0
        self._relieved_at = 0.0
        self._compared_at = time.monotonic()
        self._reported = False
        self._last_tick = time.monotonic()
        self._complained: str | None = None

    @property
    def channel(self) -> str:
        """Return the channel on which this worker hears of cancels."""
        return self._store.keys.control(self._worker)

    def start(self) -> None:
        """Take the lease, then go on in a thread of its own.

        Raises:
            StoreUnavailable: Redis does not answer; a worker without a lease must not start.

        """
        self._store.register(self._worker, self._info(self._stalls))
        self._renewed_at = self._last_tick = time.monotonic()
        _start_thread(self._run, ())

    def stop(self) -> None:
        """Stop the thread and give the lease back: at once with `retire`, else by its end."""
        self._stopping = True
        until = time.monotonic() + 2.0
        while not self._stopped and time.monotonic() < until:
            time.sleep(0.02)
        try:
            if self._store.running(self._worker):
                self._store.expire(self._worker)
                self._store.sweep()
            else:
                self._store.retire(self._worker)
        except AsyncNodesError as error:
            say(f"the lease was not given back ({error.detail}); it ends by itself")

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._tick()
                self._complained = None
            except AsyncNodesError as error:
                if self._complained != error.code:
                    self._complained = error.code
                    say(f"Redis: {error.detail}")
            except Exception as error:  # noqa: BLE001 - the lease must outlive any fault in here
                say(f"keeper: {type(error).__name__}: {error}")
            _sleep(TICK)
        self._stopped = True

    def _tick(self) -> None:
        self._watch_loop()
        now = time.monotonic()
        if now - self._renewed_at >= self._renew_every:
            self._renew(now)
            if self._ends is not None:
                self._ends.renew(self._store)
        if now >= self._fire_at:
            fired = self._store.fire_timers()
            wait = SWEEP_EVERY if fired.next_in is None else fired.next_in
            # Another process may add an earlier timer, so never sleep long.
            self._fire_at = now + min(max(wait, 0.0), 2 * TICK)
            self._tell(fired.ended)
            self._on_schedules(fired.schedules)
        if now - self._swept_at >= SWEEP_EVERY:
            self._swept_at = now
            swept = self._store.sweep()
            work_metrics.rescues.total += swept.rescued
            work_metrics.sent_again.total += swept.sent_again
            if swept.rescued or swept.sent_again:
                say(f"sweep: {swept.rescued} tasks rescued, {swept.sent_again} messages sent again")
            self._tell(swept.ended)
        if now - self._tidied_at >= TIDY_EVERY:
            self._tidied_at = now
            self._store.tidy()
        if now - self._relieved_at >= RELIEVE_EVERY:
            self._relieved_at = now
            if removed := self._retention.relieve():
                say(f"memory runs short: the {removed} oldest ended tasks are no longer kept")
        if now - self._compared_at >= COMPARE_EVERY:
            self._compared_at = now
            self._find_orphans()

    def _find_orphans(self) -> None:
        """Give back what is claimed for this worker and unknown to it, at two looks in a row.

        A claim whose answer found nobody any more would otherwise last as long as the lease.
        """
        unknown = set(self._store.running(self._worker)).difference(self._known())
        for task_id in sorted(unknown & self._unknown):
            verdict = self._store.lost(task_id, worker=self._worker, dispatch=0, isolated=False)
            say(f"task {task_id} was claimed here and nobody ran it: {verdict}")
            if verdict != "lost":
                self._tell([task_id])
        self._unknown = unknown

    def _renew(self, now: float) -> None:
        info = self._info(self._stalls)
        if self._store.renew(self._worker, self._held(), info):
            self._renewed_at = now
            return
        say("the lease was lost: its tasks run elsewhere now")
        work_metrics.lease_losses.total += 1
        self._on_lease_lost()
        self._store.register(self._worker, info)
        self._renewed_at = now

    def _tell(self, ended: Sequence[str]) -> None:
        if ended:
            self._on_ended(ended)

    # -- the watch over the event loop -------------------------------------------------------

    def _watch_loop(self) -> None:
        now = time.monotonic()
        overslept = now - self._last_tick > REPORT_STALL_AFTER
        self._last_tick = now
        if self._loop is None:
            return
        if overslept:
            # The whole process stood still (a stopped machine, a call that holds the
            # interpreter): the loop gets its turn before anything is concluded.
            self._loop.last_turn = max(self._loop.last_turn, now - REPORT_STALL_AFTER / 2)
        stalled = now - self._loop.last_turn
        if stalled < REPORT_STALL_AFTER:
            self._reported = False
            return
        claim = self._culprit()
        if not self._reported:
            self._reported = True
            self._stalls += 1
            work_metrics.stalls.total += 1
            say(f"the event loop stands still for {stalled:.1f} s in {_named(claim)}")
        if stalled >= _patience(claim):
            self._replace(claim, stalled)

    def _culprit(self) -> Claim | None:
        """Return the claim of the body that the watched thread is executing right now."""
        frame: FrameType | None = sys._current_frames().get(self._watched)  # noqa: SLF001 - the way
        while frame is not None:
            if frame.f_code is attempt.run_attempt.__code__:
                claim: Claim = frame.f_locals["claim"]
                return claim
            frame = frame.f_back
        return None

    def _replace(self, claim: Claim | None, stalled: float) -> None:
        """End the blocking task, give the neighbours away, and end this process."""
        say(f"ending this process after {stalled:.1f} s: {_named(claim)} blocked its event loop")
        try:
            if claim is not None:
                self._end_blocked(claim, stalled)
            self._store.expire(self._worker)
            self._store.sweep()
        except AsyncNodesError as error:
            say(f"Redis: {error.detail}; the lease recovers the tasks")
        os._exit(EXIT_BLOCKED)

    def _end_blocked(self, claim: Claim, stalled: float) -> None:
        """End a task whose clean-up, if there is one, is left to the other workers."""
        if self._ends is not None:
            self._ends.leave(self._store, claim.task_id, seconds=3 * self._renew_every)
        self._store.finish(claim.task_id, claim.fence, endings.blocked(stalled))
        if self._ends is not None:
            self._ends.leave(self._store, claim.task_id)


def _named(claim: Claim | None) -> str:
    if claim is None:
        return "code outside of any node"
    from async_nodes.execution.job import node_of

    return f"node {node_of(claim.private)!r} of task {claim.task_id}"


def _patience(claim: Claim | None) -> float:
    if claim is None:
        return NAMELESS_STALL
    return min(max(claim.timeout_ms / 1000, SHORTEST_STALL), LONGEST_STALL)


def say(text: str) -> None:
    """Write one line to stderr without any lock, buffer or event loop in between."""
    os.write(2, f"async-nodes[{os.getpid()}]: {text}\n".encode("utf-8", "replace"))
