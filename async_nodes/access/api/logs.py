"""Step 5, expose: ``GET /v1/tasks/<task_id>/logs``, what a task's body has logged.

A page of JSON, or by ``Accept: text/event-stream`` the lines as they come: subscribe, replay what
is stored after the client's position, then what is published. A worker has stored all lines of an
attempt before it tells how the attempt ended, so whoever hears of the end can read the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

import gevent
import msgspec
from flask import Blueprint, Response, g, request

from async_nodes.access import negotiate
from async_nodes.access.api import query
from async_nodes.access.api.answers import JSON, find, located
from async_nodes.access.streams.events import Events
from async_nodes.access.streams.history import Position
from async_nodes.access.streams.sse import (
    CONTENT_TYPE,
    HEADERS,
    HEARTBEAT_SECONDS,
    requested_position,
)
from async_nodes.access.streams.sse_format import COME_BACK, HEARTBEAT, RETRY, frame, joined
from async_nodes.access.streams.subscription import CLOSED, Message, Signal
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.log_levels import LEVELS
from async_nodes.core.strict_json import dumps
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.access.services import Provider
    from async_nodes.core.ports import LogEntry
    from async_nodes.core.states import NodeState
    from async_nodes.storage.redis_store import RedisStore

REREAD_SECONDS: Final = 2.5
_REREAD_PAUSE: Final = 0.1


class _Level(msgspec.Struct):
    level: str


_decoder = msgspec.json.Decoder(_Level)


def blueprint(provider: Provider, *, heartbeat: float = HEARTBEAT_SECONDS) -> Blueprint:
    """Return the route of a task's log."""
    made = Blueprint("logs", __name__)

    @made.get("/v1/tasks/<task_id>/logs")
    def read_logs(task_id: str) -> Response:
        services = located(provider, task_id)
        query.refuse_unknown(("after", "level"))
        least, after = query.word("level", LEVELS), requested_position(request.args.get("after"))
        find(services, task_id)
        if negotiate.wants_events(request.headers.get("Accept")):
            log = Log(services.store, task_id, g.tenant, least)
            response = follow(services.hub, log, after, heartbeat=heartbeat)
        else:
            response = page(Log(services.store, task_id, g.tenant, least).read(after))
        response.headers["Vary"] = "Accept"
        return response

    return made


@dataclass(frozen=True, slots=True)
class Lines:
    """Hold the lines after a position.

    Attributes:
        entries: those that are severe enough.
        position: of the last one that was looked at.
        is_new: whether there was any, severe or not.
        ended: the task's terminal state, after which no line of an attempt comes; None while it
            has not ended.

    """

    entries: list[LogEntry]
    position: Position
    is_new: bool
    ended: NodeState | None


@dataclass(frozen=True, slots=True)
class Log:
    """Read one task's log.

    Attributes:
        store: where it is.
        task_id: whose.
        tenant: the task's.
        least: name of the level from which on lines are shown; None for all.

    """

    store: RedisStore
    task_id: str
    tenant: str
    least: str | None

    def read(self, after: Position) -> Lines:
        """Return the lines after a position.

        Raises:
            AsyncNodesError: ``task_gone``.
            StoreUnavailable: it cannot be read now.

        """
        # The record first: if it tells of the end, every line is there by now.
        document = self.store.read(self.task_id)
        if document is None or document.tenant != self.tenant:
            raise AsyncNodesError("task_gone", task_id=self.task_id)
        entries = self.store.log_entries(self.task_id, after=after)
        position = (entries[-1].version, entries[-1].number) if entries else after
        shown = [entry for entry in entries if self.shows(entry.json)]
        ended = document.state if document.state.terminal else None
        return Lines(shown, position, bool(entries), ended)

    def shows(self, line: bytes) -> bool:
        """Tell whether a line is severe enough."""
        if self.least is None:
            return True
        return LEVELS.get(_decoder.decode(line).level, 0) >= LEVELS[self.least]


def page(found: Lines) -> Response:
    """Return lines as JSON, in the bytes that are stored."""
    lines = b",".join(entry.json for entry in found.entries)
    following = dumps(
        {"next": f"{found.position[0]}-{found.position[1]}", "complete": found.ended is not None}
    )
    body = b'{"lines":[' + lines + b"]," + following[1:]
    return Response(body, content_type=JSON, headers={"Cache-Control": "no-store"})


def follow(hub: Events, log: Log, after: Position, *, heartbeat: float) -> Response:
    """Return lines as server-sent events; 204 for a client that has all of an ended task."""
    found = log.read(after)
    resumed = "Last-Event-ID" in request.headers or "after" in request.args
    if found.ended is not None and not found.is_new and resumed:
        return Response(status=204, headers=HEADERS)
    if request.method == "HEAD":
        return _response(iter(()))
    if found.ended is not None:
        return _response(joined([RETRY, *_frames(found.entries), _done(log, found)]))
    return _response(LogStream(hub, log, after, heartbeat=heartbeat))


class LogStream:
    """Iterate over the blocks of one reader's stream; `close` frees the subscription.

    Raises:
        AsyncNodesError: ``task_gone``.
        StoreUnavailable: no subscription, or no look into the store.

    """

    def __init__(self, hub: Events, log: Log, after: Position, *, heartbeat: float) -> None:
        self._log = log
        self._heartbeat = heartbeat
        self._position = after
        self._subscription = hub.subscribe(log.task_id)
        found = None
        try:
            found = log.read(after)
        finally:
            if found is None:
                self._subscription.close()
        self._blocks = self._run(found)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self._blocks)

    def close(self) -> None:
        """Leave the task's channel; twice does no harm."""
        self._subscription.close()
        self._blocks.close()

    def _run(self, found: Lines | None) -> Generator[bytes]:
        yield RETRY
        while found is not None:
            self._position = max(found.position, self._position)
            yield from joined(_frames(found.entries))
            if found.ended is not None:
                yield _done(self._log, found)
                return
            outcome = yield from self._live()
            if outcome is CLOSED:
                break
            found = self._reread()
        yield COME_BACK

    def _live(self) -> Generator[bytes, None, Signal | None]:
        """Yield lines as they are published, until the task ends or the channel fails."""
        while True:
            item = self._subscription.get(self._heartbeat)
            if item is None:
                yield b"id: %d-%d\n" % self._position + HEARTBEAT
            elif not isinstance(item, Message):
                return item
            elif item.type == "done":
                return None
            elif block := self._frame(item):
                yield block

    def _frame(self, message: Message) -> bytes | None:
        """Return a line as it goes over the wire, None for one that is not for this reader."""
        position = (message.version, message.seq)
        if message.type != "log" or position <= self._position:
            return None
        self._position = position
        if not self._log.shows(message.json):
            return None
        if message.frame is None:
            message.frame = frame(position, "log", message.json)
        return message.frame

    def _reread(self) -> Lines | None:
        """Return what the store has after the position; None when it is of no use."""
        until = monotonic() + REREAD_SECONDS
        while True:
            try:
                return self._log.read(self._position)
            except StoreUnavailable:
                if monotonic() >= until:
                    return None
            except AsyncNodesError:  # the record is gone: nothing more can be told
                return None
            gevent.sleep(_REREAD_PAUSE)


def _frames(entries: Iterable[LogEntry]) -> Iterator[bytes]:
    return (frame((entry.version, entry.number), "log", entry.json) for entry in entries)


def _done(log: Log, found: Lines) -> bytes:
    state = found.ended.value if found.ended is not None else None
    return frame(found.position, "done", dumps({"task_id": log.task_id, "state": state}))


def _response(blocks: Iterator[bytes]) -> Response:
    return Response(blocks, headers=HEADERS, content_type=CONTENT_TYPE)
