"""redis-py's own client for what is done by hand: checks, subscriptions, clearing up.

The hot paths have connections of their own (`redis_connection`).
"""

from __future__ import annotations

from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from async_nodes.core.sentinel_urls import is_sentinel, parse_sentinel
from async_nodes.storage.redis_address import ask, connection_options, managed, refuse_replica
from async_nodes.storage.sentinels import Sentinels

CLIENT_NAME: Final = "async-nodes:client"


def client(url: str, *, timeout: float, connect_timeout: float = 1.0) -> redis.Redis:
    """Return a client that tries nothing twice; under Sentinel each connect finds the primary.

    Args:
        url: the store's address, as `unconnected` takes it.
        timeout: seconds for each reply.
        connect_timeout: seconds for each step of connecting.

    Raises:
        AsyncNodesError: `invalid_setting`, when the address is wrong.

    """
    # The reply to the name is read before the pool looks whether anything lies unread: TLS 1.3
    # sends tickets behind its handshake, which would count as that.
    options: dict[str, Any] = connection_options(
        url, connect_timeout=connect_timeout, client_name=CLIENT_NAME
    )
    options |= {"socket_timeout": timeout, "retry": Retry(NoBackoff(), 0)}
    kind = options.pop("connection_class", redis.Connection)
    if is_sentinel(url):
        kind = managed(kind)
        sentinels = Sentinels(parse_sentinel(url), ask)
        options |= {"connection_pool": sentinels, "redis_connect_func": refuse_replica}
    pool = redis.ConnectionPool(connection_class=kind, **options)
    found = redis.Redis(connection_pool=pool)
    found.auto_close_connection_pool = True
    return found
