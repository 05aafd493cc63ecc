"""A strict parser of server-sent events, after the WHATWG HTML standard, section 9.2.6."""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass
from typing import Any

LINE_END = re.compile("\r\n|\n|\r")


@dataclass(frozen=True)
class ServerEvent:
    """One dispatched event."""

    id: str
    type: str
    data: str

    @property
    def json(self) -> Any:
        """Return the data as JSON."""
        return json.loads(self.data)

    @property
    def position(self) -> tuple[int, int]:
        """Return the id as our streams mean it."""
        version, _, seq = self.id.partition("-")
        return int(version), int(seq)


class Parser:
    """Turn the bytes of a stream into events, as an EventSource does.

    Attributes:
        comments: the texts of comment lines.
        retry: the reconnection times in milliseconds that were announced.
        last_event_id: what a reconnect would send.

    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        self._begun = False
        self._data: list[str] = []
        self._type = ""
        self.last_event_id = ""
        self.comments: list[str] = []
        self.retry: list[int] = []

    def feed(self, raw: bytes) -> list[ServerEvent]:
        """Return the events that are complete now."""
        self._text += self._decode(raw)
        if not self._begun and self._text:
            self._begun = True
            self._text = self._text.removeprefix("\ufeff")
        found = []
        while (end := LINE_END.search(self._text)) is not None:
            if end[0] == "\r" and end.end() == len(self._text):
                break  # a line feed may follow
            line, self._text = self._text[: end.start()], self._text[end.end() :]
            event = self._line(line)
            if event is not None:
                found.append(event)
        return found

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            return self._dispatch()
        name, colon, value = line.partition(":")
        if colon and not name:
            self.comments.append(value)
            return None
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self.last_event_id = value
        elif name == "retry" and re.fullmatch("[0-9]+", value, re.ASCII):
            self.retry.append(int(value))
        return None

    def _dispatch(self) -> ServerEvent | None:
        data, kind = self._data, self._type or "message"
        self._data, self._type = [], ""
        return ServerEvent(self.last_event_id, kind, "\n".join(data)) if data else None
