"""What the store has to say when the metrics are asked for (part of the step *store*)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from async_nodes.core.priority import LISTS
from async_nodes.storage.queues import Queues
from async_nodes.telemetry.metrics import Found

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

KOMBU_STEPS: Final = (3, 6, 9)
"""kombu's priorities but for 0, whose messages are in the list of the queue's own name."""

_SEPARATOR: Final = "\x06\x16"


def found(store: RedisStore) -> Found:
    """Return the figures of now.

    Raises:
        StoreUnavailable: the store does not answer.

    """
    queues = Queues(store).overview().queues
    aside = _of_kombu(store)
    server = _server(store)
    return Found(
        depths={one.name: one.depth + aside[one.name] for one in queues},
        elsewhere={
            (one.name, place): getattr(one, place)
            for one in queues
            for place in ("parked", "held", "delayed", "backoff")
        },
        ages={one.name: one.oldest_seconds or 0.0 for one in queues},
        workers=store.workers(),
        dead_letters=_dead_letters(store),
        memory=server.get("used_memory", 0),
        memory_limit=server.get("maxmemory", 0),
        clients=server.get("connected_clients", 0),
    )


def kombu_keys(queue: str) -> list[str]:
    """Return where kombu keeps the messages of a queue that have a priority of its own."""
    return [f"{queue}{_SEPARATOR}{step}" for step in KOMBU_STEPS]


def _of_kombu(store: RedisStore) -> dict[str, int]:
    """Return how many messages somebody sent with a priority of kombu's, by list."""
    keys = [kombu_keys(store.keys.queue(name)) for name in LISTS]
    found = iter(store.link.call_many([("LLEN", key) for some in keys for key in some]))
    return {name: sum(int(next(found)) for _ in KOMBU_STEPS) for name in LISTS}


def _dead_letters(store: RedisStore) -> int:
    keys = [store.keys.dead(tenant) for tenant in store.tenants()]
    return sum(int(one) for one in store.link.call_many([("ZCARD", key) for key in keys]))


def _server(store: RedisStore) -> dict[str, int]:
    """Return the whole numbers among what the server tells of its memory and clients."""
    told = store.link.call_many([("INFO", "memory"), ("INFO", "clients")])
    known: dict[str, int] = {}
    for text in told:
        if not isinstance(text, bytes):
            continue  # a user without the right to ask
        for line in text.decode().splitlines():
            name, _, value = line.partition(":")
            if value.isdecimal():
                known[name] = int(value)
    return known
