"""Dead letters: tasks that nobody could do, kept to be looked at and sent again (step *store*).

A letter is an entry in a set by time; what it is about is the task's record, which is kept for a
week at least. A letter whose record is gone all the same goes with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from async_nodes.storage.listing import Place

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

PAGE: Final = 100


class DeadLetters:
    """Look after a tenant's dead letters.

    Args:
        store: where they are.
        tenant: whose.

    Every method raises `StoreUnavailable` when the store does not answer.

    """

    def __init__(self, store: RedisStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._key = store.keys.dead(tenant)

    def count(self) -> int:
        """Return how many there are."""
        return int(self._store.link.call("ZCARD", self._key))

    def newest(self, before: Place | None = None, *, most: int = PAGE) -> list[Place]:
        """Return letters, newest first, from those that come after a place in this order."""
        return self._walk("ZREVRANGEBYSCORE", "+inf", "-inf", before, most)

    def oldest(self, after: Place | None = None, *, most: int = PAGE) -> list[Place]:
        """Return letters, oldest first, from those that come after a place in this order."""
        return self._walk("ZRANGEBYSCORE", "-inf", "+inf", after, most)

    def find(self, task_id: str) -> Place | None:
        """Return a task's letter, with the time in milliseconds at which it was put there."""
        score = self._store.link.call("ZSCORE", self._key, task_id)
        return None if score is None else Place(int(float(score)), task_id)

    def drop(self, *task_ids: str) -> int:
        """Remove letters and leave the records; return how many were there."""
        return int(self._store.link.call("ZREM", self._key, *task_ids))

    def sent_again_as(self, digest: str) -> str | None:
        """Return the task that a request with this idempotency digest has made, if it is kept."""
        raw = self._store.link.call("GET", self._store.keys.replay(self._tenant, digest))
        return None if raw is None else raw.decode().partition(" ")[0]

    def _walk(
        self, command: str, start: str, end: str, last: Place | None, most: int
    ) -> list[Place]:
        """Return what follows a place; of those put there in the same millisecond, by id."""
        found: list[Place] = []
        offset = 0
        first = start if last is None else str(last.score)
        is_down = command == "ZREVRANGEBYSCORE"
        while len(found) < most:
            flat = self._store.link.call(
                command, self._key, first, end, "WITHSCORES", "LIMIT", offset, PAGE
            )
            places = [
                Place(int(float(score)), member.decode())
                for member, score in zip(flat[::2], flat[1::2], strict=True)
            ]
            found += [
                place
                for place in places
                if last is None or (place < last if is_down else place > last)
            ]
            if len(places) < PAGE:
                break
            offset += PAGE
        return found[:most]
