"""The event hub of a host that serves with threads: one subscriber connection per reader.

A Flask app that mounts us may run under any server. Where threads wait instead of greenlets there
is no loop on which one connection could serve all, so each stream and each long poll, which has a
thread to itself anyway, gets a connection to itself too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Self

import redis

from async_nodes.access.streams.events import CONFIRM_SECONDS
from async_nodes.access.streams.hub import parse_message
from async_nodes.access.streams.subscription import CLOSED, Message, Signal
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage import redis_client
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_errors import StoreUnavailable

CONNECT_SECONDS = 2.0
READ_SECONDS = 60.0
"""Above what any reader waits at a time, which says so itself."""


class ThreadHub:
    """Give subscriptions to threads.

    Args:
        url: of the server.
        keys: the key grammar.

    Attributes:
        closed: whether the host is about to end.

    """

    def __init__(self, url: str, keys: Keys) -> None:
        self._url = url
        self._keys = keys
        self._lock = threading.Lock()
        self.closed = False
        self.subscribers = 0

    @property
    def connected(self) -> bool:
        """Say yes: there is no connection before somebody subscribes."""
        return not self.closed

    def start(self) -> None:
        """Do nothing: each subscription begins by itself."""

    def close(self) -> None:
        """Take no more subscriptions; those there are end with their readers."""
        self.closed = True

    def listen(self, _name: str, *, timeout: float = CONFIRM_SECONDS) -> ThreadSubscription:
        """Refuse the feed of many tasks, which is one reader for all who follow it.

        Raises:
            AsyncNodesError: ``needs_gevent``.

        """
        del timeout
        raise AsyncNodesError("needs_gevent")

    def subscribe(self, task_id: str, *, timeout: float = CONFIRM_SECONDS) -> ThreadSubscription:
        """Return a subscription to a task's events that will miss none from now on.

        Args:
            task_id: whose events.
            timeout: seconds to wait for the server's confirmation.

        Raises:
            StoreUnavailable: it did not come.

        """
        if self.closed:
            raise StoreUnavailable("the server is stopping")
        seconds = min(CONNECT_SECONDS, timeout)
        client = redis_client.client(self._url, timeout=READ_SECONDS, connect_timeout=seconds)
        subscription = ThreadSubscription(client, self._count)
        self._count(1)
        try:
            subscription.open(self._keys.channel(task_id), timeout)
        except (redis.RedisError, OSError) as error:
            subscription.close()
            raise StoreUnavailable(f"no events can be read: {error}") from error
        return subscription

    def _count(self, change: int) -> None:
        with self._lock:
            self.subscribers += change


class ThreadSubscription:
    """Read one task's events on a connection of its own; a context manager.

    Args:
        client: its own.
        count: told of -1 at the end.

    """

    def __init__(self, client: redis.Redis, count: Callable[[int], None]) -> None:
        self._client = client
        self._count = count
        self._channel: Any = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._left = False

    def open(self, name: str, timeout: float) -> None:
        """Subscribe and wait for the confirmation."""
        self._channel.ignore_subscribe_messages = False
        self._channel.subscribe(name)
        if self._channel.get_message(timeout=timeout) is None:
            raise redis.TimeoutError("the server does not confirm the subscription")
        self._channel.ignore_subscribe_messages = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave; twice does no harm."""
        if not self._left:
            self._left = True
            self._channel.close()
            self._client.close()
            self._count(-1)

    def get(self, timeout: float) -> Message | Signal | None:
        """Return the next message, CLOSED when none will come, None after `timeout` seconds."""
        until = monotonic() + timeout
        while True:
            rest = max(until - monotonic(), 0.0)
            try:
                said = self._channel.get_message(timeout=rest)
            except (redis.RedisError, OSError):
                return CLOSED
            if said is not None and said["type"] == "message":
                found = parse_message(said["data"])
                if found is not None:
                    return found
            elif rest <= 0:
                return None
