"""The one Redis connection all greenlets of a process share (part of the step *store*).

Commands written during one turn of gevent's loop leave in one send; replies come back in the same
order and wake their callers straight from the hub. It needs a process patched by gevent, knows
nothing of keys or scripts, and never sends a command twice: whoever gets `OutcomeUnknown` decides.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import deque
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from gevent.exceptions import InvalidSwitchError
from gevent.hub import get_hub
from gevent.monkey import is_module_patched
from greenlet import getcurrent

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.sentinel_urls import is_sentinel
from async_nodes.storage.link_connector import LinkConnector
from async_nodes.storage.pipeline_link import Call, Link, LinkBrokenError
from async_nodes.storage.redis_errors import (
    READONLY,
    NotSent,
    OutcomeUnknown,
    StoreBusy,
    answered,
)
from async_nodes.storage.shared_commands import pack_shared
from async_nodes.telemetry.redis_metrics import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from async_nodes.storage.resp import Argument, Reply

Then: TypeAlias = "Callable[[Reply | Exception], None]"

_log = logging.getLogger(__name__)

# Granularity of time-outs: one timer for all calls, because a timer each would cost more than the
# call itself.
_TICK_SECONDS = 0.02
# A server that stays a replica is not left more often than this: others' reads travel along.
_DOUBT_SECONDS = 1.0


@dataclass(slots=True)
class PipelineStats:
    """Count what a connection has done since the process started.

    Attributes:
        calls: calls queued (a `call_many` is one).
        sends: system calls that carried them; calls / sends is the batching factor.
        timeouts: calls whose caller stopped waiting.
        refused: calls refused with `StoreBusy`.
        connects, cuts: connections made and lost.
        waiting: replies awaited now.

    """

    calls: int = 0
    sends: int = 0
    timeouts: int = 0
    refused: int = 0
    connects: int = 0
    cuts: int = 0
    waiting: int = 0


class _Told:
    """Stand where a greenlet waits for a call, and pass its outcome on."""

    __slots__ = ("_then",)

    def __init__(self, then: Then) -> None:
        self._then = then

    def switch(self, call: Call) -> None:
        """Go on."""
        self._then(call.failure() or call.replies[0])


class PipelinedConnection:
    """Share one Redis connection among all greenlets of a process.

    Connects at the first call, and again in the background whenever the connection is lost. Use it
    from greenlets of one thread only; other threads and forked children take a
    `BlockingConnection`.

    Args:
        url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, or `sentinel://`.
        timeout: seconds a call waits when it names no other (20 ms granularity).
        connect_timeout: seconds for each step of connecting.
        stall_timeout: seconds without a byte from the server, while replies are due, after which
            the connection counts as hung and is dropped.
        max_calls: commands that may wait for their reply at a time.
        max_bytes: bytes that may wait to be sent. A single call beyond either bound is taken when
            nothing else waits.
        client_name: shown by CLIENT LIST.

    Raises:
        AsyncNodesError: `unpatched` when gevent has not patched sockets, `invalid_setting` when
            the URL is wrong.

    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 0.8,
        connect_timeout: float = 1.0,
        stall_timeout: float = 3.0,
        max_calls: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        client_name: str | None = None,
    ) -> None:
        if not is_module_patched("socket"):
            raise AsyncNodesError(
                "unpatched",
                "PipelinedConnection needs gevent.monkey.patch_all() before any other import; "
                "elsewhere use BlockingConnection",
            )
        self._connector = LinkConnector(
            url, connect_timeout=connect_timeout, client_name=client_name, on_link=self._adopt
        )
        self._timeout = timeout
        self._stall_timeout = stall_timeout
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._pid = os.getpid()
        self._hub: Any = get_hub()
        self._timer: Any = self._hub.loop.timer(_TICK_SECONDS, _TICK_SECONDS)
        self._link: Link | None = None
        self._queue: deque[Call] = deque()
        self._queued_bytes = 0
        self._waiting = 0
        self._next_deadline = float("inf")
        self._flush_due = False
        self._ticking = False
        self._closed = False
        self._adopted_at = 0.0
        self._has_sentinels = is_sentinel(url)
        self._stats = PipelineStats()
        CONNECTIONS.add(self)

    # -- for callers -------------------------------------------------------------------------

    def call(self, *args: Argument, timeout: float | None = None) -> Reply:
        """Send one command and return its reply; only the calling greenlet waits.

        Args:
            args: the command, one item per word.
            timeout: seconds to wait for the reply, and for the connection when it is down.

        Raises:
            ResponseError: the server answered with an error (subclass by its prefix).
            NotSent: the command did not leave this process.
            OutcomeUnknown: it may have, and its reply will not be read.
            StoreBusy: too much waits already.
            TypeError, ValueError: the command cannot be packed or shared.

        """
        return answered(self._exchange(pack_shared(args), 1, timeout)[0], self.doubt)

    def call_many(
        self, commands: Sequence[Sequence[Argument]], *, timeout: float | None = None
    ) -> list[Reply]:
        """Send commands back to back and return their replies, error replies as values.

        One write and one wake-up. Other callers' commands run before or after, not in between; it
        is no transaction. When it raises, any prefix of the commands may have run.
        """
        if not commands:
            return []
        payload = b"".join([pack_shared(args) for args in commands])
        return self._exchange(payload, len(commands), timeout)

    def post(self, *args: Argument) -> None:
        """Queue one command and return at once; its failure is only logged.

        Raises:
            StoreBusy: too much waits already.
            NotSent: the connection was closed.

        """
        self._enqueue(pack_shared(args), 1, None, None).posted = True

    def ask(self, *args: Argument, then: Then, timeout: float | None = None) -> None:
        """Queue one command and return at once.

        Args:
            args: the command, one item per word.
            then: called in the hub, once, with the reply or with what `call` would have raised; it
                must neither wait nor raise.
            timeout: as `call` takes it.

        Raises:
            StoreBusy: too much waits already.
            NotSent: the connection was closed.

        """
        self._enqueue(pack_shared(args), 1, timeout, _Told(then))

    def doubt(self, word: str) -> None:
        """Take a server's refusal for a sign that another is the primary: leave it, look for that.

        What waits for an answer gets `OutcomeUnknown`. A link that is younger than a second stays:
        a server that is nothing but a replica would otherwise be left with each command.

        Args:
            word: of the refusal. `NOREPLICAS` may be no more than what it says where there are no
                Sentinels to ask.

        """
        if word != READONLY and not self._has_sentinels:
            return
        if self._link is not None and monotonic() - self._adopted_at > _DOUBT_SECONDS:
            self._hub.loop.run_callback(self._leave, self._link)

    @property
    def connected(self) -> bool:
        """Tell whether the server answered when last heard of."""
        return self._link is not None

    @property
    def stats(self) -> PipelineStats:
        """Return a copy of the counters as they are now."""
        sends = self._stats.sends + (self._link.sends if self._link else 0)
        return replace(self._stats, sends=sends, waiting=self._waiting)

    def close(self) -> None:
        """Close for good: waiting callers fail at once, later calls raise `NotSent`."""
        if self._closed:
            return
        self._closed = True
        CONNECTIONS.closed(self)
        self._connector.why_down = "the connection was closed by this process"
        self._connector.stop()
        # Greenlets are woken from the hub only; this may be any greenlet.
        self._hub.loop.run_callback(self._wake, self._fail_all())
        self._timer.stop()
        self._timer.close()

    # -- one call ----------------------------------------------------------------------------

    def _exchange(self, payload: bytes, expected: int, timeout: float | None) -> list[Reply]:
        hub = self._hub
        greenlet = getcurrent()
        if greenlet is hub or get_hub() is not hub:
            msg = "a PipelinedConnection serves the greenlets of the thread that made it, no others"
            raise RuntimeError(msg)
        call = self._enqueue(payload, expected, timeout, greenlet)
        try:
            woken_for: object = hub.switch()
        except BaseException:  # a kill or a gevent.Timeout: the reply will find nobody
            self._abandon(call)
            raise
        if woken_for is not call:
            self._abandon(call)
            msg = f"a greenlet waiting for Redis was switched to with {woken_for!r}"
            raise InvalidSwitchError(msg)
        if call.error is not None:
            error, call.error = call.error, None  # no cycle through the traceback
            raise error
        return call.replies

    def _enqueue(self, payload: bytes, expected: int, timeout: float | None, who: Any) -> Call:
        if self._closed:
            raise NotSent(self._connector.why_down)
        self._check_room(len(payload), expected)
        deadline = monotonic() + (self._timeout if timeout is None else timeout)
        call = Call(payload, expected, deadline, who)
        self._queue.append(call)
        self._queued_bytes += len(payload)
        self._waiting += expected
        self._stats.calls += 1
        self._next_deadline = min(self._next_deadline, deadline)
        if self._link is None:
            self._connector.start()
        elif not self._flush_due:
            self._flush_due = True
            self._hub.loop.run_callback(self._flush)
        if not self._ticking:
            self._ticking = True
            self._timer.start(self._tick)
        return call

    def _check_room(self, size: int, expected: int) -> None:
        if os.getpid() != self._pid:
            msg = "a forked child must not use its parent's PipelinedConnection"
            raise RuntimeError(msg)
        unsent = self._queued_bytes + (self._link.unsent_bytes if self._link else 0)
        too_many = self._waiting and self._waiting + expected > self._max_calls
        if too_many or (unsent and unsent + size > self._max_bytes):
            self._stats.refused += 1
            raise StoreBusy(f"{self._waiting} commands and {unsent} unsent bytes wait for Redis")

    def _abandon(self, call: Call) -> None:
        """Forget the caller; a call with a place in the stream keeps it."""
        call.greenlet = None
        if call.offset < 0 and call in self._queue:
            self._queue.remove(call)
            self._queued_bytes -= len(call.payload)
            self._waiting -= call.expected

    # -- in the hub: nothing below may block --------------------------------------------------

    def _flush(self) -> None:
        self._flush_due = False
        link = self._link
        if link is None:
            return
        try:
            self._queued_bytes -= link.write(self._queue)
        except LinkBrokenError as broken:
            self._drain()  # replies that came before the end still count
            if self._link is link:
                self._wake(self._cut(str(broken)))

    def _on_readable(self) -> None:
        self._read(once=True)

    def _drain(self) -> None:
        self._read(once=False)

    def _read(self, *, once: bool) -> None:
        link = self._link
        if link is None:
            return
        ready: list[Call] = []
        try:
            while link.read(ready) and not once:
                pass
        except LinkBrokenError as broken:
            ready += self._cut(str(broken))
        self._wake(ready)

    def _wake(self, calls: list[Call]) -> None:
        for call in calls:  # first, so that whoever wakes finds true figures
            self._waiting -= call.expected
        _log_posted(calls)
        for call in calls:
            greenlet, call.greenlet = call.greenlet, None
            if greenlet is None:
                continue
            try:
                greenlet.switch(call)
            except BaseException:  # noqa: BLE001 - as gevent's Waiter does: the hub goes on
                self._hub.handle_error(greenlet, *sys.exc_info())

    def _tick(self) -> None:
        if not self._waiting:
            self._timer.stop()
            self._ticking = False
            self._next_deadline = float("inf")
            return
        now = monotonic()
        link = self._link
        stalled = link is not None and link.silent_for(now) > self._stall_timeout
        if not stalled and now < self._next_deadline:
            return
        # This process may have been the one that was stuck: read before judging the server.
        self._drain()
        link = self._link
        if link is not None and link.silent_for(now) > self._stall_timeout:
            self._wake(self._cut(f"no answer for {self._stall_timeout:g} s"))
        self._wake(self._expire(now))

    def _expire(self, now: float) -> list[Call]:
        """Take the callers whose time is up; return the calls that are over with that."""
        unsent = [call for call in self._queue if call.deadline <= now]
        if unsent:
            self._queue = deque(call for call in self._queue if call.deadline > now)
            self._queued_bytes -= sum(len(call.payload) for call in unsent)
        for call in unsent:
            call.error = NotSent(f"not sent in time: {self._connector.why_down}")
        awaiting = self._link.awaiting if self._link is not None else ()
        late = [call for call in awaiting if call.greenlet is not None and call.deadline <= now]
        for call in late:
            call.error = OutcomeUnknown("Redis did not answer in time")
            self._waiting += call.expected  # its place stays until the reply comes; see _wake
        waiting = [call.deadline for call in awaiting if call.greenlet is not None]
        waiting += [call.deadline for call in self._queue]
        self._next_deadline = min((at for at in waiting if at > now), default=float("inf"))
        self._stats.timeouts += len(unsent) + len(late)
        return unsent + late

    def _cut(self, reason: str) -> list[Call]:
        """Drop the link and begin anew; return the calls that end with it, errors set."""
        self._connector.why_down = reason
        self._stats.cuts += 1
        _log.warning("The connection to Redis was lost: %s", reason, extra={"action": "redis_lost"})
        over = self._fail_all()
        self._connector.start()
        return over

    def _leave(self, link: Link) -> None:
        if self._link is link:
            self._wake(self._cut("the server is not the primary any more"))

    def _fail_all(self) -> list[Call]:
        link, self._link = self._link, None
        over: list[Call] = []
        if link is not None:
            self._stats.sends += link.sends
            over += link.awaiting
            link.awaiting = deque()
            link.close()
        over += self._queue
        self._queue.clear()
        self._queued_bytes = 0
        for call in over:
            if link is not None and link.may_have_been_sent(call):
                call.error = OutcomeUnknown(
                    f"cut off before the answer: {self._connector.why_down}"
                )
            else:
                call.error = NotSent(f"not sent: {self._connector.why_down}")
        return over

    # -- in the connector's greenlet ------------------------------------------------------------

    def _adopt(self, link: Link) -> None:
        if self._closed:
            link.close()
            return
        self._link = link
        self._adopted_at = monotonic()
        self._stats.connects += 1
        link.start(self._on_readable, self._flush)
        self._flush_due = True
        self._hub.loop.run_callback(self._flush)


def _log_posted(calls: list[Call]) -> None:
    failures = [failure for call in calls if call.posted and (failure := call.failure())]
    if failures:
        _log.warning(
            "%d Redis commands that nobody waits for failed; the first: %s",
            len(failures),
            failures[0],
            extra={"action": "redis_post_failed"},
        )
