"""The feed of many tasks: every change of state, noted while somebody follows (step *store*).

The scripts note changes in a capped stream while the key ``feed`` is there. Nobody following costs
one EXISTS per script call, and leaves a gap in what is kept; `Kept` tells whether a reader who was
away has missed something by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

FLAG_SECONDS = 60.0
"""How long a process's word holds that somebody follows."""

RENEW_SECONDS = 20.0

KEPT_MOST = 10_000
"""Changes beyond which the oldest may have gone."""

KEPT_SECONDS = 540.0
"""A change younger than this is kept; after ten minutes without any the stream goes."""

PAGE = 500

Place = tuple[int, int]
"""Where a change is in the feed: milliseconds since 1970 and a number, on the wire with a dash."""


class Change(NamedTuple):
    """Hold one noted change of state: its place, and its JSON as published."""

    place: Place
    json: bytes


@dataclass(frozen=True, slots=True)
class Kept:
    """Tell what is kept of a tenant's changes.

    Attributes:
        since: milliseconds since 1970 from which on all changes are noted.
        now: the store's time, likewise.
        count: changes kept.
        first, last: their places, None for none.

    """

    since: int
    now: int
    count: int
    first: Place | None
    last: Place | None

    @property
    def end(self) -> Place:
        """Return the place after which everything is still to come."""
        return self.last or (self.now - 1, 0)

    def has_all_after(self, place: Place) -> bool:
        """Tell whether nothing that happened after a place is missing."""
        if not self.since <= place[0] <= self.now:
            return False
        if self.first is not None and self.first <= place:
            return True
        return self.count < KEPT_MOST and place[0] > self.now - KEPT_SECONDS * 1000


class Feed:
    """Follow the tasks of a tenant.

    Args:
        store: where they are kept.
        tenant: whose.

    """

    def __init__(self, store: RedisStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    @property
    def channel(self) -> str:
        """Return the channel on which changes are published."""
        return self._store.keys.feed_channel(self._tenant)

    def follow(self) -> Kept:
        """Have changes noted for `FLAG_SECONDS`; return what is kept.

        Raises:
            StoreUnavailable: the store does not answer.

        """
        since, now, count, first, last = self._store.run(
            "feed", self._tenant, int(FLAG_SECONDS * 1000)
        )
        return Kept(int(since), int(now), int(count), _place(first), _place(last))

    def changes(self, after: Place, *, most: int = PAGE) -> list[Change]:
        """Return the oldest changes after a place; raises what `follow` raises."""
        key = self._store.keys.feed_of(self._tenant)
        start = f"({after[0]}-{after[1]}"
        found = self._store.link.call("XRANGE", key, start, "+", "COUNT", most, timeout=5.0)
        return [Change(_place(entry) or after, fields[1]) for entry, fields in found]


def _place(entry: bytes) -> Place | None:
    if not entry:
        return None
    at, _, number = entry.partition(b"-")
    return int(at), int(number)
