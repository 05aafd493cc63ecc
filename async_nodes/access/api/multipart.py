"""Step 5, expose: the one file in a ``multipart/form-data`` body, while it arrives (RFC 7578).

Reads strictly: lines end with CR LF, as every client of today writes them. Werkzeug's own decoder
is not used, because it adds a byte to a file where the network cuts a body right behind a boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from werkzeug.http import parse_options_header

from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.request import unknown

MOST_PARTS: Final = 8
MOST_HEAD: Final = 8 << 10
MOST_FIELD: Final = 1_024
MOST_BOUNDARY: Final = 70
MOST_PADDING: Final = 256
FRAMING: Final = 16 << 10
"""Bytes that boundaries, heads of parts and fields may take beside the file."""

_END: Final = b"\r\n"


class Head(NamedTuple):
    """What stands before a part's content.

    Attributes:
        field: the name of the form's field.
        filename: None for a field that is no file.
        media_type: empty where nothing is said.

    """

    field: str
    filename: str | None
    media_type: str


class Form:
    """Read a form: its file goes on as it comes, its fields are kept.

    Args:
        content_type: the request's.
        fields: names of the fields it may have, beside the file.

    Attributes:
        values: the fields that came.
        name, media_type: what the file's part says, empty for nothing.

    Raises:
        AsyncNodesError: ``bad_request``: there is no boundary.

    """

    def __init__(self, content_type: str, fields: tuple[str, ...]) -> None:
        boundary = parse_options_header(content_type)[1].get("boundary", "")
        if not boundary.isascii() or not 1 <= len(boundary) <= MOST_BOUNDARY:
            raise _unreadable("multipart/form-data needs a boundary")
        self._boundary = boundary.encode("ascii")
        self._fields = fields
        self._found = False
        self.values: dict[str, str] = {}
        self.name = ""
        self.media_type = ""

    def read(self, data: Iterator[bytes], write: Callable[[bytes], None]) -> None:
        """Read to the end.

        Args:
            data: the body.
            write: takes the file's bytes.

        Raises:
            AsyncNodesError: ``bad_request`` for what is no form; ``invalid_request`` for one that
                is not as expected.

        """
        part: Head | None = None
        held: dict[str, bytearray] = {}
        for item in parts(data, self._boundary):
            if isinstance(item, Head):
                part = item
                self._begin(part, held)
            elif part is not None and part.filename is not None:
                write(item)
            elif part is not None:
                held[part.field] += item
                if len(held[part.field]) > MOST_FIELD:
                    raise _wrong(part.field, f"may have {MOST_FIELD} bytes")
        if not self._found:
            raise _wrong("file", "is missing: send the file with its filename")
        self.values = {name: _text(name, raw) for name, raw in held.items()}

    def _begin(self, part: Head, held: dict[str, bytearray]) -> None:
        if part.filename is not None:
            if self._found:
                raise _wrong(part.field or "file", "is a second file: send one at a time")
            self._found = True
            self.name, self.media_type = part.filename, part.media_type
        elif part.field not in self._fields:
            raise unknown(part.field[:100], self._fields)
        elif part.field in held:
            raise _wrong(part.field, "is given twice")
        else:
            held[part.field] = bytearray()


def parts(data: Iterator[bytes], boundary: bytes) -> Iterator[Head | bytes]:
    """Yield each part's head and then its content in pieces, up to the closing boundary.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    scanner = _Scanner(data)
    delimiter = _END + b"--" + boundary
    for piece in scanner.until(delimiter):
        if piece.strip():
            raise _unreadable("something stands before the first boundary")
    for _ in range(MOST_PARTS + 1):
        closes = scanner.is_last()
        if closes is None:
            raise _unreadable("a boundary is followed by something else")
        if closes:
            scanner.drain()
            return
        yield _head(scanner.head())
        yield from scanner.until(delimiter)
    raise _unreadable(f"it has more than {MOST_PARTS} parts")


class _Scanner:
    """Look for marks in a body, without holding more of it than a piece."""

    def __init__(self, data: Iterator[bytes]) -> None:
        self._data = data
        self._buffer = bytearray(_END)  # the first boundary need not begin a line of its own

    def until(self, mark: bytes) -> Iterator[bytes]:
        """Yield what comes before a mark, and take the mark."""
        while (at := self._buffer.find(mark)) < 0:
            sure = len(self._buffer) - len(mark) + 1
            if sure > 0:
                yield self._taken(sure)
            self._more()
        if at:
            yield self._taken(at)
        del self._buffer[: len(mark)]

    def is_last(self) -> bool | None:
        """Tell whether the boundary that was just taken closes the form; None for neither.

        Its line may be padded with white space; the line's end is left for `head`.
        """
        while True:
            if self._buffer.startswith(b"--"):
                return True
            line, end, _ = self._buffer.partition(_END)
            if end:
                del self._buffer[: len(line)]
                return None if line.strip(b" \t") else False
            if len(self._buffer) > MOST_PADDING:
                return None
            self._more()

    def head(self) -> bytes:
        """Take the lines of a part's head; the buffer stands at the end of the boundary's line."""
        while (at := self._buffer.find(_END + _END)) < 0:
            if len(self._buffer) > MOST_HEAD:
                raise _unreadable(f"the head of a part is longer than {MOST_HEAD} bytes")
            self._more()
        lines = self._taken(at)
        del self._buffer[: len(_END + _END)]
        return lines

    def drain(self) -> None:
        """Read what follows the form: it says nothing, but the body's digest covers it."""
        self._buffer.clear()
        for _ in self._data:
            pass

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _more(self) -> None:
        piece = next(self._data, b"")
        if not piece:
            raise _unreadable("it ends before its closing boundary")
        self._buffer += piece


def _head(lines: bytes) -> Head:
    """Return what the head of a part says."""
    headers = {}
    try:
        for line in lines.decode("utf-8").split("\r\n"):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
    except UnicodeDecodeError:
        raise _unreadable("the head of a part is not UTF-8") from None
    kind, told = parse_options_header(headers.get("content-disposition", ""))
    if kind.lower() != "form-data":
        raise _unreadable("a part has no Content-Disposition: form-data")
    return Head(told.get("name", ""), told.get("filename"), headers.get("content-type", ""))


def _text(name: str, raw: bytearray) -> str:
    try:
        return raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise _wrong(name, "is not UTF-8") from None


def _wrong(name: str, why: str) -> AsyncNodesError:
    return AsyncNodesError("invalid_request", f"the field {name!r} {why}", pointer=f"/{name}")


def _unreadable(why: str) -> AsyncNodesError:
    return AsyncNodesError("bad_request", f"the form cannot be read: {why}")
