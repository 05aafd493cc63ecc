"""How long ended tasks are kept when memory runs short: the oldest go before their time.

Redis is run with `noeviction`, because what it would evict by itself may be a task that waits. So
that it never comes to a refused write, the workers' keepers forget ended tasks, oldest first, from
70 % of `maxmemory` on. What is forgotten so is answered like any task whose time to live is over.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

SHARE = 0.70
"""Of `maxmemory`, from which on ended tasks are forgotten."""

LAST_RESORT = 0.90
"""From which on dead letters are, too, and tasks whose node is still to clean up after them."""

YOUNGEST_MS = 60_000
"""Since its end, before which no task is forgotten: its client may be about to read it."""

PAGE = 200
_USED = re.compile(rb"used_memory:(\d+)")
_MOST = re.compile(rb"maxmemory:(\d+)")


class Retention:
    """Make room in a store.

    Args:
        store: the tasks.
        tenants: whose; None for everybody's.
        youngest_ms: milliseconds since its end that a task has to have.

    """

    def __init__(
        self,
        store: RedisStore,
        *,
        tenants: Sequence[str] | None = None,
        youngest_ms: int = YOUNGEST_MS,
    ) -> None:
        self._store = store
        self._tenants = tenants
        self._youngest_ms = youngest_ms

    def pressure(self) -> float:
        """Return the share of `maxmemory` that is used, 0 where there is no limit."""
        info: bytes = self._store.link.call("INFO", "memory")
        used, most = _USED.search(info), _MOST.search(info)
        limit = int(most[1]) if most else 0
        return int(used[1]) / limit if used and limit else 0.0

    def relieve(self, *, seconds: float = 0.5) -> int:
        """Forget ended tasks until memory is below `SHARE`; return how many went.

        Args:
            seconds: how long at most; what is left waits for the next call.

        """
        removed, until = 0, time.monotonic() + seconds
        if self.pressure() <= SHARE:
            return 0
        for tenant in self._store.tenants() if self._tenants is None else self._tenants:
            offset = 0
            while (pressure := self.pressure()) > SHARE and time.monotonic() < until:
                letters = "1" if pressure > LAST_RESORT else "0"
                gone, stay, seen = self._store.run(
                    "evict", tenant, offset, PAGE, self._youngest_ms, letters
                )
                removed += int(gone)
                offset += int(stay)
                if seen < PAGE:
                    break
        return removed
