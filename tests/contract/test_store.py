"""What the store promises, on the memory oracle and on real servers alike."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim, Deleted, Ending, Refused
from async_nodes.core.states import EventType, NodeState
from tests.contract.oracle import Oracle
from tests.contract.real_store import IDS, OTHER, WORKER, open_store, submission
from tests.servers import RedisServer, on_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

STORES = ["oracle", *on_servers()]
COMPLETE = Ending(event=EventType.COMPLETE, output=b'{"y": [1, 2]}', usage=b'{"tokens":3}')
ERROR = b'{"code":"node_failed","type":"ValueError","message":"no","retryable":true}'


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, _servers: dict[str, RedisServer]) -> Iterator[Any]:
    """Return an empty store with two workers registered, one test on each kind."""
    if request.param == "oracle":
        made: Any = Oracle(now_ms)
        made.dispatch_of = lambda task_id: made.tasks[task_id].snap.dispatch
    else:
        server = _servers.setdefault(request.param, RedisServer(request.param))
        server.empty()
        made = open_store(server)
    made.register(WORKER)
    made.register(OTHER)
    yield made
    if request.param != "oracle":
        made.link.close()


def submit(store: Any, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(now_ms()), **fields)).task_id)


def start(store: Any, task_id: str, *, worker: str = WORKER, fence: str = "f" * 16) -> Claim:
    claim = store.claim(task_id, store.dispatch_of(task_id), worker=worker, fence=fence)
    assert isinstance(claim, Claim)
    return claim


def record(store: Any, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.read(task_id).json)
    return found


def test_the_life_of_a_task(store: Any) -> None:
    """Submitted, claimed, shown at work, finished: the record tells it all."""
    task_id = submit(store, inputs=b'{"x": 1.50}')
    assert record(store, task_id)["state"] == "Pending"

    claim = start(store, task_id)
    assert (claim.version, claim.attempt, claim.spent) == (2, 1, 1)
    assert (claim.inputs, claim.private) == (b'{"x": 1.50}', b'{"node":"echo"}')
    assert record(store, task_id)["state"] == "Running"

    store.chunk(task_id, claim.fence, b'{"text":"a","attempt":1,"n":1}', number=1)
    store.progress(task_id, claim.fence, b'{"fraction":0.5,"text":""}')
    store.chunk(task_id, claim.fence, b'{"text":"b","attempt":1,"n":2}', number=2)
    assert record(store, task_id)["progress"] == {"fraction": 0.5, "text": ""}

    ended = store.finish(task_id, claim.fence, COMPLETE)
    assert (ended.applied, ended.version, ended.state) == (True, 4, NodeState.SUCCEEDED)
    whole = record(store, task_id)
    assert (whole["output"], whole["output_bytes"]) == ({"y": [1, 2]}, 13)
    assert whole["usage"] == {"tokens": 3}
    assert [one["versions"] for one in whole["attempts"]] == [[1, 2, 4]]
    positions = [(one.version, one.seq, one.kind) for one in store.entries(task_id, after=(0, 0))]
    assert positions == [(2, 1, "chunk"), (3, 0, "progress"), (3, 1, "chunk")]


def test_a_reader_takes_up_the_stream_where_it_left_off(store: Any) -> None:
    """entries() begins behind the position it is given."""
    task_id = submit(store)
    claim = start(store, task_id)
    for number in range(1, 4):
        store.chunk(task_id, claim.fence, b'{"n":%d}' % number, number=number)

    assert [one.json for one in store.entries(task_id, after=(2, 2))] == [b'{"n":3}']
    assert store.entries(task_id, after=(2, 3)) == []
    assert store.entries("t_00000000000000000000000000", after=(0, 0)) == []


def test_a_chunk_that_is_sent_again_is_stored_once(store: Any) -> None:
    """Its number tells it; the next attempt counts anew; without a number nobody can tell."""
    task_id = submit(store)
    claim = start(store, task_id)
    for number in (1, 1, 2, 1, 2, 0, 0, 2, 1):
        assert store.chunk(task_id, claim.fence, b"{}", number=number).applied
    assert len(store.entries(task_id, after=(0, 0))) == 4

    store.finish(task_id, claim.fence, Ending(event=EventType.RELEASE))
    again = start(store, task_id, fence="g" * 16)
    store.chunk(task_id, again.fence, b"{}", number=1)
    assert len(store.entries(task_id, after=(0, 0))) == 5


def test_only_the_owner_may_report(store: Any) -> None:
    """Another fence is told that it is not the owner, and changes nothing."""
    task_id = submit(store)
    start(store, task_id)
    stranger = "s" * 16

    assert not store.chunk(task_id, stranger, b"{}").applied
    assert not store.progress(task_id, stranger, b"{}").applied
    assert not store.finish(task_id, stranger, COMPLETE).applied
    assert record(store, task_id)["version"] == 2


@pytest.mark.parametrize("dispatch", [0, 2, 99])
def test_a_message_of_another_dispatch_is_stale(store: Any, dispatch: int) -> None:
    """Only the message that counts gives a claim, and only once."""
    task_id = submit(store)

    assert store.claim(task_id, dispatch, worker=WORKER, fence="f" * 16) == Refused("stale")
    start(store, task_id)
    assert store.claim(task_id, 1, worker=OTHER, fence="g" * 16) == Refused("stale")


def test_a_worker_without_a_lease_gets_nothing(store: Any) -> None:
    """Neither one that never registered nor one that gave its lease up."""
    task_id = submit(store)
    store.expire(OTHER)

    for worker in ("io-9-cccccccc", OTHER):
        refused = store.claim(task_id, 1, worker=worker, fence="f" * 16)
        assert refused == Refused("no_lease")
    assert record(store, task_id)["state"] == "Pending"


def test_an_unknown_task_is_gone(store: Any) -> None:
    """Every verb says so in its own way."""
    unknown = IDS.make(1)

    assert store.read(unknown) is None
    assert store.claim(unknown, 1, worker=WORKER, fence="f" * 16) == Refused("gone")
    assert store.finish(unknown, "f" * 16, COMPLETE).state is None
    assert store.cancel(unknown, tenant="default").verdict == "gone"
    assert store.lost(unknown, worker=WORKER, dispatch=1, isolated=False) == "gone"


def test_the_same_key_finds_the_first_task(store: Any) -> None:
    """The same request is answered with the first task, another one is refused with its id."""
    first = submit(store, idempotency="a" * 32, fingerprint="x")
    again = store.submit(submission(IDS.make(2), idempotency="a" * 32, fingerprint="x"))
    other = store.submit(submission(IDS.make(3), idempotency="a" * 32, tenant="other"))

    assert (again.task_id, again.replayed) == (first, True)
    assert other.replayed is False
    with pytest.raises(AsyncNodesError) as refused:
        store.submit(submission(IDS.make(4), idempotency="a" * 32, fingerprint="y"))
    assert (refused.value.code, refused.value.extra) == (
        "idempotency_mismatch",
        {"task_id": first},
    )
    assert store.read(IDS.make(4)) is None


def test_a_failed_attempt_comes_back_after_its_pause(store: Any) -> None:
    """It waits with a reason and its error, is woken by its timer, and counts on."""
    task_id = submit(store)
    claim = start(store, task_id)
    store.finish(task_id, claim.fence, Ending(event=EventType.RETRY, delay_ms=20, error=ERROR))
    waiting = record(store, task_id)
    assert (waiting["state"], waiting["reason"]) == ("Pending", "backoff")
    assert waiting["error"]["type"] == "ValueError"
    assert waiting["next_attempt_at"] is not None

    assert 0 < store.fire_timers().next_in <= 0.02
    time.sleep(0.03)
    assert store.fire_timers().next_in is None
    second = start(store, task_id, fence="g" * 16)
    assert (second.attempt, second.spent) == (2, 2)
    assert record(store, task_id)["error"] is None


def test_a_retry_behind_the_deadline_is_not_made(store: Any) -> None:
    """The task fails now, with the attempt's own error and the deadline as reason."""
    task_id = submit(store, deadline_ms=now_ms() + 60_000)
    claim = start(store, task_id)
    ending = Ending(event=EventType.RETRY, delay_ms=120_000, error=ERROR)

    assert store.finish(task_id, claim.fence, ending).state is NodeState.FAILED
    whole = record(store, task_id)
    assert (whole["reason"], whole["error"]["type"]) == ("deadline", "ValueError")


def test_a_waiting_task_is_cancelled_at_once(store: Any) -> None:
    """Its message is stale from then on; a second cancel finds it ended."""
    task_id = submit(store)

    assert store.cancel(task_id, tenant="other").verdict == "gone"
    assert store.cancel(task_id, tenant="default").verdict == "cancelled"
    assert store.cancel(task_id, tenant="default").verdict == "finished"
    assert store.claim(task_id, 1, worker=WORKER, fence="f" * 16) == Refused("stale")
    assert record(store, task_id)["error"]["stopped"] is True


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (EventType.ERROR, "Cancelled"),
        (EventType.RETRY, "Cancelled"),
        (EventType.RELEASE, "Cancelled"),
        (EventType.CANCEL, "Cancelled"),
        (EventType.COMPLETE, "Succeeded"),
    ],
)
def test_a_running_task_is_asked_to_stop(store: Any, event: EventType, state: str) -> None:
    """Whatever its end is called, it is Cancelled, unless the work was done after all."""
    task_id = submit(store)
    claim = start(store, task_id)

    assert store.cancel(task_id, tenant="default").verdict == "asked"
    assert record(store, task_id)["reason"] == "cancelling"
    assert store.chunk(task_id, claim.fence, b"{}").cancel_asked
    store.finish(task_id, claim.fence, Ending(event=event))
    assert record(store, task_id)["state"] == state


def test_a_dead_worker_s_tasks_run_again_and_its_word_counts_no_more(store: Any) -> None:
    """The next sweep gives them back; the late ending of the dead one is refused."""
    tasks = [submit(store) for _ in range(3)]
    claims = [start(store, task_id) for task_id in tasks]
    store.expire(WORKER)

    assert store.sweep().rescued == 3
    for claim in claims:
        late = store.finish(claim.task_id, claim.fence, COMPLETE)
        assert (late.applied, late.state) == (False, NodeState.PENDING)
        again = start(store, claim.task_id, worker=OTHER, fence="g" * 16)
        assert (again.attempt, again.spent, again.losses) == (2, 1, 1)
        assert store.finish(claim.task_id, again.fence, COMPLETE).applied
    assert store.renew(WORKER) is False


def test_a_report_of_a_dead_child_that_comes_twice_spares_the_next_attempt(store: Any) -> None:
    """It names the dispatch it is about."""
    task_id = submit(store)
    start(store, task_id)

    assert store.lost(task_id, worker=WORKER, dispatch=1, isolated=False) == "lost"
    start(store, task_id, fence="g" * 16)
    assert store.lost(task_id, worker=WORKER, dispatch=1, isolated=False) == "stale"
    assert record(store, task_id)["state"] == "Running"


def test_a_task_that_kills_is_poison(store: Any) -> None:
    """Two losses make it a suspect; two deaths on its own fail it and put it aside."""
    task_id = submit(store)
    said, suspect = [], []
    for number, isolated in enumerate([False, False, True, True]):
        claim = start(store, task_id, fence=f"{number:016d}")
        suspect.append(claim.suspect)
        dispatch = store.dispatch_of(task_id)
        said.append(store.lost(task_id, worker=WORKER, dispatch=dispatch, isolated=isolated))

    assert said == ["lost", "lost", "lost", "poison"]
    assert suspect == [False, False, True, True]
    whole = record(store, task_id)
    assert (whole["state"], whole["reason"], whole["error"]["code"]) == (
        "Failed",
        "poison",
        "poison",
    )
    assert [one["outcome"] for one in whole["attempts"]] == ["lost"] * 4


def test_the_first_ending_wins_for_ever(store: Any) -> None:
    """Sent again it is known; another one changes nothing."""
    task_id = submit(store)
    claim = start(store, task_id)
    first = store.finish(task_id, claim.fence, COMPLETE)
    before = store.read(task_id).json

    assert store.finish(task_id, claim.fence, COMPLETE) == first
    store.finish(task_id, claim.fence, Ending(event=EventType.ERROR, error=ERROR))
    assert store.read(task_id).json == before


def test_many_are_accepted_each_by_itself(store: Any) -> None:
    """One that is refused harms no other; a key that comes twice makes one task."""
    asked = [
        submission(IDS.make(now_ms()), idempotency=key, fingerprint=meaning)
        for key, meaning in [
            ("", "-"),
            ("a" * 32, "f"),
            ("a" * 32, "f"),
            ("a" * 32, "g"),
            ("", "-"),
        ]
    ]
    first, second, again, other, last = store.submit_many(asked)

    assert [one.task_id for one in (first, second, last)] == [
        asked[index].task_id for index in (0, 1, 4)
    ]
    assert (again.task_id, again.replayed, again.state) == (second.task_id, True, NodeState.PENDING)
    assert (other.code, other.extra) == ("idempotency_mismatch", {"task_id": second.task_id})
    assert [store.read(asked[index].task_id) for index in (2, 3)] == [None, None]
    assert store.submit_many([]) == []


def test_a_replay_tells_how_far_the_task_is(store: Any) -> None:
    """State and version are those of the earlier task now."""
    task_id = submit(store, idempotency="a" * 32, fingerprint="f")
    claim = start(store, task_id)
    store.finish(task_id, claim.fence, COMPLETE)

    again = store.submit(submission(IDS.make(now_ms()), idempotency="a" * 32, fingerprint="f"))
    assert (again.task_id, again.version, again.state) == (task_id, 3, NodeState.SUCCEEDED)


def test_a_task_is_deleted_once_it_has_ended(store: Any) -> None:
    """Not before; after that it is gone for everybody, and its key makes a new task."""
    task_id = submit(store, idempotency="a" * 32, fingerprint="f")
    assert store.delete(task_id, tenant="default") == Deleted("unfinished", 1, NodeState.PENDING)
    claim = start(store, task_id)
    assert store.delete(task_id, tenant="default") == Deleted("unfinished", 2, NodeState.RUNNING)
    store.finish(task_id, claim.fence, COMPLETE)

    assert store.delete(task_id, tenant="other") == Deleted("gone")
    assert store.delete(task_id, tenant="default") == Deleted("deleted")
    assert store.delete(task_id, tenant="default") == Deleted("gone")
    assert store.read(task_id) is None
    assert store.entries(task_id, after=(0, 0)) == []
    again = submission(IDS.make(now_ms()), idempotency="a" * 32, fingerprint="g")
    assert not store.submit(again).replayed


def test_a_task_is_not_deleted_before_its_worker_has_cleaned_up(store: Any) -> None:
    """A cancel between two attempts is told to a worker by a timer, which needs the record."""
    task_id = submit(store)
    claim = start(store, task_id)
    store.finish(task_id, claim.fence, Ending(event=EventType.RETRY, delay_ms=60_000, error=ERROR))
    version = store.cancel(task_id, tenant="default").version

    early = store.delete(task_id, tenant="default")
    assert early == Deleted("closing", version, NodeState.CANCELLED)
    assert store.fire_timers().ended == (task_id,)
    assert store.delete(task_id, tenant="default") == early
    store.settle(task_id)
    assert store.delete(task_id, tenant="default") == Deleted("deleted")
