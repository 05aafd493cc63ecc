"""Step 5, expose: ``GET /v1/events``, the changes of state of many tasks as they happen.

As for one task: subscribe, replay what the store has after the client's place, then what happens,
each once and in order. A client that has missed something that is not kept is told so (`reset`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final, Self, TypeVar

import gevent
from flask import Blueprint, Response, g, request

from async_nodes.access.api import query
from async_nodes.access.streams.feed_reel import Filter, Reel, Told
from async_nodes.access.streams.feed_tap import Tap, Taps
from async_nodes.access.streams.sse import CONTENT_TYPE, HEADERS, HEARTBEAT_SECONDS
from async_nodes.access.streams.sse_format import COME_BACK, HEARTBEAT, RETRY, frame
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import NodeState
from async_nodes.core.strict_json import dumps
from async_nodes.storage.feed import PAGE, Kept, Place
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services

T = TypeVar("T")

REREAD_SECONDS: Final = 2.5
_PAUSE: Final = 0.1
_PLACE = re.compile(r"([0-9]{1,15})-([0-9]{1,15})", re.ASCII)
_STATES: Final = tuple(state.value for state in NodeState)


def blueprint(provider: Provider, *, heartbeat: float = HEARTBEAT_SECONDS) -> Blueprint:
    """Return the route of the feed."""
    made = Blueprint("feed", __name__)
    taps = Taps()

    @made.get("/v1/events")
    def follow_tasks() -> Response:
        return follow(provider(), taps, heartbeat=heartbeat)

    return made


def follow(services: Services, taps: Taps, *, heartbeat: float) -> Response:
    """Stream the changes of state of the tenant's tasks."""
    query.refuse_unknown(("node", "tag", "state", "after"))
    chosen, after = requested_filter(), requested_place()
    if request.method == "HEAD":
        return _response(iter(()))
    tap, reel = taps.join(services.hub, services.store, g.tenant, chosen)
    return _response(FeedStream(tap, reel, after, heartbeat=heartbeat))


def requested_filter() -> Filter:
    """Return what this request asks for.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    nodes = query.texts("node", most=50, longest=128)
    tags = query.texts("tag", most=32, longest=64)
    states = query.texts("state", most=len(_STATES), longest=16)
    for state in states:
        query.check_word("state", state, _STATES)
    return Filter(frozenset(nodes), frozenset(states), frozenset(tags))


def requested_place() -> Place | None:
    """Return how far the client of this request has come, None for one that begins.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    header = request.headers.get("Last-Event-ID")
    text = header or request.args.get("after")
    if text is None:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        raise AsyncNodesError(
            "bad_request",
            "a place in the feed is the id of one of its events, such as 1767225600000-0",
            pointer="/headers/Last-Event-ID" if header else "/query/after",
        )
    return int(found[1]), int(found[2])


class FeedStream:
    """Iterate over the blocks of one follower's stream; `close` lets go of the tap.

    An object rather than a generator: one that was never begun would not let go of anything.

    Args:
        tap: of the tenant.
        reel: joined for this reader.
        after: the place the client has come to; None begins now.
        heartbeat: seconds of silence before a comment is sent.

    Raises:
        StoreUnavailable: the store cannot be read now.

    """

    def __init__(self, tap: Tap, reel: Reel, after: Place | None, *, heartbeat: float) -> None:
        self._tap = tap
        self._reel = reel
        self._heartbeat = heartbeat
        self._left = False
        kept = None
        try:
            kept = tap.follow()
        finally:
            if kept is None:
                self.close()
        self._place = reel.place if after is None else after
        self._blocks = self._run(None if after is None else kept)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return next(self._blocks)

    def close(self) -> None:
        """Let go of the reel; twice does no harm."""
        if not self._left:
            self._left = True
            self._tap.leave(self._reel)

    def _run(self, kept: Kept | None) -> Generator[bytes]:
        yield self._here() + RETRY
        if kept is not None:
            yield from self._past(kept)
        while not self._tap.ended:
            fresh = self._reel.fresh
            pieces = self._reel.after(self._place)
            if pieces is None:
                gevent.sleep(_PAUSE)  # a client that is always behind is not to ask in a loop
                kept = self._asked(self._tap.follow)
                if kept is None:
                    break
                yield from self._past(kept)
            elif pieces:
                self._place = max(self._place, self._reel.place)
                yield from pieces
            elif not fresh.wait(self._heartbeat):
                self._place = max(self._place, self._reel.place)
                yield self._here() + HEARTBEAT
        yield self._here() + COME_BACK

    def _past(self, kept: Kept) -> Generator[bytes]:
        """Yield what the store has after the client's place, or that some of it is gone."""
        if not kept.has_all_after(self._place):
            at, number = self._place
            self._place = kept.end
            yield frame(self._place, "reset", dumps({"missed_after": f"{at}-{number}"}))
            return
        while (page := self._asked(lambda: self._tap.feed.changes(self._place))) is not None:
            told = self._reel.chosen.passing(Told.of(*change) for change in page)
            if page:
                self._place = page[-1].place
            if told:
                yield b"".join(one.frame for one in told)
            if len(page) < PAGE:
                # Up to where the store was looked at, nothing else has happened.
                self._place = max(self._place, kept.end)
                return

    def _asked(self, ask: Callable[[], T]) -> T | None:
        """Return what the store answers, None when it does not for a while."""
        until = monotonic() + REREAD_SECONDS
        while True:
            try:
                return ask()
            except StoreUnavailable:
                if monotonic() >= until or self._tap.ended:
                    return None
            gevent.sleep(_PAUSE)

    def _here(self) -> bytes:
        """Return the line that tells how far the client has come, even where nothing was for it."""
        return b"id: %d-%d\n" % self._place


def _response(blocks: Iterator[bytes]) -> Response:
    return Response(blocks, headers=HEADERS, content_type=CONTENT_TYPE)
