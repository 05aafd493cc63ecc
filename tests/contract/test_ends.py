"""The end of a task is told until somebody has cleaned up after it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from async_nodes.core.ports import Deleted, Ending
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage.ends import Ends
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer

LEASE = 0.2
FAILED = Ending(event=EventType.ERROR, error=b'{"code":"node_failed"}')


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    """Give a store whose leases are short."""
    made = open_store(redis_server, lease_seconds=LEASE)
    made.link.call("ZADD", KEYS.workers, made.now_ms() + 60_000, WORKER)
    yield made
    made.link.close()


@pytest.fixture
def ends(store: RealStore) -> Ends:
    """Give the ends of one worker."""
    return Ends(store.store, LEASE)


def started(store: RealStore) -> tuple[str, str]:
    """Return the id and the fence of a task that runs."""
    task_id = store.submit(submission(IDS.make(store.now_ms()))).task_id
    return task_id, store.start(task_id).fence


def told(store: RealStore, *, after: float = 0.0) -> tuple[str, ...]:
    """Return the ends of which a worker is told after some seconds."""
    time.sleep(after)
    found: tuple[str, ...] = store.fire_timers().ended
    return found


def test_an_end_is_told_to_others_when_its_worker_is_silent(store: RealStore, ends: Ends) -> None:
    """Not before the lease is over, and again a lease later, until it is settled."""
    task_id, fence = started(store)
    ends.expect(task_id)
    store.finish(task_id, fence, FAILED)

    assert told(store) == ()
    assert told(store, after=LEASE + 0.05) == (task_id,)
    assert told(store) == ()
    assert told(store, after=LEASE + 0.05) == (task_id,)
    ends.settle(task_id)
    assert told(store, after=LEASE + 0.05) == ()


def test_who_cleans_up_for_long_is_believed(store: RealStore, ends: Ends) -> None:
    """As long as it renews; what has been settled is not renewed."""
    task_id, fence = started(store)
    store.finish(task_id, fence, FAILED)
    assert ends.begin(task_id) == 1
    for _ in range(4):
        assert told(store, after=LEASE / 2) == ()
        ends.renew(store.store)
    ends.settle(task_id)
    ends.renew(store.store)

    assert told(store, after=LEASE + 0.05) == ()


def test_those_who_begin_are_counted(store: RealStore, ends: Ends) -> None:
    """So that what ends every worker is not begun for ever; to settle forgets the count."""
    task_id, fence = started(store)
    store.finish(task_id, fence, FAILED)

    assert [ends.begin(task_id) for _ in range(3)] == [1, 2, 3]
    ends.settle(task_id)
    assert store.link.call("KEYS", f"{KEYS.base}tried:*") == []


def test_what_goes_on_after_all_is_not_told(store: RealStore, ends: Ends) -> None:
    """A worker may die between the word and the end: the task runs again."""
    task_id, _ = started(store)
    ends.expect(task_id)

    assert told(store, after=LEASE + 0.05) == ()
    assert told(store, after=LEASE + 0.05) == ()


def test_a_task_that_succeeds_after_all_has_no_end_to_tell(store: RealStore, ends: Ends) -> None:
    """Its worker expected a failure and died; the next one did it: it can be deleted at once."""
    task_id, fence = started(store)
    ends.expect(task_id)
    store.finish(task_id, fence, Ending(event=EventType.COMPLETE, output=b"1"))

    assert told(store, after=LEASE + 0.05) == ()
    ends.expect(task_id)
    assert store.delete(task_id, tenant="default") == Deleted("deleted")
    assert told(store, after=LEASE + 0.05) == ()


def test_an_end_without_a_worker_is_told_again(store: RealStore, ends: Ends) -> None:
    """A passed deadline, a cancel that nobody heeds, one between two attempts."""
    late, fence = started(store)
    store.finish(late, fence, Ending(event=EventType.RETRY, delay_ms=60_000))
    store.link.call("ZADD", KEYS.due, 1, f"d:{late}")
    deaf, _ = started(store)
    store.cancel(deaf, tenant="default")
    store.link.call("ZADD", KEYS.due, 1, f"c:{deaf}")
    waiting, fence = started(store)
    store.finish(waiting, fence, Ending(event=EventType.RETRY, delay_ms=60_000))
    store.cancel(waiting, tenant="default")
    all_of_them = {late, deaf, waiting}

    assert set(told(store, after=0.01)) == all_of_them
    assert set(told(store, after=LEASE + 0.05)) == all_of_them
    for task_id in all_of_them:
        ends.settle(task_id)
    assert told(store, after=LEASE + 0.05) == ()


def test_an_end_by_a_sweep_is_told_again(store: RealStore, ends: Ends) -> None:
    """The worker that swept may die of what it then does."""
    task_id, _ = started(store)
    store.cancel(task_id, tenant="default")
    store.expire(WORKER)

    assert store.sweep().ended == (task_id,)
    assert told(store, after=LEASE + 0.05) == (task_id,)
    ends.settle(task_id)
    assert store.delete(task_id, tenant="default") == Deleted("deleted")


def test_a_task_that_never_started_leaves_nothing_to_tell(store: RealStore) -> None:
    """There is nothing that could be cleaned up."""
    task_id = store.submit(submission(IDS.make(store.now_ms()), delay_ms=60_000)).task_id
    store.link.call("ZADD", KEYS.due, 1, f"d:{task_id}")

    assert told(store) == (task_id,)
    assert store.read(task_id).state is NodeState.FAILED
    assert told(store, after=LEASE + 0.05) == ()
