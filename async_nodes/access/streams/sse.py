"""Answer with a task's events as they happen (part of the step *expose*).

Subscribe, replay what the store has after the client's position, then pass on what is published;
everything once and in order, told apart by position. After any gap the store is asked again, so
nothing is lost that is kept. The stream holds no request context and ends with its client.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Self

import flask
import gevent

from async_nodes.access.api.backlog import Backlog, done, end_of, read_backlog, task_id_of
from async_nodes.access.streams.events import Events, Reader
from async_nodes.access.streams.history import Position
from async_nodes.access.streams.sse_format import (
    BLOCK_BYTES,
    COME_BACK,
    HEARTBEAT,
    RETRY,
    frame,
    joined,
    parse_cursor,
)
from async_nodes.access.streams.subscription import CLOSED, Message, Signal
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.storage.layout import Document
    from async_nodes.storage.redis_store import RedisStore

HEARTBEAT_SECONDS = 15.0
"""Silence after which a comment is sent: proxies keep the stream, a client that left is noticed."""

REREAD_SECONDS = 2.5
_REREAD_PAUSE = 0.1

CONTENT_TYPE = "text/event-stream; charset=utf-8"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_LIVE = frozenset({"state", "progress", "chunk"})


def respond(
    hub: Events,
    store: RedisStore,
    document: Document,
    *,
    after: str | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> flask.Response:
    """Return the answer that streams a task's events; call it within a request.

    The request's Last-Event-ID wins over `after`: a client that resumes sends the address it
    began with, and the header tells how far it came.

    Args:
        hub: tells what happens from now on.
        store: has what happened before.
        document: the task.
        after: position from the query, ``<version>-<n>``.
        heartbeat: seconds of silence before a comment is sent.

    Returns:
        200 with the stream, 204 for a client that has seen everything.

    Raises:
        AsyncNodesError: ``bad_request`` for a position that is none; ``task_gone`` for a record
            that expired meanwhile.
        StoreUnavailable: the events cannot be read now.

    """
    position = requested_position(after)
    if document.state.terminal and position >= end_of(document):
        return flask.Response(status=204, headers=HEADERS)
    if flask.request.method == "HEAD":
        return _response(iter(()))
    if document.state.terminal:
        return _response(replayed(store, document, position))
    return _response(EventStream(hub, store, task_id_of(document), position, heartbeat=heartbeat))


def requested_position(after: str | None) -> Position:
    """Return how far the client of this request has come."""
    header = flask.request.headers.get("Last-Event-ID")
    if header:
        return parse_cursor(header, pointer="/headers/Last-Event-ID")
    return parse_cursor(after, pointer="/query/after")


def replayed(store: RedisStore, document: Document, after: Position) -> Iterator[bytes]:
    """Return the whole stream of a task that has ended: it needs no subscription."""
    found = read_backlog(store, task_id_of(document), after=after, document=document)
    return joined([RETRY, *(found.frames() if found else ())])


class EventStream:
    """Iterate over the blocks of one client's stream; `close` frees the subscription.

    An object rather than a generator: one that was never begun would not free anything.

    Raises:
        AsyncNodesError: ``task_gone``.
        StoreUnavailable: no subscription, or no look into the store.

    """

    def __init__(
        self, hub: Events, store: RedisStore, task_id: str, after: Position, *, heartbeat: float
    ) -> None:
        self._store = store
        self._task_id = task_id
        self._heartbeat = heartbeat
        self._position = after
        self._subscription: Reader = hub.subscribe(task_id)
        first = None
        try:
            first = read_backlog(store, task_id, after=after)
        finally:
            if first is None:
                self._subscription.close()
        if first is None:
            raise AsyncNodesError("task_gone")
        self._blocks = self._run(first)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self._blocks)

    def close(self) -> None:
        """Leave the task's channel; twice does no harm."""
        self._subscription.close()
        self._blocks.close()

    def _run(self, backlog: Backlog | None) -> Generator[bytes]:
        opening: tuple[bytes, ...] = (RETRY,)
        while backlog is not None:
            self._position, ended = backlog.position, backlog.ended
            blocks = joined(chain(opening, backlog.frames()))
            opening, backlog = (), None  # it may be large, and the stream long
            yield from blocks
            if ended:
                return
            outcome = yield from self._live()
            if outcome is CLOSED:
                break
            if isinstance(outcome, Message) and (last := self._last_frame(outcome)):
                yield last
                return
            backlog = self._reread()
        yield COME_BACK

    def _live(self) -> Generator[bytes, None, Message | Signal]:
        """Yield what is published until it is `done`, or until it cannot go on like that."""
        item: Message | Signal | None = None
        while True:
            if item is None and (item := self._subscription.get(self._heartbeat)) is None:
                yield HEARTBEAT
            frames: list[bytes] = []
            size = 0
            while isinstance(item, Message) and item.type != "done" and size < BLOCK_BYTES:
                if new := self._frame(item):
                    frames.append(new)
                    size += len(new)
                item = self._subscription.get(0)
            if frames:
                yield b"".join(frames)
            if isinstance(item, Signal) or (item is not None and item.type == "done"):
                return item

    def _frame(self, message: Message) -> bytes | None:
        """Return a message as it goes over the wire, None for one that this client has."""
        position = (message.version, message.seq)
        if position <= self._position or message.type not in _LIVE:
            return None
        self._position = position
        if message.frame is None:
            message.frame = frame(position, message.type, message.json)
        return message.frame

    def _last_frame(self, message: Message) -> bytes | None:
        """Return the task's `done`, read once for all who wait for it; None where that fails."""
        with message.lock:
            if message.frame is None:
                try:
                    document = self._store.read(self._task_id)
                except StoreUnavailable:
                    return None
                if document is not None and document.state.terminal:
                    message.frame = frame(*done(document))
        return message.frame

    def _reread(self) -> Backlog | None:
        """Return what the store has after the client's position; None when it is of no use."""
        until = monotonic() + REREAD_SECONDS
        while True:
            try:
                return read_backlog(self._store, self._task_id, after=self._position)
            except StoreUnavailable:
                if monotonic() >= until:
                    return None
            gevent.sleep(_REREAD_PAUSE)


def _response(blocks: Iterator[bytes]) -> flask.Response:
    return flask.Response(blocks, headers=HEADERS, content_type=CONTENT_TYPE)
