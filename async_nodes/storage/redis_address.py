"""From a Redis URL to redis-py's connection object, not yet connected (part of the step *store*).

redis-py parses the URL and does the handshakes (TLS, AUTH, SELECT, CLIENT SETNAME); this module
only fixes what the rest of the package relies on: RESP2, bytes replies, no retries of its own.
Under Sentinel the connection asks where the primary is at each connect, and takes no replica.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redis.connection import (
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, RedisError
from redis.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.sentinel_urls import ASK_SECONDS, is_sentinel, parse_sentinel
from async_nodes.storage.sentinels import Sentinels

if TYPE_CHECKING:
    from async_nodes.storage.resp import Reply

RedisPyConnection = Connection | SSLConnection | UnixDomainSocketConnection

_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def unconnected(
    url: str, *, connect_timeout: float, client_name: str | None = None
) -> RedisPyConnection:
    """Build redis-py's connection for a URL without connecting it.

    Args:
        url: `redis://`, `rediss://` or `unix://`, with redis-py's query options, or `sentinel://`
            as `core.sentinel_urls` has it.
        connect_timeout: seconds for each step of connecting (TCP, TLS, every handshake reply).
        client_name: shown by CLIENT LIST; a `client_name` in the URL wins.

    Raises:
        AsyncNodesError: `invalid_setting`, when the URL or one of its options is wrong.

    """
    sentinels = Sentinels(parse_sentinel(url), ask) if is_sentinel(url) else None
    try:
        options = connection_options(url, connect_timeout=connect_timeout, client_name=client_name)
        kind = options.pop("connection_class", Connection)
        if sentinels is not None:
            kind = managed(kind)
            options |= {"connection_pool": sentinels, "redis_connect_func": refuse_replica}
        connection: RedisPyConnection = kind(**options)
    except (RedisError, TypeError, ValueError) as error:
        # redis-py's messages name the option, never the password.
        raise AsyncNodesError("invalid_setting", f"the Redis URL is not usable: {error}") from error
    return connection


def connection_options(
    url: str, *, connect_timeout: float, client_name: str | None = None
) -> dict[str, Any]:
    """Return the arguments of redis-py's connection for a URL, its class among them.

    Raises:
        ValueError: the URL or one of its options is wrong.

    """
    if is_sentinel(url):
        # Host and port are the Sentinels' to tell.
        url = parse_sentinel(url).server_url("primary", 0)
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
    kind = options.get("connection_class", Connection)
    if kind is not UnixDomainSocketConnection:
        options["socket_keepalive"] = True
    if kind is SSLConnection:
        _check_tls(options)
    return options


def managed(kind: type) -> type:
    """Return redis-py's connection class under Sentinel for an ordinary one."""
    return SentinelManagedSSLConnection if kind is SSLConnection else SentinelManagedConnection


def refuse_replica(connection: Any) -> None:
    """Shake hands, and refuse a server that is not, or not yet, the primary it was named as.

    Raises:
        ConnectionError: it is a replica.

    """
    connection.on_connect()
    connection.send_command("ROLE")
    try:
        role = connection.read_response()
    except NoPermissionError:  # an ACL without ROLE: the first write will tell
        return
    if role[0] != b"master":
        message = f"{connection.host}:{connection.port} is a replica by now"
        raise RedisConnectionError(message)


def ask(url: str, name: str) -> Reply:
    """Ask one Sentinel for the facts about a primary; in a greenlet only that waits.

    Raises:
        OSError, RedisError: it does not answer, or refuses.

    """
    connection: Any = unconnected(url, connect_timeout=ASK_SECONDS)
    try:
        connection.connect()
        connection.send_command("SENTINEL", "MASTER", name)
        return connection.read_response()
    finally:
        connection.disconnect()


def _check_tls(options: dict[str, Any]) -> None:
    oldest = options.setdefault("ssl_min_version", ssl.TLSVersion.TLSv1_2)
    if oldest < ssl.TLSVersion.TLSv1_2:
        message = "TLS before 1.2 is not spoken"
        raise ValueError(message)
    options["ssl_min_version"] = ssl.TLSVersion(oldest)
    for name in _FILES:
        path = options.get(name)
        if path and not Path(path).is_file():  # Python's own error names no file
            message = f"{name} names {path}, which is no file"
            raise ValueError(message)
