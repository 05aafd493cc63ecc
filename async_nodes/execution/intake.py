"""The fast way from our lists to the I/O pool: pop and claim as many as there are free slots.

One script pops messages and claims their tasks, so nothing is ever popped and not claimed, and
one round trip starts hundreds of tasks. When the lists are empty an ordinary blocking pop waits on
a connection of its own. Celery's own consumer stays with what is Celery's: remote control.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event
from redis.exceptions import ResponseError

from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.resp import INCOMPLETE, new_reader, pack

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim
    from async_nodes.storage.redis_store import RedisStore

_log = logging.getLogger(__name__)

MOST_AT_ONCE = 100
BLOCK_SECONDS = 1
_READ = 65_536
_PAUSE_FIRST, _PAUSE_MOST = 0.05, 1.0


class Intake:
    """Feed claims to a pool for as long as it runs.

    Args:
        store: the process's shared store.
        url: the store, in redis-py's spelling, for the connection that waits.
        worker: this worker's id.
        lists: names of `priority.LISTS`, most urgent first.
        slots: bodies at once.
        run: runs one claim to its end, in the greenlet it is given.
        expired: told of tasks that ended instead of starting.

    """

    def __init__(
        self,
        *,
        store: RedisStore,
        url: str,
        worker: str,
        lists: Sequence[str],
        slots: int,
        run: Callable[[Claim], None],
        expired: Callable[[Sequence[str]], None],
    ) -> None:
        self._store = store
        self._waiting_line = WaitingLine(url, {store.keys.queue(name): name for name in lists})
        self._worker = worker
        self._lists = lists
        self._free = slots
        self._freed = Event()
        self._run_claim = run
        self._expired = expired
        self._greenlet: gevent.Greenlet | None = None

    def start(self) -> None:
        """Start taking."""
        self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Take nothing more. What the script has claimed meanwhile is run all the same."""
        self._waiting_line.close()
        if self._greenlet is not None:
            self._greenlet.join(timeout=2 * BLOCK_SECONDS)

    def _run(self) -> None:
        pause = _PAUSE_FIRST
        more = True
        while not self._waiting_line.closed:
            try:
                more = self._turn(more)
                pause = _PAUSE_FIRST
            except Exception as error:  # noqa: BLE001 - a worker that takes nothing is a dead one
                _log.warning(
                    "Nothing can be taken until Redis is back: %s",
                    error,
                    extra={"action": "intake_down"},
                )
                self._waiting_line.drop()
                gevent.sleep(pause)
                pause = min(pause * 2, _PAUSE_MOST)

    def _turn(self, more: bool) -> bool:  # noqa: FBT001 - whether the lists may hold more
        """Take once; answer whether the lists may hold more."""
        while not self._free:
            self._freed.clear()
            self._freed.wait()
        first = None if more else self._waiting_line.pop()
        if not more and first is None:
            return False
        most = min(self._free, MOST_AT_ONCE)
        taken = self._store.take(self._lists, most, worker=self._worker, first=first)
        if not taken.leased:
            gevent.sleep(_PAUSE_FIRST)  # the keeper is about to take a new lease
            return True
        self._free -= len(taken.claims)  # nobody else takes any
        for claim in taken.claims:
            gevent.spawn(self._run_one, claim)
        if taken.expired:
            self._expired(taken.expired)
        return len(taken.claims) >= most

    def _run_one(self, claim: Claim) -> None:
        try:
            self._run_claim(claim)
        finally:
            if not self._free:
                self._freed.set()
            self._free += 1


class WaitingLine:
    """Wait for a message in any of several lists, on a connection of its own.

    redis-py makes the connection; the one command that travels on it is sent and read here, which
    takes a third of the time.
    """

    def __init__(self, url: str, queues: Mapping[str, str]) -> None:
        self._url = url
        self._command = pack(("BRPOP", *queues, BLOCK_SECONDS))
        self._names = {queue.encode(): name for queue, name in queues.items()}
        self._connection: Any = None
        self._socket: Any = None
        self._reader = new_reader()
        self.closed = False

    def pop(self) -> tuple[str, bytes] | None:
        """Return the next message and its list, or None when none came within a second.

        Raises:
            OSError: the connection was lost, or the server hangs.
            ResponseError: the server refuses.

        """
        if self._socket is None:
            self._open()
        self._socket.sendall(self._command)
        while (reply := self._reader.gets()) is INCOMPLETE:
            data = self._socket.recv(_READ)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(reply, ResponseError):
            raise reply
        return (self._names[reply[0]], reply[1]) if reply else None

    def _open(self) -> None:
        connection: Any = unconnected(
            self._url, connect_timeout=1.0, client_name="async-nodes:intake"
        )
        connection.connect()
        self._connection, self._reader = connection, new_reader()
        self._socket = connection._sock  # noqa: SLF001 - pinned by the connection's contract test
        self._socket.settimeout(BLOCK_SECONDS + 2.0)

    def drop(self) -> None:
        """Forget the connection; the next pop makes another."""
        connection, self._connection, self._socket = self._connection, None, None
        if connection is not None:
            connection.disconnect()

    def close(self) -> None:
        """Let the pop under way end by itself within its second, and begin no other."""
        self.closed = True
