"""A Redis connection for native threads and forked children (part of the step *store*).

One command at a time, on a socket gevent never touches: the lease thread renews through it while
the hub is stuck, prefork children use it in place of their parent's. In a greenlet it would stop
the whole loop; greenlets take `PipelinedConnection`.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any

from gevent.monkey import get_original
from redis.exceptions import ResponseError

from async_nodes.core.sentinel_urls import ASK_SECONDS, is_sentinel, parse_sentinel
from async_nodes.storage.native_stream import NativeStream, open_stream
from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.redis_errors import (
    READONLY,
    NotSent,
    OutcomeUnknown,
    answered,
    explained,
)
from async_nodes.storage.resp import INCOMPLETE, Argument, Reply, new_reader, pack
from async_nodes.storage.sentinels import Sentinels
from async_nodes.telemetry.redis_metrics import CONNECTIONS, LinkStats

if TYPE_CHECKING:
    from collections.abc import Sequence

# Under gevent the patched ones belong to greenlets and do not work across native threads.
_allocate_lock = get_original("_thread", "allocate_lock")
_sleep = get_original("time", "sleep")
_BACKOFF_FIRST, _BACKOFF_MOST = 0.05, 1.0


class BlockingConnection:
    """Talk to Redis from any native thread; callers take turns.

    Connects at the first call, and again within later calls when the connection was lost. A forked
    child makes its own connection by itself.

    Args:
        url: `redis://`, `rediss://` or `unix://`, as redis-py takes it, or `sentinel://`.
        timeout: seconds a call takes at most when it names no other, connecting included.
        connect_timeout: seconds one attempt to connect may take of that.
        client_name: shown by CLIENT LIST.

    Raises:
        AsyncNodesError: `invalid_setting` when the URL is wrong.

    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = 0.8,
        connect_timeout: float = 1.0,
        client_name: str | None = None,
    ) -> None:
        self._options: Any = unconnected(
            url, connect_timeout=connect_timeout, client_name=client_name
        )
        self._sentinels = Sentinels(parse_sentinel(url), _ask) if is_sentinel(url) else None
        self._is_doubted = False
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._stream: NativeStream | None = None
        self._reader = new_reader()
        self._lock: Any = _allocate_lock()
        self._pid = os.getpid()
        self._closed = False
        self._stats = LinkStats()
        CONNECTIONS.add(self)

    def call(self, *args: Argument, timeout: float | None = None) -> Reply:
        """Send one command and return its reply; the whole thread waits.

        Args:
            args: the command, one item per word.
            timeout: seconds for everything: taking turns, connecting, the reply.

        Raises:
            ResponseError: the server answered with an error (subclass by its prefix).
            NotSent: the command did not leave this process.
            OutcomeUnknown: it may have, and its reply will not be read.
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

    def doubt(self, word: str) -> None:
        """Take a server's refusal for a sign that another is the primary; connect anew."""
        self._is_doubted = word == READONLY or self._sentinels is not None

    def close(self) -> None:
        """Close for good; a call of another thread ends first."""
        with self._own_lock():
            if not self._closed:
                CONNECTIONS.closed(self)
            self._closed = True
            self._drop()

    @property
    def stats(self) -> LinkStats:
        """Return what this connection has done."""
        return self._stats

    def _own_lock(self) -> Any:
        if self._pid != os.getpid():
            # Forked: the lock may be held by a thread that does not exist here, and the socket
            # is the parent's conversation.
            self._pid = os.getpid()
            self._lock = _allocate_lock()
            self._drop()
        return self._lock

    def _exchange(self, payload: bytes, expected: int, timeout: float | None) -> list[Reply]:
        limit = self._timeout if timeout is None else timeout
        deadline = monotonic() + limit
        lock = self._own_lock()
        self._stats.calls += 1
        if not lock.acquire(timeout=max(limit, 0.0)):
            self._stats.refused += 1
            raise NotSent("another thread holds the Redis connection")
        try:
            stream = self._connected(deadline)
            try:
                self._stats.sends += 1
                stream.send(payload, deadline)
                return self._read(stream, expected, deadline)
            except OSError as error:
                self._stats.cuts += 1
                self._drop()
                if stream.touched:
                    raise OutcomeUnknown(f"cut off before the answer: {error}") from error
                raise NotSent(f"not sent: {error}") from error
            except BaseException:
                # A soft time limit's exception in mid-reply: the stream would be out of step.
                self._drop()
                raise
        finally:
            lock.release()

    def _read(self, stream: NativeStream, expected: int, deadline: float) -> list[Reply]:
        replies: list[Reply] = []
        while True:
            while len(replies) < expected and (reply := self._reader.gets()) is not INCOMPLETE:
                replies.append(reply)
            if len(replies) == expected:
                return replies
            data = stream.receive(deadline)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)

    def _connected(self, deadline: float) -> NativeStream:
        if self._closed:
            raise NotSent("the connection was closed by this process")
        if self._is_doubted or (self._stream is not None and self._stream.is_closed_by_peer()):
            self._is_doubted = False
            self._drop()
        backoff = _BACKOFF_FIRST
        why: OSError | None = None
        while self._stream is None:
            try:
                self._stream = self._open(min(deadline, monotonic() + self._connect_timeout))
            except OSError as error:
                if why is None or not isinstance(error, TimeoutError):
                    why = error  # the last try may have had no time to learn anything
                if monotonic() + backoff >= deadline:
                    raise NotSent(f"Redis cannot be reached: {explained(why)}") from error
                _sleep(backoff)
                backoff = min(_BACKOFF_MOST, backoff * 2)
        return self._stream

    def _open(self, deadline: float) -> NativeStream:
        self._reader = new_reader()
        if self._sentinels is not None:
            self._options.host, self._options.port = self._sentinels.get_master_address()
        stream = open_stream(self._options, deadline)
        self._stats.connects += 1
        try:
            commands = self._handshake()
            stream.send(b"".join([pack(args) for args in commands]), deadline)
            replies = self._read(stream, len(commands), deadline)
            if self._sentinels is not None:
                _refuse_replica(replies.pop())
            for reply in replies:
                if isinstance(reply, ResponseError):
                    _refuse(reply)
        except BaseException:
            stream.close()
            raise
        return stream

    def _handshake(self) -> list[tuple[Argument, ...]]:
        """Return what a new connection says first: one write for all, to save round trips."""
        options = self._options
        commands: list[tuple[Argument, ...]] = []
        if options.username or options.password:
            names = (options.username,) if options.username else ()
            commands.append(("AUTH", *names, options.password or ""))
        if options.client_name:
            commands.append(("CLIENT", "SETNAME", options.client_name))
        if options.db:
            commands.append(("SELECT", options.db))
        # A loading server accepts connections too; only this answer says that it serves.
        commands.append(("PING",))
        return [*commands, ("ROLE",)] if self._sentinels is not None else commands

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _refuse(reply: ResponseError) -> None:
    if reply.status_code == "LOADING":
        raise ConnectionRefusedError(str(reply))  # worth another try within the same call
    raise NotSent(f"the Redis server refused the connection: {reply}")


def _refuse_replica(role: Reply) -> None:
    """Refuse a server that is not, or not yet, the primary it was named as."""
    if isinstance(role, ResponseError):  # an ACL without ROLE: the first write will tell
        return
    if role[0] != b"master":
        raise ConnectionRefusedError("the server that the Sentinels name is a replica")


def _ask(url: str, name: str) -> Reply:
    """Ask one Sentinel, once, for the facts about a primary; the whole thread waits."""
    link = BlockingConnection(url, connect_timeout=ASK_SECONDS)
    try:
        link._stream = link._open(monotonic() + ASK_SECONDS)  # noqa: SLF001 - no second try
        return link.call("SENTINEL", "MASTER", name, timeout=ASK_SECONDS)
    finally:
        link.close()
