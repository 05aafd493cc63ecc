"""Make a link, and keep trying until there is one (part of the step *store*).

Runs in a greenlet of its own; callers meanwhile wait for their own time-outs, not for this.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any

import gevent
from gevent.hub import get_hub

from async_nodes.storage.pipeline_link import Link
from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.redis_errors import explained

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

_BACKOFF_FIRST, _BACKOFF_MOST = 0.05, 1.0
# Name look-up has no time-out of its own: this many steps' worth bounds a whole connect.
_CONNECT_STEPS = 5


class LinkConnector:
    """Connect in the background, with jittered back-off from 0.05 to 1 s.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `sentinel://`.
        connect_timeout: seconds for each step of connecting.
        client_name: shown by CLIENT LIST.
        on_link: takes each new link; called in the connecting greenlet.

    Raises:
        AsyncNodesError: `invalid_setting` when the URL is wrong.

    """

    def __init__(
        self,
        url: str,
        *,
        connect_timeout: float,
        client_name: str | None,
        on_link: Callable[[Link], None],
    ) -> None:
        unconnected(url, connect_timeout=connect_timeout)  # a wrong URL fails here and now
        self._url = url
        self._connect_timeout = connect_timeout
        self._client_name = client_name
        self._on_link = on_link
        self._greenlet: Any = None
        self.why_down = "not connected yet"

    def start(self) -> None:
        """Begin to connect, unless that goes on already."""
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Give up."""
        greenlet, self._greenlet = self._greenlet, None
        if greenlet is not None:
            greenlet.kill(block=False)

    def _run(self) -> None:
        backoff = _BACKOFF_FIRST
        link = self._try()
        while link is None:
            jitter = 0.5 + random.random() / 2  # noqa: S311 - spreads reconnects, guards nothing
            gevent.sleep(backoff * jitter, ref=False)
            backoff = min(_BACKOFF_MOST, backoff * 2)
            link = self._try()
        self._greenlet = None
        self.why_down = "earlier commands hold up the connection"
        _log.info("Connected to Redis", extra={"action": "redis_connected"})
        self._on_link(link)

    def _try(self) -> Link | None:
        try:
            return self._open()
        except Exception as error:  # noqa: BLE001 - whatever it was, the next try may succeed
            reason = f"Redis cannot be reached: {explained(error)}"
            if reason != self.why_down:  # once per cause, not once per try
                _log.warning("%s", reason, extra={"action": "redis_unreachable"})
            self.why_down = reason
            return None

    def _open(self) -> Link:
        connection: Any = unconnected(
            self._url, connect_timeout=self._connect_timeout, client_name=self._client_name
        )
        limit = self._connect_timeout * _CONNECT_STEPS
        try:
            with gevent.Timeout(limit, TimeoutError("connecting took too long")):
                connection.connect()
                # A stopped or loading server accepts connections too; only an answer counts.
                connection.send_command("PING")
                connection.read_response()
            return Link(connection, get_hub().loop)
        except BaseException:
            connection.disconnect()
            raise
