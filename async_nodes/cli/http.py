"""Speak to a server of ours over HTTP, with the standard library only.

One `Client` belongs to one thread: it keeps one connection alive for calls, and opens another for
each stream of events.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from async_nodes.cli.language import tr
from async_nodes.cli.sse import Parser
from async_nodes.core.errors import CATALOGUE, AsyncNodesError
from async_nodes.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Self

    from async_nodes.cli.sse import Message

#: Longer than three heartbeats of a stream (15 s each): silence beyond that is a dead connection.
STREAM_SILENCE = 50.0
_PAUSE = 0.5
_LONGEST_PAUSE = 5.0
_UPLOAD_SILENCE = 60.0
_PIECE = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said.

    Attributes:
        status: the HTTP status.
        headers: by lower-case name.
        document: the JSON body, None without one.
        seconds: from the first byte sent to the last byte read.

    """

    status: int
    headers: Mapping[str, str]
    document: Any
    seconds: float


@dataclass(slots=True)
class Client:
    """Call one server.

    Args:
        url: its root, ``http://host:port`` with or without a path.
        api_key: sent as a Bearer token when given.
        timeout: seconds of silence until a call is given up.
        tls: whom to trust over ``https``; what the system trusts when None.

    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 10.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    _connection: HTTPConnection | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse an address that is none."""
        _connection_for(self.url, self.timeout, self.tls)
        self.url = self.url.rstrip("/")

    def __enter__(self) -> Self:
        """Return the client; leaving closes its connection."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the kept connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str, *, timeout: float | None = None) -> Answer:
        """Read ``path``.

        Raises:
            AsyncNodesError: the server's problem, or ``egress_failed`` when there is none to ask.

        """
        return _checked(self.call("GET", path, timeout=timeout))

    def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send ``body`` as JSON to ``path``; raises what `get` raises."""
        return _checked(self.call("POST", path, body=body or {}, headers=headers, timeout=timeout))

    def put(self, path: str, body: Mapping[str, Any]) -> Answer:
        """Send ``body`` as JSON in place of what ``path`` has; raises what `get` raises."""
        return _checked(self.call("PUT", path, body=body))

    def upload(self, path: str, pieces: Iterable[bytes], headers: Mapping[str, str]) -> Answer:
        """Send a body that is no JSON and may be more than fits into memory.

        Args:
            path: where to.
            pieces: the body.
            headers: with its ``Content-Length``.

        Raises:
            AsyncNodesError: the server's problem; ``egress_failed`` when nothing answers.

        """
        began, sent = time.perf_counter(), {**self._headers(), **headers}
        with contextlib.closing(_connection_for(self.url, _UPLOAD_SILENCE, self.tls)) as connection:
            try:
                # A server that refuses the body answers at once and reads no further.
                with contextlib.suppress(ConnectionError):
                    connection.request("POST", _target(self.url, path), pieces, sent)
                response = connection.getresponse()
                payload = response.read()
            except (OSError, HTTPException) as error:
                raise unreachable(self.url, error) from error
        return _checked(_answer(response, payload, time.perf_counter() - began))

    def pieces(self, path: str) -> Iterator[bytes]:
        """Yield what ``path`` answers as it comes, which may be more than fits into memory.

        Raises:
            AsyncNodesError: the server's problem; ``egress_failed`` when the answer is cut.

        """
        received, size = 0, None
        with contextlib.closing(_connection_for(self.url, self.timeout, self.tls)) as connection:
            try:
                connection.request("GET", _target(self.url, path), headers=self._headers())
                response = connection.getresponse()
                if response.status != HTTPStatus.OK:
                    _checked(_answer(response, response.read(), 0.0))
                size = response.length
                piece = response.read(_PIECE)
            except (OSError, HTTPException) as error:
                raise unreachable(self.url, error) from error
            while piece:
                received += len(piece)
                yield piece
                try:
                    piece = response.read(_PIECE)
                except (OSError, HTTPException):
                    piece = b""
        if size is not None and received != size:
            detail = tr(
                f"the answer was cut after {received} of {size} bytes",
                f"应答在 {received} / {size} 字节处中断",
            )
            raise AsyncNodesError("egress_failed", detail)

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Send one request and return the answer, whatever its status.

        A kept connection that the server has closed meanwhile is replaced, but only where sending
        the request twice does no harm: it reads, or it carries an Idempotency-Key.

        Raises:
            AsyncNodesError: ``egress_failed``: nothing answers there.

        """
        sent = {**self._headers(), **(headers or {})}
        raw = None
        if body is not None:
            raw = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        repeatable = method == "GET" or "Idempotency-Key" in sent
        for is_last in (not (repeatable and self._connection), True):
            began = time.perf_counter()
            try:
                response = self._send(method, path, raw, sent, timeout)
                payload = response.read()
            except (OSError, HTTPException) as error:
                self.close()
                if is_last:
                    raise unreachable(self.url, error) from error
            else:
                return _answer(response, payload, time.perf_counter() - began)
        raise AssertionError("unreachable")

    def delete(self, path: str) -> Answer:
        """Delete what is at ``path``; raises what `get` raises."""
        return _checked(self.call("DELETE", path))

    def events(self, task_id: str, *, after: str = "", patience: float = 30.0) -> Iterator[Message]:
        """Yield a task's events to its end; see `follow`."""
        return self.follow(f"{path_of(task_id)}/events", after=after, patience=patience)

    def follow(self, path: str, *, after: str = "", patience: float = 30.0) -> Iterator[Message]:
        """Yield the events of a stream to its `done`, over as many connections as that takes.

        Args:
            path: of the stream, with its query.
            after: the id of the last event already seen.
            patience: seconds the server may be away.

        Raises:
            AsyncNodesError: the server's problem; ``egress_failed`` when it stays away.

        """
        parser, pause, seen_at = Parser(after), _PAUSE, time.monotonic()
        while True:
            try:
                for message in self._stream(path, parser):
                    pause, seen_at = _PAUSE, time.monotonic()
                    if message is None:  # nothing is left to tell
                        return
                    yield message
                    if message.type == "done":
                        return
                problem: Exception = ConnectionError(tr("the stream ended early", "事件流提前结束"))
            except (OSError, HTTPException) as error:
                problem = error
            except AsyncNodesError as error:
                if error.status not in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY}:
                    raise
                problem = error
            if time.monotonic() - seen_at > patience:
                raise unreachable(self.url, problem) from problem
            time.sleep(max(pause, parser.retry or 0.0))
            pause = min(pause * 2, _LONGEST_PAUSE)
            parser = Parser(parser.last_id)

    def _stream(self, path: str, parser: Parser) -> Iterator[Message | None]:
        """Yield the events of one connection; None when the server has no more for us."""
        connection = _connection_for(self.url, STREAM_SILENCE, self.tls)
        headers = {**self._headers(), "Accept": "text/event-stream"}
        if parser.last_id:
            headers["Last-Event-ID"] = parser.last_id
        with contextlib.closing(connection):
            connection.request("GET", _target(self.url, path), headers=headers)
            response = connection.getresponse()
            if response.status == HTTPStatus.NO_CONTENT:
                yield None
                return
            if response.status != HTTPStatus.OK:
                _checked(_answer(response, response.read(), 0.0))
            while piece := response.read1(65536):
                yield from parser.feed(piece)

    def _send(
        self,
        method: str,
        path: str,
        raw: bytes | None,
        headers: Mapping[str, str],
        timeout: float | None,
    ) -> HTTPResponse:
        seconds = self.timeout if timeout is None else timeout
        if self._connection is None:
            self._connection = _connection_for(self.url, seconds, self.tls)
            self._connection.connect()
            # Headers and body go out as two packets, and the second must not wait for an answer.
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sock.settimeout(seconds)
        self._connection.request(method, _target(self.url, path), body=raw, headers=dict(headers))
        response = self._connection.getresponse()
        if response.will_close:
            # http.client has handed the socket to the response and cannot use it again.
            self._connection = None
        return response

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"async-nodes/{__version__}"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers


def path_of(task_id: str) -> str:
    """Return the path of a task, whatever was given for its id."""
    return f"/v1/tasks/{quote(task_id, safe='')}"


def unreachable(url: str, error: Exception) -> AsyncNodesError:
    """Return the error for a server that does not answer."""
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    detail = tr(
        f"{url} does not answer ({why}). Start it with `async-nodes dev`, or give --url.",
        f"{url} 无响应({why})。请用 `async-nodes dev` 启动,或指定 --url。",
    )
    return AsyncNodesError("egress_failed", detail)


def _connection_for(url: str, timeout: float, tls: ssl.SSLContext | None) -> HTTPConnection:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        detail = tr(
            f"--url must look like http://127.0.0.1:8000, not {url!r}",
            f"--url 应形如 http://127.0.0.1:8000,而不是 {url!r}",
        )
        raise AsyncNodesError("bad_request", detail)
    if parts.scheme == "https":
        return HTTPSConnection(parts.hostname, port, timeout=timeout, context=tls)
    return HTTPConnection(parts.hostname, port, timeout=timeout)


def _target(url: str, path: str) -> str:
    return urlsplit(url).path.rstrip("/") + path


def _answer(response: HTTPResponse, payload: bytes, seconds: float) -> Answer:
    headers = {name.lower(): value for name, value in response.getheaders()}
    document = None
    if "json" in headers.get("content-type", ""):
        with contextlib.suppress(ValueError):
            document = json.loads(payload)
    return Answer(response.status, headers, document, seconds)


def _checked(answer: Answer) -> Answer:
    """Return an answer that is no problem.

    Raises:
        AsyncNodesError: the problem that it describes.

    """
    if answer.status < HTTPStatus.BAD_REQUEST:
        return answer
    problem = answer.document if isinstance(answer.document, dict) else {}
    code = str(problem.get("code") or str(problem.get("type", "")).rpartition("/")[2])
    detail = str(problem.get("detail") or problem.get("title") or "")
    if code not in CATALOGUE:
        said = detail or tr("nothing that async_nodes would say", "不是 async_nodes 的应答")
        code = "egress_failed"
        detail = tr(
            f"the server answered {answer.status}: {said}", f"服务返回 {answer.status}:{said}"
        )
    known = {"type", "title", "status", "detail", "code", "retry_after"}
    extra = {name: value for name, value in problem.items() if name not in known}
    extra.pop("pointer", None)
    raise AsyncNodesError(code, detail, **extra)
