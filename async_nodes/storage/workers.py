"""The workers that live: their leases, what they say of themselves, what they run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.priority import LISTS
from async_nodes.storage.listing import Listing

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

MOST_TASKS: Final = 100
"""Running tasks that are shown of one worker."""

_NOBODY: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Worker:
    """Hold what is known of one worker.

    Attributes:
        worker_id: its id, which begins with its kind.
        lease_seconds: left until its lease ends.
        running: tasks under its lease now.
        said: what it says of itself; empty for a worker of an earlier release.

    """

    worker_id: str
    lease_seconds: float
    running: int
    said: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Return ``io`` or ``cpu``."""
        return self.worker_id.partition("-")[0]

    @property
    def slots(self) -> int | None:
        """Return how many bodies it runs at once, None when it does not tell."""
        found: int | None = self.said.get("concurrency")
        return found

    @property
    def rates(self) -> Mapping[str, float]:
        """Return the tasks a second that it has taken of late, by list that it takes from."""
        found: Mapping[str, float] | None = self.said.get("rates")
        if found is None:
            return {name: 0.0 for name in LISTS if name.startswith(f"{self.kind}.")}
        return found


class Workers:
    """Look at the workers.

    Args:
        store: which holds their leases.

    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def all(self) -> list[Worker]:
        """Return the live workers, by id."""
        leases = self._store.workers()
        names, keys = sorted(leases), self._store.keys
        found = self._store.link.call_many(
            [
                *(("GET", keys.worker_info(name)) for name in names),
                *(("SCARD", keys.running(name)) for name in names),
            ]
        )
        said, running = found[: len(names)], found[len(names) :]
        return [
            Worker(name, leases[name], int(count), _said(raw))
            for name, raw, count in zip(names, said, running, strict=True)
        ]

    def find(self, worker_id: str) -> Worker | None:
        """Return one live worker, or None."""
        return next((one for one in self.all() if one.worker_id == worker_id), None)

    def tasks(self, worker_id: str, tenant: str) -> list[dict[str, Any]]:
        """Return some of the tenant's tasks that a worker runs, the longest running first.

        Each is a summary as in lists of tasks.
        """
        ids = self._store.link.call("SRANDMEMBER", self._store.keys.running(worker_id), MOST_TASKS)
        found = Listing(self._store).summaries(tenant, [one.decode() for one in ids])
        running = [one for one in found if one["state"] == "Running"]
        return sorted(running, key=lambda one: str(one["started_at"]))


@dataclass(frozen=True, slots=True)
class Crew:
    """Sum up the workers that take from one list.

    Attributes:
        workers: how many.
        slots: bodies that they run at once; None when one does not tell.
        running: bodies that they run now, of this list or of others.
        rate: tasks a second that they have taken from the list of late.

    """

    workers: int
    slots: int | None
    running: int
    rate: float


def crew(workers: Iterable[Worker], list_name: str) -> Crew:
    """Return who works at a list."""
    those: Sequence[Worker] = [one for one in workers if list_name in one.rates]
    slots = [one.slots for one in those]
    told = [count for count in slots if count is not None]
    return Crew(
        workers=len(those),
        slots=sum(told) if len(told) == len(slots) else None,
        running=sum(one.running for one in those),
        rate=sum(one.rates[list_name] for one in those),
    )


def _said(raw: bytes | None) -> Mapping[str, Any]:
    if not raw:
        return _NOBODY
    found: Mapping[str, Any] = json.loads(raw)
    return found
