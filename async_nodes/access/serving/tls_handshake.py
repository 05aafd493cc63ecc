"""Step 5, expose: how a connection becomes a TLS connection while others are served.

A handshake costs a fraction of a millisecond of computing, many times what a poll costs. In a
storm of them the loop would do nothing else for as long as it lasts, so they compute one after
another, for a millisecond in each turn of the loop, and whatever else is due has its turn in
between. Who connects and says nothing holds a socket for a while, and nothing more.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any, Final

from gevent import Timeout, getcurrent
from gevent.hub import get_hub
from gevent.socket import wait_read, wait_write

from async_nodes.access.serving.refusal import refuse
from async_nodes.access.serving.tls import ServerTls
from async_nodes.telemetry import metrics

HANDSHAKE_SECONDS: Final = 10.0
"""From the connection to the end of the handshake; a phone on a bad network needs 2 or 3."""

MAX_HANDSHAKES: Final = 1000
"""Begun and not ended at once: each holds some 50 KiB. One more, and the oldest is given up, which
had the most time of all: honest clients need a moment."""

TURN_SECONDS: Final = 0.001
"""Computing for handshakes in one turn of the loop, and at least one step."""

_HANDSHAKE_RECORD: Final = 0x16
_PLAIN: Final = "this port speaks HTTPS: the address begins with https://"

log = logging.getLogger(__name__)


class Handshakes:
    """Shake hands with the clients of one process.

    Args:
        tls: the certificate in force.
        seconds: how long a handshake may take.

    """

    def __init__(self, tls: ServerTls, *, seconds: float = HANDSHAKE_SECONDS) -> None:
        self._tls = tls
        self._seconds = seconds
        self._turns = Turns()
        self._silent: set[Any] = set()
        self._begun: dict[Any, None] = {}  # the oldest first

    @contextmanager
    def secured(self, sock: Any) -> Iterator[Any]:
        """Give a connection's TLS socket, None where nothing came of it; closed at the end."""
        secured = None
        try:
            with Timeout(self._seconds):
                secured = self._shake(sock)
        except Timeout:
            _count("timed_out", "it took too long")
        except OSError as error:  # an SSLError is one
            _count("failed", str(error))
        try:
            yield secured
        finally:
            if secured is not None:
                secured.close()

    def close_waiting(self) -> None:
        """End the connections whose handshake has not ended, or not even begun."""
        for sock in (*self._silent, *self._begun):
            _cut(sock)

    def _shake(self, sock: Any) -> Any:
        first = self._first_byte(sock)
        if first != _HANDSHAKE_RECORD:
            _count("plain", "the first byte is none of TLS")
            if first is not None and chr(first) in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                refuse(sock, _PLAIN)
            return None
        self._turns.wait(begun=False)
        secured = self._tls.context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False
        )
        self._begun[secured] = None
        if len(self._begun) > MAX_HANDSHAKES:
            _cut(next(iter(self._begun)))
        try:
            self._finish(secured)
        except BaseException:
            secured.close()
            raise
        finally:
            del self._begun[secured]
        _count("resumed" if secured.session_reused else "full")
        secured.settimeout(None)
        return secured

    def _first_byte(self, sock: Any) -> int | None:
        """Wait for the client, and look at what it begins with."""
        self._silent.add(sock)
        try:
            seen: bytes = sock.recv(1, socket.MSG_PEEK)
        finally:
            self._silent.discard(sock)
        return seen[0] if seen else None

    def _finish(self, secured: Any) -> None:
        """Go through a handshake; the first step's turn has been waited for."""
        secured.settimeout(0.0)
        while True:
            try:
                secured.do_handshake()
            except ssl.SSLWantReadError:
                wait_read(secured.fileno())
            except ssl.SSLWantWriteError:
                wait_write(secured.fileno())
            else:
                return
            self._turns.wait(begun=True)


class Turns:
    """Let handshakes compute one after another, a little in each turn of the loop.

    Those that are under way go first, so that few are: in a storm the rest waits before it begins.

    Args:
        seconds: in one turn.

    """

    def __init__(self, seconds: float = TURN_SECONDS) -> None:
        self._seconds = seconds
        self._first: deque[Any] = deque()
        self._then: deque[Any] = deque()
        self._timer: Any = None

    def wait(self, *, begun: bool) -> None:
        """Wait until it is the calling greenlet's turn; it computes until it waits again.

        Args:
            begun: whether its handshake is under way.

        """
        mine, waiting = getcurrent(), self._first if begun else self._then
        waiting.append(mine)
        if self._timer is None:
            self._arm()
        try:
            get_hub().switch()
        except BaseException:
            with suppress(ValueError):
                waiting.remove(mine)
            raise

    def _arm(self) -> None:
        # A timer, even one of no time, comes after the loop has looked at all sockets.
        self._timer = get_hub().loop.timer(0.0)
        self._timer.start(self._give)

    def _give(self) -> None:
        """Let greenlets go on; called by the loop, to which each returns when it waits."""
        self._timer.close()
        self._timer = None
        until = perf_counter() + self._seconds
        while waiting := self._first or self._then:
            waiting.popleft().switch()
            if perf_counter() >= until:
                break
        if (self._first or self._then) and self._timer is None:
            self._arm()


def _cut(sock: Any) -> None:
    """End a connection on which a greenlet waits, which then notices and closes it."""
    with suppress(OSError):
        # Not that of a TLS socket, which would forget its state under the greenlet's feet.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def say_goodbye(secured: Any) -> None:
    """Tell a client that nothing more will come, without waiting for its answer."""
    try:
        secured.settimeout(0.0)
        secured.unwrap()
    except (OSError, ValueError):  # it would have to be waited for, or is not there any more
        return


def _count(outcome: str, why: str = "") -> None:
    metrics.handshakes(outcome).inc()
    if why:
        log.debug("No TLS connection: %s", why, extra={"action": f"tls_{outcome}"})
