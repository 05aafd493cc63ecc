"""Beside the way: the one HTTP client of everything that a task fetches.

Each request opens its own connection to an address the guard has checked, follows at most three
redirects (each checked like the first URL) and never looks at proxy variables. Closing the client
from another greenlet or thread ends whatever it is waiting for at once. It works in plain and in
gevent-patched processes; in an `async def` node it would block the loop, so call it in a thread.
"""

from __future__ import annotations

import json as json_lib
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self
from urllib.parse import urljoin

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.egress.response import FAILURES, Response, explain
from async_nodes.egress.wire import Wire, connection
from async_nodes.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from async_nodes.egress.guard import Guard, Target

MAX_REDIRECTS = 3
MAX_BYTES = 32 * 1024 * 1024
USER_AGENT = f"async-nodes/{__version__}"

_METHOD = re.compile(r"[A-Z][A-Z0-9!#$%&'*+.^_`|~-]{0,31}")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE", "TRACK"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_TO_GET = frozenset({301, 302})
# Framing and routing belong to the client; a caller who sets them could smuggle a request.
_OWN_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
# What may follow a redirect to another origin: anything else could be a secret.
_HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_ABSENT: Any = object()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bound the waits of one request, in seconds.

    Attributes:
        connect: to reach one address.
        read: between two pieces of the answer, the first included.
        total: from the start to the last byte, redirects included; None for no bound.

    """

    connect: float = 10.0
    read: float = 60.0
    total: float | None = None

    @classmethod
    def within(cls, seconds: float) -> Timeouts:
        """Return time-outs that end the whole request after some seconds."""
        return cls(connect=min(10.0, seconds), read=seconds, total=seconds)


class SizedBody(Protocol):
    """A body that is sent in pieces as they are read; a redirect may read it once more."""

    @property
    def size(self) -> int:
        """Return how many bytes all pieces have together."""

    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(slots=True)
class _Call:
    method: str
    url: str
    headers: dict[str, str]
    body: bytes | SizedBody | None


class Client:
    """Send requests to public addresses.

    Args:
        guard: decides which addresses may be called.
        timeout: for requests that give none; a number bounds the whole request.
        max_bytes: limit of one decoded body.
        traceparent: the trace (W3C) that requests without one of their own carry on.

    """

    def __init__(
        self,
        guard: Guard,
        *,
        timeout: Timeouts | float = Timeouts(),
        max_bytes: int = MAX_BYTES,
        traceparent: str = "",
    ) -> None:
        self._guard = guard
        self._traceparent = traceparent
        self._timeouts = _timeouts(timeout)
        self._max_bytes = max_bytes
        self._wires: set[Wire] = set()
        self._closed = False

    def __enter__(self) -> Self:
        """Return the client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close every open socket."""
        self.close()

    def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = _ABSENT,
        body: bytes | str | SizedBody | None = None,
        timeout: Timeouts | float | None = None,
        stream: bool = False,
    ) -> Response:
        """Return the answer to one request, whatever its status.

        Args:
            method: any HTTP method but CONNECT, TRACE and TRACK.
            url: an absolute http or https URL.
            headers: sent as they are; Host, Content-Length and other framing are refused.
            json: a JSON value to send as the body; not together with `body`.
            body: raw bytes, text sent as UTF-8, or what yields so many bytes in pieces.
            timeout: bounds of this request; a number bounds the whole of it.
            stream: return once the headers are there and leave the body to the caller.

        Raises:
            TerminalError: ``egress_refused`` for what the guard or this client does not allow,
                ``egress_too_large`` past the size limit, ``egress_failed`` for a bad certificate.
            RetryableError: ``egress_failed`` when the network fails or a time-out passes, or
                when the client is closed meanwhile.

        """
        if self._closed:
            raise RetryableError("the client was closed", code="egress_failed")
        if self._traceparent and not any(name.lower() == "traceparent" for name in headers or ()):
            headers = {"traceparent": self._traceparent, **(headers or {})}
        call = _call(method, url, headers, json=json, body=body)
        timeouts = self._timeouts if timeout is None else _timeouts(timeout)
        response = self._follow(call, timeouts)
        if not stream:
            response.read()
        return response

    def close(self) -> None:
        """End every open connection at once and refuse new requests; safe from any thread."""
        self._closed = True
        for wire in tuple(self._wires) if self._wires else ():
            wire.cut("the client was closed")

    def _follow(self, call: _Call, timeouts: Timeouts) -> Response:
        ends = None if timeouts.total is None else time.monotonic() + timeouts.total
        for _ in range(MAX_REDIRECTS + 1):
            target = self._guard.check(call.url)
            response = self._send(call, target, timeouts, ends=ends)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return response
            response.close()
            call = self._redirected(call, target, location=location, status=response.status)
        raise TerminalError(f"more than {MAX_REDIRECTS} redirects", code="egress_refused")

    def _send(
        self, call: _Call, target: Target, timeouts: Timeouts, *, ends: float | None
    ) -> Response:
        wire = Wire()
        timer = _deadline(wire, ends, target)

        def done() -> None:
            self._wires.discard(wire)
            if timer is not None:
                timer.cancel()

        self._wires.add(wire)
        try:
            if self._closed:  # the wire is known already, so a close from here on finds it
                wire.cut("the client was closed")
            return self._exchange(call, target, timeouts, wire=wire, done=done)
        except BaseException:
            wire.cut("the request was given up")
            done()
            raise

    def _exchange(
        self,
        call: _Call,
        target: Target,
        timeouts: Timeouts,
        *,
        wire: Wire,
        done: Callable[[], None],
    ) -> Response:
        made = connection(
            target,
            guard=self._guard,
            wire=wire,
            connect_timeout=timeouts.connect,
            read_timeout=timeouts.read,
        )
        headers, body = call.headers, call.body
        pieces: bytes | Iterator[bytes] | None = body if isinstance(body, bytes) else None
        if body is not None and not isinstance(body, bytes):
            headers, pieces = {**headers, "Content-Length": str(body.size)}, iter(body)
        try:
            made.request(call.method, target.path, pieces, headers, preload_content=False)
            raw = made.getresponse()
        except FAILURES as error:
            made.close()
            raise explain(error, peer=target.netloc, wire=wire) from error
        except ValueError as error:  # a header that http.client will not send
            made.close()
            _refuse(str(error), cause=error)
        except BaseException:  # killed or cancelled half-way
            made.close()
            raise
        return Response(
            raw,
            url=call.url,
            peer=target.netloc,
            connection=made,
            wire=wire,
            max_bytes=self._max_bytes,
            done=done,
        )

    def _redirected(self, call: _Call, target: Target, *, location: str, status: int) -> _Call:
        url = urljoin(call.url, location)
        headers, method, body = call.headers, call.method, call.body
        if self._guard.check(url).origin != target.origin:
            headers = {name: value for name, value in headers.items() if name.lower() in _HARMLESS}
            headers.setdefault("Accept-Encoding", "identity")
        rewritten = status == _SEE_OTHER and method != "HEAD"
        if rewritten or (status in _TO_GET and method == "POST"):
            method, body = "GET", None
            headers = {name: value for name, value in headers.items() if name != "Content-Type"}
        return _Call(method, url, headers, body)


def _call(
    method: str,
    url: str,
    headers: Mapping[str, str] | None,
    *,
    json: Any,
    body: bytes | str | SizedBody | None,
) -> _Call:
    method = method.upper()
    if not _METHOD.fullmatch(method) or method in _REFUSED_METHODS:
        _refuse(f"the method {method!r} may not be used")
    sent = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
    if json is not _ABSENT:
        if body is not None:
            _refuse("a request has either json or body, not both")
        try:
            body = json_lib.dumps(json, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            _refuse(f"the request's json cannot be sent: {error}", cause=error)
        sent["Content-Type"] = "application/json"
    for name, value in (headers or {}).items():
        if name.lower() in _OWN_HEADERS or name.lower().startswith("proxy-"):
            _refuse(f"the header {name!r} is set by the client")
        sent = {known: kept for known, kept in sent.items() if known.lower() != name.lower()}
        sent[name] = value
    return _Call(method, url, sent, body.encode("utf-8") if isinstance(body, str) else body)


def _deadline(wire: Wire, ends: float | None, target: Target) -> threading.Timer | None:
    """Return a running timer that cuts the wire: the only bound a dribbling server respects."""
    if ends is None:
        return None
    message = f"{target.netloc} did not answer in time"
    timer = threading.Timer(max(0.0, ends - time.monotonic()), wire.cut, (message,))
    timer.daemon = True
    timer.start()
    return timer


def _timeouts(value: Timeouts | float) -> Timeouts:
    return value if isinstance(value, Timeouts) else Timeouts.within(value)


def _refuse(reason: str, *, cause: Exception | None = None) -> NoReturn:
    raise TerminalError(reason, code="egress_refused") from cause
