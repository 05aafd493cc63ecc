"""When memory runs short the oldest ended tasks go first, and nothing that still matters."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType
from async_nodes.storage.retention import LAST_RESORT, SHARE, Retention
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer

OUTPUT = json.dumps("x" * 20_000).encode()


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.call("CONFIG", "SET", "maxmemory", 0)
    made.link.close()


def submit(store: RealStore, **fields: object) -> str:
    time.sleep(0.001)  # a millisecond of its own, so that "oldest" means something
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


def ended(store: RealStore) -> str:
    claim = store.start(submit(store))
    store.finish(claim.task_id, claim.fence, Ending(event=EventType.COMPLETE, output=OUTPUT))
    return str(claim.task_id)


def squeeze(store: RealStore, share: float) -> None:
    """Set the limit so that what is used now is this share of it."""
    used = int(store.link.call("INFO", "memory").split(b"used_memory:")[1].split()[0])
    store.link.call("CONFIG", "SET", "maxmemory", int(used / share))


def test_without_a_limit_nothing_is_forgotten(store: RealStore) -> None:
    """And neither is it below the share."""
    task_id = ended(store)
    retention = Retention(store.store, youngest_ms=0)
    assert (retention.pressure(), retention.relieve()) == (0.0, 0)

    squeeze(store, SHARE - 0.1)
    assert retention.relieve() == 0
    assert store.read(task_id) is not None


def test_the_oldest_ended_tasks_go_first(store: RealStore) -> None:
    """Until memory is below the share again; what waits or runs stays, however old."""
    waiting, running = submit(store), store.start(submit(store)).task_id
    old = [ended(store) for _ in range(300)]
    squeeze(store, 0.8)
    retention = Retention(store.store, youngest_ms=0)
    removed = retention.relieve(seconds=10)

    assert 0 < removed < len(old)
    assert retention.pressure() <= SHARE
    assert [store.read(one) is None for one in old] == [True] * removed + [False] * (300 - removed)
    assert store.read(waiting) is not None
    assert store.read(running) is not None
    assert store.link.call("EXISTS", *[KEYS.output(one) for one in old[:removed]]) == 0
    assert store.link.call("ZCARD", KEYS.index("default")) == 302 - removed


def test_a_task_that_has_just_ended_stays(store: RealStore) -> None:
    """Its client is about to read it."""
    old = [ended(store) for _ in range(20)]
    squeeze(store, 0.95)

    assert Retention(store.store).relieve() == 0
    assert all(store.read(one) for one in old)


def test_dead_letters_are_the_last_to_go(store: RealStore) -> None:
    """Only where the next write would be refused otherwise."""
    letter = submit(store, max_dispatches=0)
    store.lost(letter, worker=WORKER, dispatch=1, isolated=False)
    retention = Retention(store.store, youngest_ms=0)
    squeeze(store, (SHARE + LAST_RESORT) / 2)
    retention.relieve()
    assert store.dead_letters() == [letter]

    squeeze(store, 0.97)
    retention.relieve()
    assert store.dead_letters() == []
    assert store.read(letter) is None


def test_what_is_to_be_cleaned_up_after_goes_as_late(store: RealStore) -> None:
    """A node's clean-up reads the record: it stays until that is done."""
    claim = store.start(submit(store))
    store.run("end", claim.task_id, "expect", 60_000)
    error = b'{"code":"node_failed","type":"E","message":"m","retryable":false}'
    store.finish(claim.task_id, claim.fence, Ending(event=EventType.ERROR, error=error))
    retention = Retention(store.store, youngest_ms=0)
    squeeze(store, (SHARE + LAST_RESORT) / 2)
    assert retention.relieve() == 0
    assert store.read(claim.task_id) is not None

    store.run("end", claim.task_id, "done", 0)
    assert retention.relieve() == 1
    assert store.read(claim.task_id) is None


def test_room_is_made_in_a_full_store(store: RealStore) -> None:
    """Where the server refuses every other write."""
    for _ in range(50):
        ended(store)
    squeeze(store, 1.5)

    assert Retention(store.store, youngest_ms=0).relieve(seconds=5) == 50
