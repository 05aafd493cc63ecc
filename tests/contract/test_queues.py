"""The queues and workers on real servers: counts, ages, places in line, and why a task waits."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.ports import Ending
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType
from async_nodes.core.waiting import explain
from async_nodes.storage import queues as queues_module
from async_nodes.storage.controls import Controls, Mode
from async_nodes.storage.queues import Queue, Queues
from async_nodes.storage.workers import Workers
from tests.contract.real_store import IDS, OTHER, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer


def info(**fields: Any) -> bytes:
    """Return what a worker says of itself."""
    said = {"concurrency": 2, "rates": {"io.high": 0.5, "io.default": 4.0, "io.low": 0.0}}
    return json.dumps({**said, **fields}).encode()


@pytest.fixture
def store(one_server: RedisServer) -> Iterator[RealStore]:
    """Give a store with a worker that says something of itself."""
    made = open_store(one_server)
    made.register(WORKER, info())
    yield made
    made.link.close()


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


def seen(store: RealStore, name: str = "io.default") -> Queue:
    return Queues(store.store).overview().queues[LISTS.index(name)]


def why(store: RealStore, task_id: str) -> tuple[str, float | None]:
    """Return the code and the estimate for a task."""
    said = explain(Queues(store.store).standing(store.read(task_id)).facts)
    return said.code, said.eta_seconds


def place(store: RealStore, task_id: str) -> tuple[str, int | None, int]:
    """Return where a task stands."""
    found = Queues(store.store).standing(store.read(task_id))
    return found.place, found.position, found.length


# -- the overview ----------------------------------------------------------------------------------


def test_an_empty_store_has_empty_queues(store: RealStore) -> None:
    """All six are there, with who takes from them."""
    overview = Queues(store.store).overview()

    assert overview.exact
    assert [queue.name for queue in overview.queues] == list(LISTS)
    assert {queue.oldest_seconds for queue in overview.queues} == {None}
    assert sum(queue.depth + queue.unclaimed + queue.held for queue in overview.queues) == 0
    assert [queue.crew.workers for queue in overview.queues] == [1, 1, 1, 0, 0, 0]


def test_a_queue_tells_what_waits_and_who_works(store: RealStore) -> None:
    """Waiting, delayed, backing off, running: each task is counted where it is."""
    retried, _running = submit(store), submit(store)
    claims = {one.task_id: one for one in store.take(["io.default"], 9, worker=WORKER).claims}
    store.finish(retried, claims[retried].fence, Ending(event=EventType.RETRY, delay_ms=60_000))
    first = submit(store)
    for _ in range(3):
        submit(store)
    for _ in range(2):
        submit(store, delay_ms=60_000, deadline_ms=store.now_ms() + 90_000)
    store.set_column(first, "queued_at", 1)
    time.sleep(0.05)
    store.pop()  # by a worker that has not started it yet

    queue = seen(store)
    assert (queue.depth, queue.unclaimed) == (3, 4)
    assert (queue.delayed, queue.backoff, queue.held, queue.parked) == (2, 1, 0, 0)
    assert queue.oldest_seconds is not None
    assert 0.04 < queue.oldest_seconds < 10
    assert (queue.crew.workers, queue.crew.slots, queue.crew.running) == (1, 2, 1)
    assert queue.crew.rate == 4.0
    assert seen(store, "io.low").unclaimed == 0


def test_many_timers_are_not_all_looked_at(
    store: RealStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count is then a least one, and says so."""
    monkeypatch.setattr(queues_module, "MOST_TIMERS", 5)
    for _ in range(5):
        submit(store, delay_ms=60_000)
    assert Queues(store.store).overview().exact

    submit(store, delay_ms=60_000)
    overview = Queues(store.store).overview()
    assert not overview.exact
    assert overview.queues[1].delayed == 5


def test_a_queue_tells_its_pause(store: RealStore) -> None:
    """What is in force, and how many it holds; a drain holds nobody."""
    Controls(store.store).put("queue:io.default", Mode.PAUSE, "why not")
    Controls(store.store).put("queue:cpu.low", Mode.DRAIN)
    submit(store)
    store.take(["io.default"], 9, worker=WORKER)
    queue, drained = seen(store), seen(store, "cpu.low")

    assert queue.control is not None
    assert (queue.control.mode, queue.control.reason, queue.held) == (Mode.PAUSE, "why not", 1)
    assert drained.control is not None
    assert drained.control.mode is Mode.DRAIN


def test_a_worker_of_the_release_before_counts_too(store: RealStore) -> None:
    """It says nothing of itself: it works at the lists of its kind, with slots unknown."""
    store.register(OTHER)
    quiet = Workers(store.store).find(OTHER)

    assert quiet is not None
    assert (quiet.kind, quiet.slots, quiet.said) == ("cpu", None, {})
    assert 0 < quiet.lease_seconds <= 15
    assert seen(store, "cpu.high").crew.workers == 1
    assert seen(store, "cpu.high").crew.slots is None
    assert [one.worker_id for one in Workers(store.store).all()] == [OTHER, WORKER]
    assert Workers(store.store).find("io-9-00000000") is None


def test_a_worker_shows_what_it_runs(store: RealStore) -> None:
    """The tenant's own tasks, the longest running first."""
    first = submit(store)
    store.start(first)
    time.sleep(0.005)
    second = submit(store)
    store.start(second)
    store.start(submit(store, tenant="other"))

    shown = Workers(store.store).tasks(WORKER, "default")
    assert [one["task_id"] for one in shown] == [first, second]
    assert shown[0]["node"] == "echo"
    assert shown[0]["started_at"] < shown[1]["started_at"]


# -- one task --------------------------------------------------------------------------------------


def test_a_task_in_line_has_a_place(store: RealStore) -> None:
    """And an estimate by the rate of late."""
    ids = []
    for _ in range(5):
        ids.append(submit(store))
        time.sleep(0.002)
    assert [place(store, one) for one in ids] == [("queue", at + 1, 5) for at in range(5)]
    assert why(store, ids[0]) == ("dispatching", 0.0)
    assert why(store, ids[4]) == ("queued", 5 / 4)

    store.take(["io.default"], 2, worker=WORKER)
    assert place(store, ids[2]) == ("queue", 1, 3)
    assert why(store, ids[3]) == ("busy", 2 / 4)
    assert why(store, ids[0]) == ("running", 0.0)


def test_what_waits_for_a_timer_is_in_no_line(store: RealStore) -> None:
    """Its time is told, and what failed before."""
    delayed = submit(store, delay_ms=60_000)
    code, eta = why(store, delayed)
    assert (code, place(store, delayed)) == ("delayed", ("", None, 0))
    assert eta == pytest.approx(60, abs=2)

    retried = submit(store)
    claim = store.start(retried)
    error = b'{"code":"node_failed","type":"E","message":"no luck","retryable":true}'
    ending = Ending(event=EventType.RETRY, delay_ms=30_000, error=error)
    store.finish(retried, claim.fence, ending)
    facts = Queues(store.store).standing(store.read(retried)).facts
    assert facts.error == "no luck"
    assert why(store, retried)[0] == "backoff"


def test_a_lost_task_is_first_again(store: RealStore) -> None:
    """Whatever was submitted meanwhile."""
    task_id = submit(store)
    store.start(task_id)
    submit(store)
    store.lost(task_id, worker=WORKER, dispatch=0, isolated=False)

    assert why(store, task_id) == ("again", 0.0)
    assert place(store, task_id) == ("queue", 1, 2)


def test_without_a_worker_it_is_said_so(one_server: RedisServer) -> None:
    """A worker of the other kind does not help."""
    store = open_store(one_server)
    store.register(OTHER)

    assert why(store, submit(store)) == ("no_worker", None)
    store.link.close()


@pytest.mark.parametrize("scope", ["queue:io.default", "node:echo"])
def test_a_held_task_has_a_place_among_the_held(store: RealStore, scope: str) -> None:
    """Before it is held, too, the pause is why; afterwards it is let go in its turn."""
    controls = Controls(store.store)
    controls.put(scope, Mode.PAUSE, "quota")
    ids = [submit(store) for _ in range(3)]
    assert {why(store, one)[0] for one in ids} == {"paused"}
    store.take(["io.default"], 9, worker=WORKER)

    assert [place(store, one) for one in ids] == [("hold", at + 1, 3) for at in range(3)]
    assert why(store, ids[2]) == ("paused", None)
    facts = Queues(store.store).standing(store.read(ids[2])).facts
    assert (facts.paused, facts.paused_reason) == (scope, "quota")
    controls.end(scope)
    assert why(store, ids[2]) == ("releasing", 3 / 4)
    controls.release([scope])
    assert why(store, ids[0])[0] == "dispatching"


def test_a_drained_queue_is_no_reason_to_wait(store: RealStore) -> None:
    """What is in it is worked off."""
    Controls(store.store).put("queue:io.default", Mode.DRAIN)

    assert why(store, submit(store)) == ("dispatching", 0.0)


def test_a_parked_task_has_a_place_at_the_gate(one_server: RedisServer) -> None:
    """Those before it are let in first."""
    store = open_store(one_server, gate_limit=1)
    store.register(WORKER, info())
    ids = [submit(store) for _ in range(3)]

    assert [place(store, one) for one in ids] == [("queue", 1, 1), ("gate", 1, 2), ("gate", 2, 2)]
    assert why(store, ids[2]) == ("parked", 2 / 4)
    assert seen(store).parked == 2
    store.link.close()
