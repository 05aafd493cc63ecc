"""What the store tells about a task's events after a position (part of the step *expose*).

States come from the record, chunks and progress from the stream; together they are everything
that was ever published, for as long as the task is kept. Used to begin a stream, to resume one
and after a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from async_nodes.access.streams.history import Position, states
from async_nodes.access.streams.sse_format import frame

if TYPE_CHECKING:
    from async_nodes.core.ports import StreamEntry
    from async_nodes.storage.layout import Document
    from async_nodes.storage.redis_store import RedisStore

_BEFORE_ID = b'{"task_id":"'


class Event(NamedTuple):
    """Hold one event that is to be sent."""

    position: Position
    kind: str
    json: bytes


@dataclass(frozen=True, slots=True)
class Backlog:
    """Hold all events from one position to another.

    Attributes:
        events: in order.
        position: of the last thing that happened to the task; what is published after it is new.
        ended: whether the task has ended, so that `done` is the last event.

    """

    events: list[Event]
    position: Position
    ended: bool

    def frames(self) -> Iterator[bytes]:
        """Yield the events as they go over the wire."""
        return (frame(*event) for event in self.events)


def read_backlog(
    store: RedisStore, task_id: str, *, after: Position, document: Document | None = None
) -> Backlog | None:
    """Return what happened to a task after a position, None when its record is gone.

    Args:
        store: where it is kept.
        task_id: whose events.
        after: the position.
        document: the record, if it was just read *after* subscribing or has a terminal state.

    Raises:
        StoreUnavailable: the store does not answer.

    """
    if document is None:
        document = store.read(task_id)
    while document is not None:
        start = max(after, trimmed_at(document))
        entries = store.entries(task_id, after=start) if document.stream else []
        if document.state.terminal or not entries:
            return backlog(document, entries, after)
        # Pieces may have been dropped between the two looks.
        again = store.read(task_id)
        if again is not None and trimmed_at(again) == trimmed_at(document):
            return backlog(document, entries, after)
        document = again
    return None


def backlog(document: Document, entries: list[StreamEntry], after: Position) -> Backlog:
    """Return the events after a position, from the record and the stream's entries after it.

    Whoever lacks a piece that was dropped, or is ahead of a store that has lost its last moments,
    gets the record as it is now (`reset`) and then what follows.
    """
    now = (document.version, document.seq)
    trimmed, ended = trimmed_at(document), document.state.terminal
    events = []
    if after < trimmed or (after > now and not ended):
        after = trimmed if after < trimmed else now
        events.append(Event(after, "reset", document.json))
    past = [Event(e.position, "state", e.json) for e in states(document, entries, after=after)]
    # The stream was read after the record: what is newer than it comes by the channel.
    pieces = ((Event((e.version, e.seq), e.kind, e.json)) for e in entries)
    past += [event for event in pieces if after < event.position <= now]
    events += sorted(past, key=lambda event: event.position)
    if ended:
        events.append(done(document))
    return Backlog(events, now, ended)


def done(document: Document) -> Event:
    """Return the last event of a task, which carries its record."""
    return Event(end_of(document), "done", document.json)


def end_of(document: Document) -> Position:
    """Return where `done` is in the events of an ended task."""
    return (document.version, 0)


def trimmed_at(document: Document) -> Position:
    """Return the position of the last piece that was dropped from the stream."""
    return (document.trimmed_version, document.trimmed_seq)


def task_id_of(document: Document) -> str:
    """Return a record's id, the first value of its document."""
    start = document.json_at + len(_BEFORE_ID)
    return document.raw[start : document.raw.index(b'"', start)].decode()
