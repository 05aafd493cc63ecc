"""A few connections that greenlets take in turns, one command at a time (part of the step *store*).

The plain way, for a Redis that grants a process only so many connections or a proxy that cannot
pipeline. `PipelinedConnection`, which shares one, is the fast way and the default. Who finds no
connection free within `wait` is refused: a queue in front of a slow server helps nobody.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import gevent
from gevent.hub import get_hub
from gevent.lock import BoundedSemaphore
from redis.exceptions import RedisError

from async_nodes.core.sentinel_urls import is_sentinel
from async_nodes.storage.pipeline import PipelineStats
from async_nodes.storage.pipeline_link import take_socket
from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.redis_errors import (
    READONLY,
    NotSent,
    OutcomeUnknown,
    StoreBusy,
    StoreUnavailable,
    answered,
    explained,
)
from async_nodes.storage.resp import INCOMPLETE, new_reader, pack
from async_nodes.telemetry.redis_metrics import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_nodes.storage.pipeline import Then
    from async_nodes.storage.resp import Argument, Reply

_log = logging.getLogger(__name__)

WAIT: Final = 0.3
"""Seconds that a command waits for a connection to be free."""

TIMEOUT: Final = 0.45
"""Seconds that a command takes in all when it names no other, that wait included."""

LATE: Final = 3.0
"""Seconds after which a connection whose reply nobody waits for any more counts as hung."""

_CONNECT_STEPS: Final = 5  # this many steps' worth bounds a whole connect
_READ_BYTES: Final = 64 * 1024


class PooledConnection:
    """Talk to Redis from the greenlets of one thread, on a bounded number of connections.

    Args:
        url: as `PipelinedConnection` takes it.
        size: connections at most.
        wait: seconds to wait for a free one.
        timeout: seconds a call takes when it names no other.
        connect_timeout: seconds for each step of connecting.
        client_name: shown by CLIENT LIST.

    Raises:
        AsyncNodesError: `invalid_setting` when the URL is wrong.

    """

    def __init__(
        self,
        url: str,
        *,
        size: int,
        wait: float = WAIT,
        timeout: float = TIMEOUT,
        connect_timeout: float = 1.0,
        client_name: str | None = None,
    ) -> None:
        unconnected(url, connect_timeout=connect_timeout)  # a wrong URL fails here and now
        self._url = url
        self._wait = wait
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._client_name = client_name
        self._size = size
        self._slots = BoundedSemaphore(size)
        self._idle: list[_Conversation] = []
        self._generation = 0
        self._connected = False
        self._closed = False
        self._has_sentinels = is_sentinel(url)
        self._stats = PipelineStats()
        CONNECTIONS.add(self)

    def call(self, *args: Argument, timeout: float | None = None) -> Reply:
        """Send one command and return its reply; only the calling greenlet waits.

        Raises:
            ResponseError: the server answered with an error (subclass by its prefix).
            NotSent: the command did not leave this process.
            OutcomeUnknown: it may have, and its reply will not be read.
            StoreBusy: no connection came free in time.
            TypeError, ValueError: the command cannot be packed.

        """
        return answered(self._exchange(pack(args), 1, timeout)[0], self.doubt)

    def call_many(
        self, commands: Sequence[Sequence[Argument]], *, timeout: float | None = None
    ) -> list[Reply]:
        """Send commands back to back and return their replies, error replies as values."""
        if not commands:
            return []
        return self._exchange(b"".join([pack(args) for args in commands]), len(commands), timeout)

    def post(self, *args: Argument) -> None:
        """Send one command sometime soon; its failure is only logged."""
        gevent.spawn(self._post, args)

    def ask(self, *args: Argument, then: Then, timeout: float | None = None) -> None:
        """Send one command; `then` is called in the hub with the reply, or with the error."""
        gevent.spawn(self._answer, args, timeout, then)

    def doubt(self, word: str) -> None:
        """Take a server's refusal for a sign that another is the primary: connect anew."""
        if word == READONLY or self._has_sentinels:
            self._generation += 1

    @property
    def connected(self) -> bool:
        """Tell whether the server answered when last heard of."""
        return self._connected

    @property
    def stats(self) -> PipelineStats:
        """Return the counters; `waiting` is how many connections are in use."""
        self._stats.waiting = self._size - int(self._slots.counter)
        return self._stats

    def close(self) -> None:
        """Close for good: later calls raise `NotSent`, and those under way end by themselves."""
        if not self._closed:
            CONNECTIONS.closed(self)
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _post(self, args: Sequence[Argument]) -> None:
        try:
            self.call(*args)
        except (StoreUnavailable, RedisError) as error:
            _log.warning(
                "A Redis command that nobody waits for failed: %s",
                error,
                extra={"action": "redis_post_failed"},
            )

    def _answer(self, args: Sequence[Argument], timeout: float | None, then: Then) -> None:
        try:
            said: Reply | Exception = self.call(*args, timeout=timeout)
        except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
            said = error
        get_hub().loop.run_callback(then, said)

    def _exchange(self, payload: bytes, expected: int, timeout: float | None) -> list[Reply]:
        if self._closed:
            raise NotSent("the connection was closed by this process")
        limit = self._timeout if timeout is None else timeout
        deadline = monotonic() + limit
        self._stats.calls += 1
        if not self._slots.acquire(timeout=max(min(self._wait, limit), 0.0)):
            self._stats.refused += 1
            raise StoreBusy(f"all {self._size} connections to Redis are in use")
        conversation = self._idle_one()
        if conversation is None:
            conversation = self._connected_in_time(deadline)
        try:
            self._stats.sends += 1
            replies = conversation.exchange(payload, expected, deadline)
        except TimeoutError as error:
            self._stats.timeouts += 1
            gevent.spawn(self._wait_for_late_reply, conversation)
            raise OutcomeUnknown("Redis did not answer in time") from error
        except OSError as error:
            self._connected = False
            self._stats.cuts += 1
            self._drop(conversation)
            raise OutcomeUnknown(f"cut off before the answer: {error}") from error
        except BaseException:  # a kill in mid-reply: the stream would be out of step
            self._drop(conversation)
            raise
        self._keep(conversation)
        self._slots.release()
        return replies

    def _drop(self, conversation: _Conversation) -> None:
        conversation.close()
        self._slots.release()

    def _wait_for_late_reply(self, conversation: _Conversation) -> None:
        """Keep a connection until the reply is there that nobody waits for any more.

        To connect anew would take the slow server longer. The slot stays taken meanwhile, because
        the server is busy with it.
        """
        try:
            conversation.finish(monotonic() + LATE)
        except OSError:
            self._connected = False
            self._stats.cuts += 1
            conversation.close()
        else:
            self._keep(conversation)
        finally:
            self._slots.release()

    def _keep(self, conversation: _Conversation) -> None:
        if self._closed:
            conversation.close()
        else:
            self._idle.append(conversation)

    def _idle_one(self) -> _Conversation | None:
        while self._idle:
            conversation = self._idle.pop()
            if conversation.generation == self._generation and conversation.is_quiet():
                return conversation
            conversation.close()
        return None

    def _connected_in_time(self, deadline: float) -> _Conversation:
        """Return a new conversation; the caller's slot is given back when there is none.

        Connecting takes several round trips, more than a caller may wait for on a slow line. It
        goes on without the caller then, in the slot, and whoever comes next finds it done.
        """
        connecting = gevent.spawn(self._connect)
        try:
            connecting.join(max(deadline - monotonic(), 0.001))
        except BaseException:
            connecting.kill(block=False)
            self._slots.release()
            raise
        if not connecting.ready():
            connecting.rawlink(self._connected_late)
            raise NotSent("not connected in time")
        try:
            return self._made(connecting)
        except BaseException:
            self._slots.release()
            raise

    def _connected_late(self, connecting: Any) -> None:
        try:
            self._keep(self._made(connecting))
        except NotSent:
            pass  # the next caller tries again
        finally:
            self._slots.release()

    def _made(self, connecting: Any) -> _Conversation:
        found: _Conversation | NotSent = connecting.value
        if isinstance(found, _Conversation):
            return found
        raise found

    def _connect(self) -> _Conversation | NotSent:
        """Return a new conversation, or why there is none."""
        connection: Any = unconnected(
            self._url, connect_timeout=self._connect_timeout, client_name=self._client_name
        )
        limit = self._connect_timeout * _CONNECT_STEPS
        generation = self._generation
        try:
            with gevent.Timeout(limit, TimeoutError("connecting took too long")):
                connection.connect()
                # A stopped or loading server accepts connections too; only an answer counts.
                connection.send_command("PING")
                connection.read_response()
            conversation = _Conversation(connection, generation)
        except (OSError, RedisError) as error:
            self._connected = False
            connection.disconnect()
            return NotSent(f"Redis cannot be reached: {explained(error)}")
        except BaseException:
            connection.disconnect()
            raise
        self._connected = True
        self._stats.connects += 1
        return conversation


class _Conversation:
    """One connected socket, used by one greenlet at a time."""

    def __init__(self, connection: Any, generation: int) -> None:
        self.generation = generation
        self._connection = connection
        self._socket = take_socket(connection)
        self._reader = new_reader()
        self._replies: list[Reply] = []
        self._expected = 0

    def exchange(self, payload: bytes, expected: int, deadline: float) -> list[Reply]:
        """Send and read.

        Raises:
            OSError: the connection failed, or the time is over.

        """
        self._replies, self._expected = [], expected
        self._socket.settimeout(max(deadline - monotonic(), 0.001))
        try:
            self._socket.sendall(payload)
        except TimeoutError as error:
            raise ConnectionAbortedError("the server takes nothing") from error
        return self.finish(deadline)

    def finish(self, deadline: float) -> list[Reply]:
        """Read what is still to come of the replies.

        Raises:
            OSError: the connection failed, or the time is over.

        """
        replies, reader = self._replies, self._reader
        while True:
            while len(replies) < self._expected and (reply := reader.gets()) is not INCOMPLETE:
                replies.append(reply)
            if len(replies) == self._expected:
                return replies
            self._socket.settimeout(max(deadline - monotonic(), 0.001))
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(data)

    def is_quiet(self) -> bool:
        """Tell whether the server has neither closed an idle connection nor said anything."""
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(1)
        except OSError as error:  # nothing to read is the one good answer, of TLS too
            return isinstance(error, BlockingIOError) or "WANT_READ" in type(error).__name__.upper()
        return False

    def close(self) -> None:
        """Close the socket."""
        self._connection.disconnect()
