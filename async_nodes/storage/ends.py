"""Who cleans up after a task's end (step *store*), so that no clean-up is lost with a worker.

A timer tells every worker of the end a lease later, unless the one that cleans up goes on saying so
or has said that it is done. Hence at least once: a worker that dies in the middle is followed by
another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore


class Ends:
    """Look after the ends that one process deals with; for all its threads.

    Args:
        store: where the timers are.
        lease_seconds: how long silence is believed.

    Every method that speaks to the store raises `StoreUnavailable` when it does not answer.

    """

    def __init__(self, store: RedisStore, lease_seconds: float) -> None:
        self._store = store
        self._lease_ms = int(lease_seconds * 1000)
        self._under_way: set[str] = set()

    def expect(self, task_id: str) -> None:
        """Say that a task is about to be ended here, and that somebody will have to clean up."""
        self._store.row("end", (task_id, "expect", self._lease_ms))

    def begin(self, task_id: str) -> int:
        """Say that it is cleaned up after here, until `settle`; return how many have begun."""
        self._under_way.add(task_id)
        return int(self._store.row("end", (task_id, "begin", self._lease_ms))[1])

    def settle(self, task_id: str) -> None:
        """Say that nothing is left to clean up."""
        self._under_way.discard(task_id)
        self._store.row("end", (task_id, "done", 0))

    # -- in the thread that keeps the lease, over its own connection ---------------------------

    def renew(self, store: RedisStore) -> None:
        """Say that what is under way goes on."""
        for task_id in tuple(self._under_way):  # one step, whatever other threads do
            store.run("end", task_id, "still", self._lease_ms)

    def leave(self, store: RedisStore, task_id: str, *, seconds: float = 0.0) -> None:
        """Leave the clean-up to whoever is told of the end, after so many seconds."""
        store.run("end", task_id, "expect", int(seconds * 1000))
