"""Beside the way: one answer, read under a size limit and ended by whoever holds it."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from typing import TYPE_CHECKING, Any, Self

from urllib3.exceptions import HTTPError, ReadTimeoutError

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import urllib3
    from urllib3.connection import HTTPConnection

    from async_nodes.egress.wire import Wire

READ_SIZE = 65_536
MAX_LINE = 4 * 1024 * 1024
FAILURES = (OSError, HTTPError, http.client.HTTPException)


class Response:
    """Read the status, headers and body of an answer.

    Attributes:
        status: the HTTP status.
        headers: looked up without regard to case; repeated headers are joined by a comma.
        url: the URL that answered, after redirects.

    A response that was not read to its end must be closed; it is a context manager.

    """

    def __init__(
        self,
        raw: urllib3.response.HTTPResponse,
        *,
        url: str,
        peer: str,
        connection: HTTPConnection,
        wire: Wire,
        max_bytes: int,
        done: Callable[[], None],
    ) -> None:
        self.status = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self.url = url
        self._raw = raw
        self._peer = peer
        self._connection = connection
        self._wire = wire
        self._max_bytes = max_bytes
        self._done = done
        self._body: bytes | None = None
        self._closed = False

    def __enter__(self) -> Self:
        """Return the response itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def read(self) -> bytes:
        """Return the whole body, decoded; the connection is closed afterwards.

        Raises:
            TerminalError: ``egress_too_large`` past the client's limit.
            RetryableError: ``egress_failed`` when the connection breaks or goes silent.

        """
        if self._body is None:
            self._body = b"".join(self.iter_bytes())
        return self._body

    def json(self) -> Any:
        """Return the body as a JSON value.

        Raises:
            ValueError: when the body is not JSON in UTF-8 (NaN and Infinity are refused).

        """
        return json.loads(self.read().decode("utf-8"), parse_constant=_not_json)

    def iter_bytes(self) -> Iterator[bytes]:
        """Yield the body in pieces as they arrive; the errors are those of `read`."""
        if self._body is not None:
            yield self._body
            return
        total = 0
        try:
            while piece := self._next():
                total += len(piece)
                if total > self._max_bytes:
                    message = f"{self._peer} sent more than {self._max_bytes} bytes"
                    raise TerminalError(message, code="egress_too_large")
                yield piece
        finally:
            self.close()

    def iter_lines(self) -> Iterator[bytes]:
        r"""Yield the body's lines without their ends, each as soon as it is complete.

        A line ends with LF, CR LF or CR and nothing else: U+2028 and the like are text. Bytes
        are left undecoded, so a character cut by the network is whole again in its line.
        """
        lines = LineSplitter()
        for piece in self.iter_bytes():
            yield from lines.feed(piece)
        if lines.rest:
            yield lines.rest

    def close(self) -> None:
        """End the connection at once; nothing happens when it has ended already."""
        if self._closed:
            return
        self._closed = True
        self._wire.cut("the response was closed")
        with contextlib.suppress(*FAILURES):
            self._raw.close()
        with contextlib.suppress(*FAILURES):
            self._connection.close()
        self._done()

    def _next(self) -> bytes:
        if self._closed:
            raise RetryableError(self._wire.reason or "closed", code="egress_failed")
        try:
            piece = self._raw.read1(READ_SIZE)
        except FAILURES as error:
            raise explain(error, peer=self._peer, wire=self._wire) from error
        if not piece and self._wire.reason is not None:
            # A connection that was cut looks like an end when the body has no length.
            raise RetryableError(self._wire.reason, code="egress_failed")
        return piece or b""


class LineSplitter:
    """Cut a stream of bytes into lines, whatever the pieces.

    Attributes:
        rest: the bytes of the line that has not ended yet.

    """

    def __init__(self) -> None:
        self.rest = b""
        self._after_cr = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that are complete now.

        Raises:
            TerminalError: ``egress_too_large`` for a line without an end.

        """
        if self._after_cr and piece.startswith(b"\n"):
            piece, self._after_cr = piece[1:], False
        if not piece:
            return []
        self._after_cr = piece.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self.rest = (self.rest + piece).split(b"\n")
        if len(self.rest) > MAX_LINE:
            message = f"a line is longer than {MAX_LINE} bytes"
            raise TerminalError(message, code="egress_too_large")
        return lines


def explain(error: BaseException, *, peer: str, wire: Wire) -> AsyncNodesError:
    """Return the error of the catalogue for a failure of the network."""
    if wire.reason is not None:
        return RetryableError(wire.reason, code="egress_failed")
    if isinstance(error, ssl.SSLCertVerificationError):
        message = f"the certificate of {peer} is not valid: {error.verify_message}"
        return TerminalError(message, code="egress_failed")
    if isinstance(error, TimeoutError | ReadTimeoutError):
        return RetryableError(f"{peer} did not answer in time", code="egress_failed")
    said = error.args[0] if isinstance(error, HTTPError) and error.args else error
    return RetryableError(f"the connection to {peer} failed: {said}", code="egress_failed")


def _not_json(text: str) -> None:
    raise ValueError(text)
