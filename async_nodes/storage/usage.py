"""What nodes have used, added up by day (step *store*).

The script that ends an attempt adds its counts to the totals of the day in the same transaction,
and a row that is sent again finds the attempt ended: each attempt counts once. Days are UTC's,
whatever the time zones of the processes that share a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

MOST_DAYS: Final = 400
"""Days that are kept."""

Counts = dict[str, int]
"""By name, such as ``total_tokens``."""


class Usage:
    """Read a tenant's totals.

    Args:
        store: where they are.
        tenant: whose.

    """

    def __init__(self, store: RedisStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def of(self, days: Sequence[date]) -> list[dict[str, Counts]]:
        """Return what each node has counted on each of the days.

        Raises:
            StoreUnavailable: the store does not answer.

        """
        keys = [self._store.keys.usage(self._tenant, f"{day:%Y%m%d}") for day in days]
        replies = self._store.link.call_many([("HGETALL", key) for key in keys])
        return [_by_node(reply) for reply in replies]


def _by_node(reply: object) -> dict[str, Counts]:
    if isinstance(reply, Exception):
        raise reply
    flat = list(reply) if isinstance(reply, list) else []
    found: dict[str, Counts] = {}
    for name, count in zip(flat[::2], flat[1::2], strict=True):
        node, _, counted = name.decode().partition("/")
        found.setdefault(node, {})[counted] = int(count)
    return found
