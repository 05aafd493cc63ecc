"""One connection in subscriber mode: asks for channels, reads what comes (step *expose*).

redis-py makes the connection (TLS, AUTH, unix sockets); from then on this owns its socket. A
silent server is asked for a sign of life, so that a hung one is noticed. It does not know tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from time import monotonic
from typing import Any, NamedTuple, Self

import gevent
from redis.exceptions import RedisError, ResponseError

from async_nodes.storage.pipeline_link import LinkBrokenError, take_socket
from async_nodes.storage.redis_address import RedisPyConnection, unconnected
from async_nodes.storage.resp import INCOMPLETE, Reply, new_reader, pack

SILENCE_SECONDS = 1.5
"""After so long without a byte the server is asked; after twice as long it counts as hung."""

STEP_TIMEOUT = 1.0
CONNECT_TIMEOUT = 1.5

_READ_BYTES = 64 * 1024
_CHANNELS_PER_COMMAND = 500
_PING = pack(("PING",))


class Request(NamedTuple):
    """Ask for a channel, or to be spared it; `token` comes back with the confirmation."""

    subscribe: bool
    channel: bytes
    token: object

    @property
    def kind(self) -> bytes:
        """Return the first word of the server's confirmation."""
        return b"subscribe" if self.subscribe else b"unsubscribe"


class Confirmed(NamedTuple):
    """Tell that the server has carried out a request."""

    request: Request


class Published(NamedTuple):
    """Hold what was published on a channel."""

    channel: bytes
    payload: bytes


class SubscriberLink:
    """Speak Redis' subscriber mode over one socket; one greenlet reads, one sends.

    Args:
        connection: redis-py's connection, connected; the link owns it from here on.

    """

    def __init__(self, connection: RedisPyConnection) -> None:
        self._connection = connection
        self._socket: Any = take_socket(connection)
        self._socket.settimeout(SILENCE_SECONDS)
        self._reader = new_reader()
        self._asked: deque[Request] = deque()
        self.heard_at = monotonic()

    @classmethod
    def connect(cls, url: str, *, client_name: str) -> Self:
        """Return a link to a server that answers.

        Raises:
            LinkBrokenError: nobody does, in time.

        """
        connection: Any = unconnected(url, connect_timeout=STEP_TIMEOUT, client_name=client_name)
        try:
            with gevent.Timeout(CONNECT_TIMEOUT, TimeoutError("connecting took too long")):
                connection.connect()
                # A stopped or loading server accepts connections too; only an answer counts.
                connection.send_command("PING")
                connection.read_response()
            return cls(connection)
        except (OSError, RedisError) as error:
            connection.disconnect()
            raise LinkBrokenError(f"Redis cannot be reached: {error}") from error
        except BaseException:
            connection.disconnect()
            raise

    def send(self, requests: Sequence[Request]) -> None:
        """Send requests, in order.

        Raises:
            LinkBrokenError: the socket failed.

        """
        self._asked.extend(requests)  # in the order of the confirmations to come
        self._send(b"".join(_commands(requests)))

    def read(self) -> list[Confirmed | Published]:
        """Wait for something to arrive and return it.

        Raises:
            LinkBrokenError: the server closed the connection, refused a request or hangs.

        """
        self._reader.feed(self._receive())
        self.heard_at = monotonic()
        arrived: list[Confirmed | Published] = []
        while (reply := self._reader.gets()) is not INCOMPLETE:
            item = self._understand(reply)
            if item is not None:
                arrived.append(item)
        return arrived

    def close(self) -> None:
        """Close the socket, which ends a waiting `read`; twice does no harm."""
        self._connection.disconnect()  # type: ignore[no-untyped-call]

    def _receive(self) -> bytes:
        try:
            data = self._receive_in_time()
            if data is None:
                # This process may have been the one that was stuck: ask before judging.
                self._send(_PING)
                data = self._receive_in_time()
        except OSError as error:
            raise LinkBrokenError(f"reading failed: {error}") from error
        if data is None:
            raise LinkBrokenError(f"no answer for {2 * SILENCE_SECONDS:g} s")
        if not data:
            self.heard_at = monotonic()
            raise LinkBrokenError("the server closed the connection")
        return data

    def _receive_in_time(self) -> bytes | None:
        try:
            data: bytes = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            return None
        return data

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise LinkBrokenError(f"writing failed: {error}") from error

    def _understand(self, reply: Reply) -> Confirmed | Published | None:
        if isinstance(reply, ResponseError):
            raise LinkBrokenError(f"the server refused to subscribe: {reply}")
        if not isinstance(reply, list):
            return None  # the answer to a PING outside subscriber mode
        if reply[0] == b"message":
            return Published(reply[1], reply[2])
        if reply[0] in {b"subscribe", b"unsubscribe"}:
            return Confirmed(self._expected(reply[0], reply[1]))
        return None

    def _expected(self, kind: bytes, channel: bytes) -> Request:
        request = self._asked.popleft() if self._asked else None
        if request is None or (request.kind, request.channel) != (kind, channel):
            raise LinkBrokenError(f"the server confirmed {kind!r} {channel!r}, which was not asked")
        return request


def _commands(requests: Sequence[Request]) -> Iterator[bytes]:
    for subscribe, run in groupby(requests, key=lambda request: request.subscribe):
        name = "SUBSCRIBE" if subscribe else "UNSUBSCRIBE"
        channels = [request.channel for request in run]
        for first in range(0, len(channels), _CHANNELS_PER_COMMAND):
            yield pack((name, *channels[first : first + _CHANNELS_PER_COMMAND]))
