"""What the latest changes of many tasks look like to those who follow (part of the step *expose*).

All who ask with the same filter share one reel: a change is looked at once and joined with its
neighbours once, however many read it. Memory is bounded by the reel and not by slow readers; who
has fallen behind its start looks into the store. Pure but for the event that wakes who waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec
from gevent.event import Event

from async_nodes.access.streams.sse_format import frame
from async_nodes.storage.feed import Place

REEL_BYTES = 512 << 10
"""What a reel holds for readers that are slower than the feed."""


class _Facts(msgspec.Struct):
    """What can be asked for of a change."""

    node: str
    state: str
    tags: list[str]


_decoder = msgspec.json.Decoder(_Facts)


class Told(NamedTuple):
    """Hold a change as it goes over the wire, and what filters look at."""

    place: Place
    frame: bytes
    node: str
    state: str
    tags: Sequence[str]

    @classmethod
    def of(cls, place: Place, json: bytes) -> Self:
        """Return a change as published.

        Raises:
            ValueError: the JSON is none of ours.

        """
        facts = _decoder.decode(json)
        return cls(place, frame(place, "state", json), facts.node, facts.state, facts.tags)


@dataclass(frozen=True, slots=True)
class Filter:
    """Choose changes: any of the nodes and of the states, all of the tags; nothing asks for all."""

    nodes: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def passing(self, told: Iterable[Told]) -> list[Told]:
        """Return the changes that are asked for."""
        nodes, states, tags = self.nodes, self.states, self.tags
        return [
            one
            for one in told
            if (not nodes or one.node in nodes)
            and (not states or one.state in states)
            and (not tags or tags.issubset(one.tags))
        ]


class Block(NamedTuple):
    """Hold changes that were told together: those after `low`, up to `high`."""

    low: Place
    high: Place
    told: list[Told]
    joined: bytes

    def after(self, place: Place) -> bytes:
        """Return the frames of what came after a place."""
        if place <= self.low:
            return self.joined
        return b"".join(one.frame for one in self.told if one.place > place)


class Reel:
    """Keep the latest changes that pass a filter.

    Args:
        chosen: the filter.
        at: the place after which it is complete.

    Attributes:
        place: up to where it tells everything.
        readers: how many share it.
        fresh: set once there is something new; then replaced by another.

    """

    def __init__(self, chosen: Filter, at: Place) -> None:
        self.chosen = chosen
        self.place = at
        self.readers = 0
        self.fresh = Event()
        self._low = at
        self._blocks: deque[Block] = deque()
        self._bytes = 0

    def tell(self, told: Iterable[Told], place: Place) -> None:
        """Add what passes of the changes up to a place, and wake the readers if any does."""
        low, self.place = self.place, place
        passing = self.chosen.passing(told)
        if not passing:
            return
        joined = b"".join(one.frame for one in passing)
        self._blocks.append(Block(low, place, passing, joined))
        self._bytes += len(joined)
        while self._bytes > REEL_BYTES and len(self._blocks) > 1:
            gone = self._blocks.popleft()
            self._bytes -= len(gone.joined)
            self._low = gone.high
        self.wake()

    def cut(self, place: Place) -> None:
        """Go on from a place, with a gap before it that readers must fill from the store."""
        self._blocks.clear()
        self._bytes = 0
        self._low = self.place = place
        self.wake()

    def after(self, place: Place) -> list[bytes] | None:
        """Return what came after a place, in pieces; None where some of it is not here."""
        if place < self._low:
            return None
        found = []
        for block in reversed(self._blocks):
            if block.high <= place:
                break
            if piece := block.after(place):
                found.append(piece)
        return found[::-1]

    def wake(self) -> None:
        """Let everybody who waits look again."""
        fresh, self.fresh = self.fresh, Event()
        fresh.set()
