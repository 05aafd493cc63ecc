"""Beside the way: connections to checked addresses that anybody can cut at any moment.

urllib3 speaks HTTP and TLS; this module only decides *where* it connects (an address the guard
has checked, while Host and SNI stay the URL's own) and keeps a second handle to every socket.
"""

from __future__ import annotations

import _socket
import contextlib
import os
import socket
import ssl
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from urllib3.connection import HTTPConnection, HTTPSConnection

from async_nodes.core.errors import RetryableError

if TYPE_CHECKING:
    from async_nodes.egress.guard import Guard, Target


class Wire:
    """Hold a duplicate handle of one connection's socket.

    ``shutdown`` on the duplicate ends the connection below TLS and wakes whoever reads or writes
    it, in another thread as well as in another greenlet, which ``close`` alone does not. The
    handle is the interpreter's own socket type, never gevent's, so any thread may use it.
    """

    # No lock: every step below is one operation of the interpreter, and a gevent lock could not
    # be shared with a native thread.
    def __init__(self) -> None:
        self._handles: list[_socket.socket] = []
        self.reason: str | None = None

    def attach(self, sock: socket.socket) -> None:
        """Watch a socket; cut it at once when the wire is cut already.

        Raises:
            RetryableError: ``egress_failed`` when the wire is cut already.

        """
        self._handles.append(
            _socket.socket(sock.family, sock.type, sock.proto, fileno=os.dup(sock.fileno()))
        )
        if self.reason is not None:
            self.cut(self.reason)
            raise RetryableError(self.reason, code="egress_failed")

    def release(self) -> None:
        """Forget a socket that did not connect."""
        while self._handles:
            self._handles.pop().close()

    def cut(self, reason: str) -> None:
        """End the connection now; the first reason given is kept."""
        self.reason = self.reason or reason
        while self._handles:
            try:
                handle = self._handles.pop()
            except IndexError:  # another thread was faster
                return
            with contextlib.suppress(OSError):  # not connected yet, or reset by the other side
                handle.shutdown(socket.SHUT_RDWR)
            handle.close()


class _Checked:
    """Mix into urllib3's connections: connect where the guard says, not where DNS says now."""

    guard: Guard
    wire: Wire
    connect_timeout: float
    read_timeout: float

    # The one hook of urllib3 that is used; a contract test pins it.
    def _new_conn(self) -> socket.socket:
        host: str = self.host  # type: ignore[attr-defined]
        port: int = self.port  # type: ignore[attr-defined]
        failure: OSError | None = None
        for family, sockaddr in self.guard.resolve(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(self.connect_timeout)
                self.wire.attach(sock)
                sock.connect(sockaddr)
                # From here on every wait is a gap between two reads, TLS handshake included.
                sock.settimeout(self.read_timeout)
            except OSError as error:
                failure = error
                sock.close()
                self.wire.release()
            except BaseException:  # a killed greenlet must not leave the socket behind
                sock.close()
                raise
            else:
                return sock
        raise failure or OSError("no address")


class _Plain(_Checked, HTTPConnection):
    """Speak HTTP to a checked address."""


class _Secure(_Checked, HTTPSConnection):
    """Speak HTTPS to a checked address; the certificate must fit the URL's host."""


def connection(
    target: Target, *, guard: Guard, wire: Wire, connect_timeout: float, read_timeout: float
) -> HTTPConnection:
    """Return an unconnected connection for one request."""
    made: Any
    if target.scheme == "https":
        made = _Secure(target.host, target.port, timeout=read_timeout, ssl_context=_tls())
    else:
        made = _Plain(target.host, target.port, timeout=read_timeout)
    made.guard, made.wire = guard, wire
    made.connect_timeout, made.read_timeout = connect_timeout, read_timeout
    return made  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    # Once per process: reading the certificate store costs tens of milliseconds.
    return ssl.create_default_context()
