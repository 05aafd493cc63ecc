"""Step 5, expose: gevent's WSGI server, made fit for short answers and long streams.

What is changed: no waiting for more data before a packet leaves (44 ms per request otherwise),
head and body in one packet, bounds on heads, bodies and idle time, problems instead of bare status
lines, and an end that closes idle connections. A lane may answer ordinary requests from their
bytes, before they are parsed. Knows HTTP, nothing of tasks.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from email import errors
from email.message import Message
from time import monotonic, time
from typing import Any, Final, NamedTuple

from gevent import Timeout
from gevent.hub import get_hub
from gevent.pywsgi import Input, WSGIHandler, WSGIServer, format_date_time

from async_nodes.access.lane.handover import Handover
from async_nodes.access.lane.reader import Reader, Rest
from async_nodes.access.serving.neighbours import Neighbours
from async_nodes.access.serving.refusal import DRAIN_SECONDS, MAX_DRAINED, refuse
from async_nodes.access.serving.tls_handshake import Handshakes, say_goodbye
from async_nodes.telemetry.logs import one_line

MAX_HEAD: Final = 16 << 10
MAX_HEADERS: Final = 100
IDLE_SECONDS: Final = 75.0
"""How long a connection may rest between two requests."""

SWEEP_SECONDS: Final = 5.0
"""How often the server looks for connections that rest too long."""

STALL_SECONDS: Final = 30.0
"""How long a client may take for its next bytes within a request, or to take ours."""

_JOINED: Final = 64 << 10
MAX_LOGGED: Final = 200

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An answer that is ready to be sent.

    Attributes:
        head: status line and header lines, each with its end; without ``Date`` and the empty line.
        body: as its head describes it.

    """

    head: str
    body: bytes


Lane = Callable[[Reader], Answer | Handover | None]
"""Answers the request that waits in a reader, or leaves it there; see `fast_lane`."""


class HeadError(ValueError):
    """A head that is refused, for a reason that its sender is told."""


class HeadTooLargeError(HeadError):
    """The request line and headers are longer than `MAX_HEAD`."""


class Head:
    """Hand out the lines of a request's head, up to a bound."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._left = MAX_HEAD

    def readline(self, limit: int = -1) -> bytes:
        """Return the next line.

        Raises:
            HeadTooLargeError: the head is longer than allowed.

        """
        most = self._left + 1 if limit < 0 else min(limit, self._left + 1)
        line: bytes = self._file.readline(most)
        self._left -= len(line)
        if self._left < 0:
            raise HeadTooLargeError(f"the headers are longer than {MAX_HEAD} bytes")
        if line.endswith(b"\n") and not line.endswith(b"\r\n"):
            raise HeadError("a header line ends without a carriage return")
        return line


class Body(Input):
    """Read a body; what the app left unread is drained within bounds.

    Attributes:
        spoilt: where the next request begins is not known.

    """

    __slots__ = ("spoilt",)

    def _discard(self) -> None:
        self.spoilt = bool(self._chunked_input_error)
        unread = self.chunked_input or (self.content_length or 0) > self.position
        if not unread or self.spoilt:
            return
        self.socket = None  # type: ignore[misc] # gevent's slot: nobody is asked to go on sending
        self.spoilt = True
        drained = 0
        with Timeout(DRAIN_SECONDS, exception=False):  # one who dribbles never lets a read end
            while piece := self.read(16 << 10):
                drained += len(piece)
                if drained > MAX_DRAINED:
                    return
            self.spoilt = False


class Handler(WSGIHandler):
    """Serve one connection."""

    server: Server
    socket: Any
    rfile: Any
    wsgi_input: Any
    _handover: Handover | None = None
    _rest: Rest | None = None

    def __init__(self, sock: Any, address: Any, server: Server) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock, address, server)
        if server.lane is not None:
            self.rfile = Reader(sock)
            if server.is_plain:
                self._rest = Rest(sock)
                sock.settimeout(STALL_SECONDS)

    def handle(self) -> None:
        """Serve until the connection ends."""
        try:
            super().handle()
        finally:
            if self._rest is not None:
                self._rest.close()

    def MessageClass(self, *args: Any) -> Any:  # noqa: N802 - pywsgi's name
        """Read the headers within the bound."""
        headers = super().MessageClass(Head(self.rfile), *args[1:])
        if not self.requestline.isascii():
            raise HeadError("the request line has bytes that are not ASCII: percent-encode them")
        check_framing(headers)
        if self.request_version == "HTTP/1.0" and "Transfer-Encoding" in headers:
            raise HeadError("HTTP/1.0 has no Transfer-Encoding")
        return headers

    def read_requestline(self) -> str:
        """Wait for the next request."""
        self.server.idle[self] = monotonic()
        try:
            self.socket.settimeout(IDLE_SECONDS)
            line: str = super().read_requestline()
        finally:
            del self.server.idle[self]
        self.socket.settimeout(STALL_SECONDS)
        return line

    def _wait(self) -> None:
        """Wait for the first bytes of a request; this is where most connections are idle.

        The server's sweep ends what rests too long: a timer for each request would cost more.
        """
        self.server.idle[self] = monotonic()
        try:
            if self._rest is not None:
                self._rest.wait()
            else:
                self.socket.settimeout(None)
                self.rfile.peek()
        finally:
            del self.server.idle[self]
        if self._rest is None:
            self.socket.settimeout(STALL_SECONDS)

    def handle_one_request(self) -> Any:
        """Serve one request, and those before it that the lane answers.

        What never reaches the app is refused with a problem, too.
        """
        lane = self.server.lane
        if lane is not None:
            answer = self._next(lane)
            while isinstance(answer, Answer):
                if not self._send(answer):
                    return None
                answer = self._next(lane)
            self._handover = answer
        result = super().handle_one_request()
        if isinstance(result, tuple):
            self._refuse(result[0])
            return None
        return None if self.server.stopping else result

    def _next(self, lane: Lane) -> Answer | Handover | None:
        if self.rfile.empty:
            self._wait()
        return None if self.server.stopping else lane(self.rfile)

    def _refuse(self, why: str) -> None:
        """Answer what is not HTTP, and log one line."""
        if why == "414":
            why = "the request line is longer than 8 KiB"
        log.info(
            "A connection sent what is not HTTP: %s",
            one_line(why)[:MAX_LOGGED],
            extra={"action": "http_malformed"},
        )
        refuse(self.socket, why)

    def get_environ(self) -> dict[str, Any]:
        """Return the environment, with a body that is drained within bounds."""
        environ: dict[str, Any] = super().get_environ()
        if self._handover is not None:
            self._handover.put(environ)
            self._handover = None
        plain = self.wsgi_input
        body = Body(plain.rfile, plain.content_length, plain.socket, plain.chunked_input)
        if environ["wsgi.input"] is plain:
            environ["wsgi.input"] = body
        self.wsgi_input = body
        return environ

    def handle_one_response(self) -> None:
        """Answer; a connection whose body was not read to its end serves no further request."""
        super().handle_one_response()
        if getattr(self.wsgi_input, "spoilt", True):
            self.close_connection = True

    def _send(self, answer: Answer) -> bool:
        """Send an answer of the lane as one packet; false when the connection ends there."""
        stopping = self.server.stopping
        last = b"Connection: close\r\n" if stopping else b""
        pieces = [answer.head.encode("ascii"), last, date_line(), b"\r\n", answer.body]
        rest = pieces.pop() if len(answer.body) > _JOINED else b""
        packet = b"".join(pieces)
        try:
            # Nearly always the kernel takes it whole; `sendall` would first ask how much that is.
            sent = self.socket.send(packet)
            if sent < len(packet):
                self.socket.sendall(packet[sent:])
            if rest:
                self.socket.sendall(rest)
        except OSError as error:
            log.debug("A client left: %s", error, extra={"action": "client_left"})
            return False
        return not stopping

    def _write_with_headers(self, data: bytes) -> None:
        """Send the head and a short body as one packet."""
        self.headers_sent = True
        if self.server.stopping:
            self.close_connection = True
            self.response_headers.append((b"Connection", b"close"))
        self.finalize_headers()
        lines = [b"HTTP/1.1 " + self.status]
        lines += [name + b": " + value for name, value in self.response_headers]
        head = b"\r\n".join(lines) + b"\r\n\r\n"
        if self.response_use_chunked or len(data) > _JOINED:
            self._sendall(head)
            self._write(data)
        else:
            self._sendall(head + data)

    def handle_error(self, kind: Any, value: Any, trace: Any) -> None:
        """Note a client that stopped reading or left; report anything else as gevent does."""
        if isinstance(value, OSError):
            log.debug("A client left: %s", value, extra={"action": "client_left"})
            self.close_connection = True
            return
        super().handle_error(kind, value, trace)

    def _handle_client_error(self, error: Exception) -> tuple[str, bytes]:
        """Return what `handle_one_request` refuses with; gevent would write to standard error."""
        known = isinstance(error, HeadError)
        return (str(error) if known else "the request cannot be read", b"")

    def log_request(self) -> None:
        """Leave the access log to the app: it knows what is worth a line."""


class SecureHandler(Handler):
    """Serve one connection over TLS: its end is said, or a client takes it for an attack."""

    def handle_one_request(self) -> Any:
        """Serve one request."""
        result = super().handle_one_request()
        if result is not True:
            say_goodbye(self.socket)
        return result


class Server(WSGIServer):
    """Accept connections, and know which of them are idle.

    Args:
        listener: a bound socket, which may be shared with other processes.
        app: serves the requests.
        lane: may answer a request before the app sees it.
        neighbours: accept for processes that are not there; None for a process on its own.
        tls: shakes hands before a connection is served; None for plain HTTP.
        options: gevent's.

    Attributes:
        is_plain: whether connections are without TLS.
        companion: another server of this process, which ends when this one begins to.

    """

    handler_class = Handler

    def __init__(
        self,
        listener: socket.socket,
        app: Any,
        *,
        lane: Lane | None = None,
        neighbours: Neighbours | None = None,
        tls: Handshakes | None = None,
        **options: Any,
    ) -> None:
        environ = {
            "wsgi.multiprocess": neighbours is not None,
            "wsgi.url_scheme": "http" if tls is None else "https",
        }
        super().__init__(listener, app, log=None, error_log=log, environ=environ, **options)
        self.lane = lane
        self.idle: dict[Handler, float] = {}
        self.stopping = False
        self._sweeper: Any = None
        self._neighbours = neighbours
        self._tls = tls
        self.is_plain = tls is None
        self.companion: WSGIServer | None = None

    @property
    def connections(self) -> int:
        """Return how many are open."""
        return len(self.pool) if self.pool is not None else 0

    def start(self) -> None:
        """Accept connections, and end those that rest too long."""
        super().start()
        if self._neighbours is not None:
            self._neighbours.start(self.do_handle, self.full)
        self._sweeper = get_hub().loop.timer(SWEEP_SECONDS, SWEEP_SECONDS, ref=False)
        self._sweeper.start(self._sweep)

    def stop(self, timeout: float | None = None) -> None:
        """End; requests that run may take `timeout` seconds."""
        if self._sweeper is not None:
            self._sweeper.close()
            self._sweeper = None
        super().stop(timeout)

    def update_environ(self) -> None:
        """Name the server by its address: a look-up in DNS would only cost time."""
        self.environ.setdefault("SERVER_NAME", str(self.address[0]))
        super().update_environ()

    def retire(self) -> None:
        """Take no new connections, and let those there are end with their next answer."""
        self.stopping = True
        self.stop_accepting()
        if self._neighbours is not None:
            self._neighbours.close()
        if self.companion is not None:
            self.companion.close()

    def close_idle(self) -> None:
        """Close the connections that wait for a next request."""
        self._close(list(self.idle))
        if self._tls is not None:
            self._tls.close_waiting()

    def start_accepting(self) -> None:
        """Accept connections, unless this process retires: gevent asks at each one's end."""
        if not self.stopping:
            super().start_accepting()

    def handle(self, sock: Any, address: Any) -> None:
        """Serve a connection from its first byte to its end."""
        if self._tls is None:
            super().handle(sock, address)
            return
        with self._tls.secured(sock) as secured:
            if secured is not None:
                SecureHandler(secured, address, self).handle()

    def _sweep(self) -> None:
        """Close what has been idle for too long; called by the loop, and does not wait."""
        long_ago = monotonic() - IDLE_SECONDS
        self._close([handler for handler, since in self.idle.items() if since < long_ago])

    def _close(self, handlers: list[Handler]) -> None:
        for handler in handlers:
            try:
                # Not that of a TLS socket, which would forget what it has yet to decrypt.
                socket.socket.shutdown(handler.socket, socket.SHUT_RD)
            except OSError:
                log.debug("An idle connection was closed already")


_DIGITS: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
_CUT: Final = re.compile(r"[\0\r\n]")
_NO_HEADER: Final = (
    errors.MissingHeaderBodySeparatorDefect,
    errors.FirstHeaderLineIsContinuationDefect,
    errors.MisplacedEnvelopeHeaderDefect,
    errors.InvalidHeaderDefect,
)
"""What the parser, which is made for mail, has against heads; all else it has against bodies."""


def check_framing(headers: Message) -> None:
    """Refuse a head that does not say beyond doubt where its body ends.

    Whoever passes requests on to us may read such a head in another way, and then one client's
    body becomes another client's request (RFC 9112, 6.3 and 11.2).

    Raises:
        HeadError: with the reason.

    """
    # The parser takes a line that is no header for the end of all headers.
    malformed = any(isinstance(defect, _NO_HEADER) for defect in headers.defects)
    if malformed or any(_CUT.search(value) for value in headers.values()):
        raise HeadError("a header line is malformed")
    lengths = headers.get_all("Content-Length", [])
    codings = headers.get_all("Transfer-Encoding", [])
    if len(lengths) + len(codings) > 1:
        raise HeadError("the length of the body is given more than once")
    if lengths and not _DIGITS.fullmatch(lengths[0]):
        raise HeadError("Content-Length is not a number of bytes")
    if codings and codings[0].strip().lower() != "chunked":
        raise HeadError("the only Transfer-Encoding is chunked")


_dated: tuple[int, bytes] = (0, b"")


def date_line() -> bytes:
    """Return the header line that says what time it is, made once per second."""
    global _dated  # noqa: PLW0603 - one clock for all connections
    second = int(time())
    if second != _dated[0]:
        _dated = (second, b"Date: " + format_date_time(second) + b"\r\n")
    return _dated[1]
