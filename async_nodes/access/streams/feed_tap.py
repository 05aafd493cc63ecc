"""One reader of a tenant's feed per process, on behalf of all who follow it (step *expose*).

The tap comes with the first follower and goes with the last. It keeps the word in the store that
somebody follows, reads the feed's channel, fills gaps from the store, and tells the reels: at once
to a few readers, in blocks that are the longer the more there are, so that writing to all of them
never takes the process.
"""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

import gevent
from gevent.lock import BoundedSemaphore

from async_nodes.access.streams.events import Events, Reader
from async_nodes.access.streams.feed_reel import Filter, Reel, Told
from async_nodes.access.streams.subscription import CLOSED, GAP, Message
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.feed import PAGE, RENEW_SECONDS, Feed, Kept, Place
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

PACE_PER_READER = 0.0004
"""Seconds by which each reader puts the blocks further apart: 2,500 writes a second at most."""

PACE_MOST = 0.25
IDLE_SECONDS = 30.0
OUTAGE_SECONDS = 7.0
"""After so long without a look into the store the streams end: clients go elsewhere."""

_PAUSE = 0.2

log = logging.getLogger(__name__)


class Taps:
    """Hold the taps of a process, one per tenant that is followed."""

    def __init__(self) -> None:
        self._taps: dict[str, Tap] = {}
        self._opening = BoundedSemaphore()

    def join(self, hub: Events, store: RedisStore, tenant: str, chosen: Filter) -> tuple[Tap, Reel]:
        """Return the tenant's tap and the reel of a filter, for one more reader.

        Raises:
            StoreUnavailable: the feed cannot be read now.

        """
        with self._opening:
            tap = self._taps.get(tenant)
            if tap is None or tap.ended:
                tap = self._taps[tenant] = Tap(hub, Feed(store, tenant))
            return tap, tap.join(chosen)


class Tap:
    """Read one tenant's feed while somebody follows it.

    Args:
        hub: gives the channel.
        feed: the feed.

    Attributes:
        feed: the same.
        ended: whether no more will be told.

    Raises:
        StoreUnavailable: the feed cannot be read now.

    """

    def __init__(self, hub: Events, feed: Feed) -> None:
        self.feed = feed
        self.ended = False
        self._reels: dict[Filter, Reel] = {}
        self._readers = 0
        self._subscription: Reader = hub.listen(feed.channel)
        kept = None
        try:
            kept = feed.follow()
        finally:
            if kept is None:
                self._subscription.close()
        self._since = kept.since
        self._place = self._told = kept.end
        self._waiting: list[Told] = []
        self._greenlets = [gevent.spawn(self._read), gevent.spawn(self._renew)]

    def join(self, chosen: Filter) -> Reel:
        """Return the reel of a filter; its reader is to `leave` it."""
        reel = self._reels.get(chosen)
        if reel is None:
            reel = self._reels[chosen] = Reel(chosen, self._told)
        reel.readers += 1
        self._readers += 1
        return reel

    def leave(self, reel: Reel) -> None:
        """Let go of a reel; the last reader ends the tap."""
        reel.readers -= 1
        self._readers -= 1
        if not reel.readers and self._reels.get(reel.chosen) is reel:
            del self._reels[reel.chosen]
        if not self._readers:
            self._end()

    def follow(self) -> Kept:
        """Say once more that somebody follows; return what is kept.

        Should the word have been out, some changes were not noted, and the reels have a gap.

        Raises:
            StoreUnavailable: the store does not answer.

        """
        kept = self.feed.follow()
        if kept.since != self._since:
            self._cut(kept)
        return kept

    # -- what is read ------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            self._pass_on()
        finally:  # whatever happened: nobody is to wait for a tap that is not read
            self._end()

    def _pass_on(self) -> None:
        due = 0.0
        while True:
            rest = max(due - monotonic(), 0.0) if self._waiting else IDLE_SECONDS
            item = self._subscription.get(rest)
            if isinstance(item, Message):
                self._note((item.version, item.seq), item.json)
            elif item is CLOSED or (item is GAP and not self._fill()):
                return
            if self._waiting and monotonic() >= due:
                self._tell()
                due = monotonic() + min(self._readers * PACE_PER_READER, PACE_MOST)

    def _note(self, place: Place, json: bytes) -> None:
        if place <= self._place:
            return
        self._place = place
        try:
            self._waiting.append(Told.of(place, json))
        except ValueError:
            log.warning("A change in the feed is none of ours", extra={"action": "feed_foreign"})

    def _tell(self) -> None:
        told, self._waiting, self._told = self._waiting, [], self._place
        for reel in self._reels.values():
            reel.tell(told, self._place)

    def _fill(self) -> bool:
        """Read from the store what the channel did not bring; false when it does not answer."""
        until = monotonic() + OUTAGE_SECONDS
        while monotonic() < until:
            try:
                self._look(self.follow())
            except StoreUnavailable:
                gevent.sleep(_PAUSE)
            else:
                return True
        return False

    def _look(self, kept: Kept) -> None:
        if not kept.has_all_after(self._place):
            self._cut(kept)
            return
        while page := self.feed.changes(self._place):
            for change in page:
                self._note(*change)
            self._tell()
            if len(page) < PAGE:
                return

    def _cut(self, kept: Kept) -> None:
        self._since = kept.since
        self._place = self._told = max(kept.end, self._place)
        self._waiting.clear()
        for reel in self._reels.values():
            reel.cut(self._place)

    def _renew(self) -> None:
        """Keep the word; a failure is no reason to stop, it holds for three rounds."""
        while not self.ended:
            gevent.sleep(RENEW_SECONDS)
            try:
                self.follow()
            except AsyncNodesError as error:
                log.warning("The feed is not renewed: %s", error, extra={"action": "feed_stale"})

    def _end(self) -> None:
        self.ended = True
        self._subscription.close()
        others = [one for one in self._greenlets if one is not gevent.getcurrent()]
        gevent.killall(others, block=False)
        for reel in self._reels.values():
            reel.wake()
