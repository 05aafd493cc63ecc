"""Pauses, drains and purges on real servers: what is in force, who is held, what is left alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.ports import Claim, Ending
from async_nodes.core.states import EventType, NodeState, Reason
from async_nodes.storage import controls as controls_module
from async_nodes.storage.controls import Control, Controls, Done, Mode
from async_nodes.storage.listing import Filters
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer

QUEUE, NODE = "queue:io.default", "node:echo"


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    """Give a store with a worker."""
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.close()


@pytest.fixture
def controls(store: RealStore) -> Controls:
    """Return the controls of the store."""
    return Controls(store.store)


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


def hold(store: RealStore, count: int) -> list[str]:
    """Submit tasks and let a worker come by, which finds them paused."""
    ids = [submit(store) for _ in range(count)]
    assert store.take(["io.default"], count, worker=WORKER).claims == ()
    return ids


def taken(store: RealStore, most: int = 50) -> list[str]:
    """Return what a worker gets."""
    return [one.task_id for one in store.take(["io.default"], most, worker=WORKER).claims]


# -- what is in force ------------------------------------------------------------------------------


def test_what_is_said_twice_is_in_force_since_the_first_time(
    store: RealStore, controls: Controls
) -> None:
    """A new reason replaces the old one, no reason leaves it, another mode begins anew."""
    first = controls.put(QUEUE, Mode.PAUSE, 'a "quoted" reason: 原因')
    assert first.reason == 'a "quoted" reason: 原因'
    assert abs(first.since_ms - store.now_ms()) < 5_000
    time.sleep(0.005)

    assert controls.put(QUEUE, Mode.PAUSE) == first
    second = controls.put(QUEUE, Mode.PAUSE, '"mode":"drain"')
    assert second == Control(Mode.PAUSE, first.since_ms, '"mode":"drain"')
    drained = controls.put(QUEUE, Mode.DRAIN)
    assert (drained.mode, drained.reason) == (Mode.DRAIN, None)
    assert drained.since_ms > first.since_ms
    assert controls.all() == {QUEUE: drained}
    controls.end(QUEUE)
    controls.end(QUEUE)
    assert controls.all() == {}


def test_a_full_server_still_takes_a_pause_and_its_end(
    store: RealStore, controls: Controls
) -> None:
    """That is when one needs it."""
    version = store.link.call("INFO", "server")
    if b"redis_version:6" in version:
        pytest.skip("the server knows no script flags")
    hold_first = submit(store)
    store.link.call("CONFIG", "SET", "maxmemory", 1)
    try:
        controls.put(QUEUE, Mode.PAUSE)
        assert taken(store) == []
        assert store.read(hold_first).why is Reason.PAUSED
        controls.end(QUEUE)
        assert controls.all() == {}
    finally:
        store.link.call("CONFIG", "SET", "maxmemory", 0)


# -- pause and resume ------------------------------------------------------------------------------


def test_a_resumed_queue_goes_on_in_its_order(store: RealStore, controls: Controls) -> None:
    """More tasks than one script releases."""
    controls.put(QUEUE, Mode.PAUSE)
    ids = [submit(store) for _ in range(450)]
    while store.depths()["io.default"]:
        assert taken(store, 100) == []
    assert controls.held([QUEUE, NODE]) == [450, 0]

    assert controls.release([QUEUE]) == Done(0, more=True)
    controls.end(QUEUE)
    assert controls.release([QUEUE]) == Done(450, more=False)
    assert controls.release([QUEUE, NODE]) == Done(0, more=False)
    assert [one for _ in range(5) for one in taken(store, 100)] == ids


def test_whoever_dies_half_way_is_finished_by_the_sweeper(
    store: RealStore, controls: Controls
) -> None:
    """Once the pause is ended, all that was held is dispatched, whoever does it."""
    controls.put(QUEUE, Mode.PAUSE)
    ids = [submit(store) for _ in range(250)]
    while store.depths()["io.default"]:
        taken(store, 100)
    controls.end(QUEUE)
    assert controls.release([QUEUE], seconds=0) == Done(0, more=True)
    for _ in range(2):
        store.sweep()

    assert controls.held([QUEUE]) == [0]
    assert [one for _ in range(3) for one in taken(store, 100)] == ids


def test_retries_and_delays_that_become_due_are_held_too(
    store: RealStore, controls: Controls
) -> None:
    """A pause holds whatever would start, and what runs goes on to its end."""
    retried, running = submit(store), submit(store)
    claims = {one.task_id: one for one in store.take(["io.default"], 9, worker=WORKER).claims}
    controls.put(NODE, Mode.PAUSE)
    delayed = submit(store, delay_ms=1)
    store.finish(retried, claims[retried].fence, Ending(event=EventType.RETRY, delay_ms=1))
    time.sleep(0.01)
    store.fire_timers()
    assert taken(store) == []

    assert controls.held([NODE]) == [2]
    assert {store.read(one).why for one in (delayed, retried)} == {Reason.PAUSED}
    assert store.finish(
        running, claims[running].fence, Ending(event=EventType.COMPLETE, output=b"1")
    ).applied
    controls.end(NODE)
    controls.release([NODE])
    assert set(taken(store)) == {delayed, retried}


@pytest.mark.parametrize("scope", [QUEUE, NODE])
def test_held_tasks_that_end_leave_the_line(
    store: RealStore, controls: Controls, scope: str
) -> None:
    """Cancelled, deleted, past their deadline: they are not counted and not released."""
    controls.put(scope, Mode.PAUSE)
    deadline = store.now_ms() + 400
    late = submit(store, deadline_ms=deadline)
    cancelled, kept = hold(store, 2)
    assert controls.held([scope]) == [3]
    assert store.cancel(cancelled, tenant="default").verdict == "cancelled"
    assert store.delete(cancelled, tenant="default").verdict == "deleted"
    time.sleep(0.45)
    assert store.fire_timers().ended == (late,)
    assert (store.read(late).state, store.read(late).why) == (NodeState.FAILED, Reason.DEADLINE)

    assert controls.held([scope]) == [1]
    controls.end(scope)
    assert controls.release([scope]) == Done(1, more=False)
    assert taken(store) == [kept]


def test_a_task_of_two_pauses_waits_for_both_ends(store: RealStore, controls: Controls) -> None:
    """Released by its queue it is held by its node."""
    for scope in (QUEUE, NODE):
        controls.put(scope, Mode.PAUSE)
    (task_id,) = hold(store, 1)
    controls.end(QUEUE)
    controls.release([QUEUE])
    assert taken(store) == []
    assert controls.held([QUEUE, NODE]) == [0, 1]

    controls.end(NODE)
    controls.release([NODE])
    assert taken(store) == [task_id]


def test_held_tasks_make_room_at_the_gate(redis_server: RedisServer) -> None:
    """Those behind it are let in; a paused node does not stop the others of its queue."""
    store = open_store(redis_server, gate_limit=1)
    store.register(WORKER)
    Controls(store.store).put(NODE, Mode.PAUSE)
    ids = [submit(store) for _ in range(3)]
    assert taken(store) == []

    assert Controls(store.store).held([NODE]) == [3]
    assert {store.read(one).why for one in ids} == {Reason.PAUSED}
    Controls(store.store).end(NODE)
    assert Controls(store.store).release([NODE]) == Done(3, more=False)
    assert [one for _ in range(3) for one in taken(store)] == ids
    store.link.close()


# -- purge -----------------------------------------------------------------------------------------


def test_a_purge_cancels_what_waits_and_nothing_else(store: RealStore, controls: Controls) -> None:
    """In the queue, delayed, backing off, held; not what runs, not other queues."""
    running, retried = submit(store), submit(store)
    claims = {one.task_id: one for one in store.take(["io.default"], 9, worker=WORKER).claims}
    store.finish(retried, claims[retried].fence, Ending(event=EventType.RETRY, delay_ms=60_000))
    controls.put(NODE, Mode.PAUSE)
    (held,) = hold(store, 1)
    waiting, delayed = submit(store), submit(store, delay_ms=60_000)
    other = submit(store, list_name="io.low")

    assert controls.purge("default", Filters(lists=("io.default",))) == Done(4, more=False)
    ended = {store.read(one).state for one in (retried, held, waiting, delayed)}
    assert ended == {NodeState.CANCELLED}
    assert store.read(running).state is NodeState.RUNNING
    assert not store.read(running).cancel
    assert store.read(other).state is NodeState.PENDING
    assert store.json_of(held)["error"]["code"] == "cancelled"
    assert store.fire_timers().ended == (retried,)  # for its compensation
    assert controls.purge("default", Filters(lists=("io.default",))) == Done(0, more=False)
    assert controls.purge("default", Filters(nodes=("echo",))) == Done(1, more=False)


def test_a_purge_has_its_time(
    store: RealStore, controls: Controls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left when it is up is left for another call."""
    monkeypatch.setattr(controls_module, "AT_ONCE", 10)
    ids = [submit(store) for _ in range(30)]
    ticks = iter(range(100))
    hurried = Controls(store.store, clock=lambda: next(ticks))

    assert hurried.purge("default", Filters(), seconds=2.5) == Done(20, more=True)
    assert sum(store.read(one).state.terminal for one in ids) == 20
    assert controls.purge("default", Filters()) == Done(10, more=False)


def test_a_purge_is_of_one_tenant(store: RealStore, controls: Controls) -> None:
    """Another's tasks are no business of it."""
    theirs = submit(store, tenant="other")

    assert controls.purge("default", Filters()) == Done(0, more=False)
    assert store.read(theirs).state is NodeState.PENDING


def test_a_task_that_starts_meanwhile_is_left_alone(store: RealStore) -> None:
    """Between the look and the cancel a worker may have taken it."""
    task_id = submit(store)
    claim = store.start(task_id)
    assert isinstance(claim, Claim)

    tenant = "default".ljust(32)
    passed, gone, foreign = store.run(
        "purge", task_id, tenant, IDS.make(5), tenant, task_id, "other".ljust(32)
    )
    assert passed == [b"passed", 2, b"Running"]
    assert gone == foreign == [b"gone"]
    assert store.link.call("EXISTS", KEYS.due) == 0
