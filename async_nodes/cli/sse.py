"""Read server-sent events as the WHATWG standard says: bytes in, messages out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Message:
    """One event of a stream.

    Attributes:
        type: the event's name, ``message`` when it has none.
        data: its data lines, joined.
        id: the last id the stream gave, for ``Last-Event-ID``.

    """

    type: str
    data: str
    id: str


class Parser:
    """Turn the bytes of a stream, cut anywhere, into messages.

    Attributes:
        last_id: the id to resume after.
        retry: seconds to wait before a new connection, None until the server says so.

    """

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry: float | None = None
        self._id = last_id
        self._rest = b""
        self._started = False
        self._after_cr = False
        self._type = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Message]:
        """Return the messages that ``piece`` completes."""
        messages = []
        for line in self._lines(piece):
            message = self._take(line)
            if message is not None:
                messages.append(message)
        return messages

    def _lines(self, piece: bytes) -> list[bytes]:
        if not piece:
            return []
        if self._after_cr:
            # A CR ended a line already; an LF right behind it belongs to the same ending.
            self._after_cr = False
            return self._lines(piece.removeprefix(b"\n"))
        text = self._rest + piece
        if not self._started:
            if len(text) < len(BOM) and BOM.startswith(text):
                self._rest = text
                return []
            text = text.removeprefix(BOM)
            self._started = True
        self._after_cr = text.endswith(b"\r")
        *lines, self._rest = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        return lines

    def _take(self, raw: bytes) -> Message | None:
        if not raw:
            return self._dispatch()
        line = raw.decode("utf-8", "replace")
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry = int(value) / 1000
        return None

    def _dispatch(self) -> Message | None:
        self.last_id = self._id
        kind, data = self._type or "message", self._data
        self._type, self._data = "", []
        return Message(kind, "\n".join(data), self.last_id) if data else None
