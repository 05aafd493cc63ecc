"""How an event looks on the wire of server-sent events (part of the step *expose*).

Pure: bytes in, bytes out. After the WHATWG HTML standard, section 9.2, "Server-sent events".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from async_nodes.access.streams.history import START, Position
from async_nodes.core.errors import AsyncNodesError

RETRY = b"retry: 2000\n\n"
"""First words of a stream: a client that was cut off comes back after two seconds."""

COME_BACK = b"retry: 1000\n\n"
"""Last words of a stream that ends before its task does."""

HEARTBEAT = b": ping\n\n"

BLOCK_BYTES = 16 * 1024
"""Frames are joined up to here for one write."""

_CURSOR = re.compile(r"([0-9]{1,10})-([0-9]{1,10})", re.ASCII)

# Between JSON's tokens a line break may stand, within its strings it may not. The other three
# may, and are line breaks to a client that splits text as Unicode or JavaScript would.
_LINE_BREAKS = (
    (b"\r", b" "),
    (b"\n", b" "),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
    ("\u0085".encode(), rb"\u0085"),
)


def frame(position: Position, kind: str, json: bytes) -> bytes:
    """Return one event: its position as the id, and its JSON on one line."""
    return b"id: %d-%d\nevent: %s\ndata: %s\n\n" % (*position, kind.encode(), one_line(json))


def one_line(json: bytes) -> bytes:
    """Return the same JSON without anything that any client takes for a line break."""
    for text, replacement in _LINE_BREAKS:
        if text in json:
            json = json.replace(text, replacement)
    return json


def parse_cursor(text: str | None, *, pointer: str) -> Position:
    """Return the position that a client has seen, the start for None.

    Args:
        text: ``<version>-<n>``, as in the ``id:`` of an event.
        pointer: where in the request it stood.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    if text is None:
        return START
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise AsyncNodesError(
            "bad_request",
            "a position in a stream is the id of one of its events, such as 3-17",
            pointer=pointer,
        )
    return (int(found[1]), int(found[2]))


def joined(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the frames in blocks of about `BLOCK_BYTES`, one write each."""
    block: list[bytes] = []
    size = 0
    for one in frames:
        block.append(one)
        size += len(one)
        if size >= BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)
