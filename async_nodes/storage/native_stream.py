"""A blocking byte stream that gevent never touches (part of the step *store*).

Built on the original socket, so that a native thread can use it while the hub is stuck, and any
thread or forked child can, whether the process is patched or not. TLS runs over memory buffers:
the standard library's own TLS socket cannot be used once gevent has patched `ssl`.
"""

from __future__ import annotations

import socket
import ssl
from time import monotonic
from typing import TYPE_CHECKING, Any

from gevent.monkey import get_original
from redis.connection import SSLConnection, UnixDomainSocketConnection

from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.storage.redis_address import RedisPyConnection

_socket_class, _getaddrinfo = get_original("socket", ["socket", "getaddrinfo"])
# Large, because under a busy hub each system call costs the thread a turn of the GIL (5 ms).
_READ_BYTES = 256 * 1024


class NativeStream:
    """Send and receive bytes on a native socket, each step bounded by a deadline.

    Attributes:
        touched: whether any byte of what was last sent may have left this process.

    """

    def __init__(self, sock: Any) -> None:
        self._socket = sock
        self.touched = False

    def send(self, data: bytes, deadline: float) -> None:
        """Send everything.

        Raises:
            TimeoutError: the deadline (monotonic time) passed.
            OSError: the connection failed.

        """
        self.touched = False
        view = memoryview(data)
        while view:
            self._socket.settimeout(_remaining(deadline))
            view = view[self._socket.send(view) :]
            self.touched = True

    def receive(self, deadline: float) -> bytes:
        """Return some bytes, none when the other side has closed."""
        self._socket.settimeout(_remaining(deadline))
        data: bytes = self._socket.recv(_READ_BYTES)
        return data

    def is_closed_by_peer(self) -> bool:
        """Tell, without waiting, whether the other side has closed an idle stream."""
        self._socket.settimeout(0.0)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Close this process' end; the socket of a parent process stays as it is."""
        self._socket.close()


class TlsStream(NativeStream):
    """Do the same inside TLS, with the certificate options redis-py read from the URL."""

    def __init__(self, sock: Any, options: SSLConnection, deadline: float) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _tls_context(options).wrap_bio(
            self._incoming, self._outgoing, server_hostname=options.host
        )
        self._step(self._tls.do_handshake, deadline)

    def send(self, data: bytes, deadline: float) -> None:
        """Send everything, encrypted."""
        self.touched = False
        self._step(lambda: self._tls.write(data), deadline)

    def receive(self, deadline: float) -> bytes:
        """Return some decrypted bytes, none when the other side has closed."""
        try:
            data: bytes = self._step(lambda: self._tls.read(_READ_BYTES), deadline)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return b""
        return data

    def _step(self, operation: Callable[[], Any], deadline: float) -> Any:
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                self._send_encrypted(deadline)
                if data := super().receive(deadline):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._send_encrypted(deadline)
                return result

    def _send_encrypted(self, deadline: float) -> None:
        if self._outgoing.pending:
            super().send(self._outgoing.read(), deadline)


def open_stream(options: RedisPyConnection, deadline: float) -> NativeStream:
    """Connect to the address of an (unconnected) redis-py connection.

    Raises:
        OSError: nobody answers there, in time.
        AsyncNodesError: `invalid_setting`, for OCSP options, which need redis-py's own sockets.

    """
    if isinstance(options, UnixDomainSocketConnection):
        sock = _connect(socket.AF_UNIX, options.path, deadline)
        return NativeStream(sock)
    sock = _connect_tcp(options.host, options.port, deadline)
    try:
        if isinstance(options, SSLConnection):
            return TlsStream(sock, options, deadline)
    except BaseException:
        sock.close()
        raise
    return NativeStream(sock)


def _connect_tcp(host: str, port: int, deadline: float) -> Any:
    failure: OSError | None = None
    # Name look-up blocks as long as the system's resolver does; it takes no time-out.
    for family, _, _, _, address in _getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        try:
            sock = _connect(family, address, deadline)
        except OSError as error:
            failure = error
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock
    raise failure or OSError(f"{host} has no address")


def _connect(family: int, address: object, deadline: float) -> Any:
    sock = _socket_class(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(_remaining(deadline))
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _tls_context(options: SSLConnection) -> ssl.SSLContext:
    """Build the context as redis-py does from the same options."""
    if options.ssl_validate_ocsp or options.ssl_validate_ocsp_stapled:
        raise AsyncNodesError("invalid_setting", "OCSP options are not supported in a Redis URL")
    context = ssl.create_default_context()
    context.check_hostname = options.check_hostname
    context.verify_mode = options.cert_reqs
    for flag in options.ssl_include_verify_flags or ():
        context.verify_flags |= flag
    for flag in options.ssl_exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if options.certfile or options.keyfile:
        context.load_cert_chain(
            options.certfile, options.keyfile, password=options.certificate_password
        )
    if options.ca_certs or options.ca_path or options.ca_data:
        context.load_verify_locations(options.ca_certs, options.ca_path, options.ca_data)
    if options.ssl_min_version is not None:
        context.minimum_version = options.ssl_min_version
    if options.ssl_ciphers:
        context.set_ciphers(options.ssl_ciphers)
    return context


def _remaining(deadline: float) -> float:
    remaining = deadline - monotonic()
    if remaining <= 0:
        raise TimeoutError("the time for this step is over")
    return remaining
