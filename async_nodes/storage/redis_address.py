"""From a Redis URL to redis-py's connection object, not yet connected (part of the step *store*).

redis-py parses the URL and does the handshakes (TLS, AUTH, SELECT, CLIENT SETNAME); this module
only fixes what the rest of the package relies on: RESP2, bytes replies, no retries of its own.
"""

from __future__ import annotations

from typing import Any

from redis.connection import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import RedisError

from async_nodes.core.errors import AsyncNodesError

RedisPyConnection = Connection | SSLConnection | UnixDomainSocketConnection


def unconnected(
    url: str, *, connect_timeout: float, client_name: str | None = None
) -> RedisPyConnection:
    """Build redis-py's connection for a URL without connecting it.

    Args:
        url: `redis://`, `rediss://` or `unix://`, with redis-py's query options.
        connect_timeout: seconds for each step of connecting (TCP, TLS, every handshake reply).
        client_name: shown by CLIENT LIST; a `client_name` in the URL wins.

    Raises:
        AsyncNodesError: `invalid_setting`, when the URL or one of its options is wrong.

    """
    try:
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        options.setdefault("client_name", client_name)
        options.update(
            protocol=2,
            decode_responses=False,
            driver_info=None,  # saves two round trips; the client name says more
            health_check_interval=0,
            socket_connect_timeout=connect_timeout,
            socket_timeout=connect_timeout,
            retry=None,
            retry_on_timeout=False,
        )
        kind = options.pop("connection_class", Connection)
        if kind is not UnixDomainSocketConnection:
            options["socket_keepalive"] = True
        connection: RedisPyConnection = kind(**options)
    except (RedisError, TypeError, ValueError) as error:
        # redis-py's messages name the option, never the password.
        raise AsyncNodesError("invalid_setting", f"the Redis URL is not usable: {error}") from error
    return connection
