"""Read a stream of server-sent events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    """Hold one event; a comment, which keeps the connection open, has the name ``""``."""

    name: str
    data: str
    id: str


COMMENT = Event("", "", "")


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of a stream's lines; one that is cut off in the middle is left out."""
    name, data, last = "", [], ""
    for line in lines:
        if line.startswith(":"):
            yield COMMENT
        elif line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
            elif field == "id":
                last = value
        elif data:
            yield Event(name or "message", "\n".join(data), last)
            name, data = "", []
