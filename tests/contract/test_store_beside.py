"""What is kept beside the record: large outputs, log lines, totals, held tasks, the feed."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim, Ending, Refused
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage import layout
from async_nodes.storage.redis_store import scripts_for
from async_nodes.storage.script_library import LOG_CAP
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, messages, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer

DAY_MS = 86_400_000


@pytest.fixture(params=layout.SCHEMAS)
def store(redis_server: RedisServer, request: pytest.FixtureRequest) -> Iterator[RealStore]:
    """Give a store that writes this release's layout, and one that writes that of the last."""
    made = open_store(redis_server, schema=request.param)
    made.register(WORKER)
    yield made
    made.link.close()


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


def end(store: RealStore, claim: Claim, output: bytes, **more: Any) -> None:
    ending = Ending(event=EventType.COMPLETE, output=output, **more)
    assert store.finish(claim.task_id, claim.fence, ending).applied


# -- both layouts ----------------------------------------------------------------------------------


def test_a_task_lives_its_life_in_either_layout(store: RealStore) -> None:
    """Whatever the schema of a record, it is claimed, reported on, retried, ended and read."""
    task_id = submit(store)
    first = store.start(task_id)
    store.chunk(task_id, first.fence, b'{"text":"a"}', number=1)
    store.log(task_id, first.fence, b'{"text":"said"}', number=1)
    store.finish(task_id, first.fence, Ending(event=EventType.RETRY, delay_ms=1))
    time.sleep(0.01)
    store.fire_timers()
    second = store.start(task_id)
    store.progress(task_id, second.fence, b'{"fraction":0.5}')
    end(store, second, b'{"x":1}')

    document = store.read(task_id)
    assert document.schema in layout.SCHEMAS
    assert (document.state, document.attempt) == (NodeState.SUCCEEDED, 2)
    assert json.loads(document.json)["output"] == {"x": 1}
    assert document.private == b'{"node":"echo"}'
    assert store.output(document) == document.inline_output == b'{"x":1}'


def test_a_store_written_by_a_later_release_is_refused(store: RealStore) -> None:
    """Before anything of it can be misread."""
    store.link.call("ZADD", KEYS.schema, layout.SCHEMA + 1, "records")

    with pytest.raises(AsyncNodesError, match="upgrade this process") as refused:
        scripts_for(store.link, KEYS, messages())

    assert refused.value.code == "unsupported_store"


def test_only_known_layouts_are_written(store: RealStore) -> None:
    """The setting of an upgrade names this release's layout or the one before."""
    with pytest.raises(AsyncNodesError, match="ASYNC_NODES_WRITE_SCHEMA must be 1 or 2, not 7"):
        scripts_for(store.link, KEYS, messages(), schema=7)


def test_a_record_of_a_later_layout_is_not_changed(store: RealStore) -> None:
    """A process that meets one says so, and leaves it as it is."""
    task_id = submit(store)
    store.set_column(task_id, "schema", layout.SCHEMA + 1)
    before = store.link.call("GET", KEYS.task(task_id))

    with pytest.raises(AsyncNodesError, match="which this release cannot change"):
        store.cancel(task_id, tenant="default")

    assert store.link.call("GET", KEYS.task(task_id)) == before


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8_191, 8_192, 8_193, 100_000])
def test_an_output_is_read_wherever_it_is(store: RealStore, size: int) -> None:
    """Up to 8 KiB in the record, beyond that by itself; ranges of either."""
    output = json.dumps("x" * (size - 2)).encode()
    task_id = submit(store)
    end(store, store.start(task_id), output)

    document = store.read(task_id)
    record = json.loads(document.json)
    inline = size <= layout.INLINE_OUTPUT or document.schema == 1
    assert record["output_bytes"] == size
    assert record["output"] == (json.loads(output) if inline else None)
    assert store.output(document) == output
    assert store.output(document, 3, 9) == output[3:10]
    assert store.output(document, size - 4) == output[-4:]


def test_an_output_apart_goes_with_its_task(store: RealStore) -> None:
    """It has the record's time to live, and where it is gone nothing is returned."""
    task_id = submit(store, ttl_ms=60_000)
    end(store, store.start(task_id), json.dumps("x" * 20_000).encode())
    document = store.read(task_id)
    if not document.apart:
        return

    assert 0 < store.link.call("PTTL", KEYS.output(task_id)) <= 60_000
    store.link.call("DEL", KEYS.output(task_id))
    assert store.output(document) is None


def test_no_output_is_none(store: RealStore) -> None:
    """Of a task that waits, and of one that returned null."""
    task_id = submit(store)
    assert store.output(store.read(task_id)) is None

    end(store, store.start(task_id), b"null")
    assert store.output(store.read(task_id)) is None


# -- log lines -------------------------------------------------------------------------------------


def line(number: int, text: str = "said") -> bytes:
    return json.dumps({"n": number, "text": text}).encode()


def test_log_lines_are_kept_once_and_in_order(store: RealStore) -> None:
    """A line that is sent again is not kept twice, and a new attempt's come after."""
    task_id = submit(store)
    first = store.start(task_id)
    for number in (1, 2, 2, 1, 3):
        assert store.log(task_id, first.fence, line(number), number=number).applied
    version = store.read(task_id).version
    store.finish(task_id, first.fence, Ending(event=EventType.RETRY, delay_ms=1))
    time.sleep(0.01)
    store.fire_timers()
    second = store.start(task_id)
    store.log(task_id, second.fence, line(1, "again"), number=1)
    assert not store.log(task_id, first.fence, line(4), number=4).applied

    found = store.log_entries(task_id)
    if store.read(task_id).schema == 1:
        assert found == []
        return
    assert [json.loads(one.json)["text"] for one in found] == ["said"] * 3 + ["again"]
    assert [one.number for one in found] == [1, 2, 3, 1]
    assert found[0].version == version
    rest = store.log_entries(task_id, after=(found[1].version, found[1].number))
    assert rest == found[2:]


def test_the_oldest_log_lines_go_first(redis_server: RedisServer) -> None:
    """A task that talks without end keeps what it said last."""
    store = open_store(redis_server)
    store.register(WORKER)
    task_id = submit(store)
    claim = store.start(task_id)
    text = "x" * 4_000
    for number in range(1, 200):
        store.log(task_id, claim.fence, line(number, text), number=number)

    found = store.log_entries(task_id)
    assert LOG_CAP / 3 < sum(len(one.json) for one in found) <= LOG_CAP
    assert found[-1].number == 199
    assert store.read(task_id).log_bytes == sum(len(one.json) for one in found)
    store.link.close()


# -- pauses ----------------------------------------------------------------------------------------

PAUSE = '{"mode":"pause","since":1}'
SCOPES = ["queue:io.default", "node:echo"]


@pytest.mark.parametrize("scope", SCOPES)
def test_a_paused_task_is_held_and_released(store: RealStore, scope: str) -> None:
    """Its message is done with; released, it is dispatched with a new number, in its old order."""
    store.link.call("HSET", KEYS.controls, scope, PAUSE)
    ids = [submit(store) for _ in range(3)]
    claimed = store.claim(*store.pop(), worker=WORKER, fence=store.fence())
    assert claimed == Refused("held")
    assert store.take(["io.default"], 10, worker=WORKER).claims == ()

    record = store.json_of(ids[0])
    assert (record["state"], record["reason"], record["version"]) == ("Pending", "paused", 2)
    assert store.lists() == {}
    assert store.row("release", (scope, 10)) == [b"ok", 0, 3]
    store.link.call("HDEL", KEYS.controls, scope)
    assert store.row("release", (scope, 2)) == [b"ok", 2, 1]
    store.sweep()

    assert store.link.call("SMEMBERS", KEYS.holds) == []
    assert store.list_of("io.default") == [(one, 2) for one in reversed(ids)]
    assert store.json_of(ids[0])["reason"] is None
    assert [one.task_id for one in store.take(["io.default"], 10, worker=WORKER).claims] == ids


def test_a_message_that_comes_again_does_not_start_a_held_task(store: RealStore) -> None:
    """Neither while it is held nor when it was released meanwhile."""
    store.link.call("HSET", KEYS.controls, SCOPES[0], PAUSE)
    task_id = submit(store)
    store.claim(task_id, 1, worker=WORKER, fence=store.fence())
    for _ in range(2):
        assert store.claim(task_id, 1, worker=WORKER, fence=store.fence()) == Refused("stale")
        store.link.call("HDEL", KEYS.controls, SCOPES[0])
        store.sweep()

    assert isinstance(store.claim(task_id, 2, worker=WORKER, fence=store.fence()), Claim)


def test_a_held_task_can_be_cancelled(store: RealStore) -> None:
    """The walk over the held ones then passes over it."""
    store.link.call("HSET", KEYS.controls, SCOPES[1], PAUSE)
    cancelled, kept = submit(store), submit(store)
    store.take(["io.default"], 10, worker=WORKER)
    store.cancel(cancelled, tenant="default")
    store.link.call("HDEL", KEYS.controls, SCOPES[1])

    assert store.row("release", (SCOPES[1], 10)) == [b"ok", 1, 0]
    assert store.list_of("io.default") == [(kept, 2)]
    assert store.read(cancelled).state is NodeState.CANCELLED


def test_a_drained_queue_is_worked_off(store: RealStore) -> None:
    """What waits runs; to refuse what is new is not the scripts' business."""
    store.link.call("HSET", KEYS.controls, SCOPES[0], '{"mode":"drain","since":1}')
    task_id = submit(store)

    assert [one.task_id for one in store.take(["io.default"], 1, worker=WORKER).claims] == [task_id]


# -- the feed, totals, schedules, workers ----------------------------------------------------------


def test_the_feed_is_written_while_somebody_follows(store: RealStore) -> None:
    """Every change of state with node and tags; nothing at all while nobody does."""
    submit(store)
    assert not store.link.call("EXISTS", KEYS.feed_of("default"))
    store.link.call("SET", KEYS.feed, "1", "PX", 60_000)
    one = submission(IDS.make(store.now_ms()))
    tail = one.tail.replace(b'"tags":[]', '"tags":["]a\\"[","\u4f60"]'.encode())
    shift = len(tail) - len(one.tail)
    object.__setattr__(one, "tail", tail)
    object.__setattr__(one, "inputs_at", one.inputs_at + shift)
    store.submit(one)
    claim = store.start(one.task_id)
    store.chunk(one.task_id, claim.fence, b'{"text":"a"}', number=1)
    end(store, claim, b"1")

    found = store.link.call("XRANGE", KEYS.feed_of("default"), "-", "+")
    events = [json.loads(fields[1]) for _, fields in found]
    assert [event["state"] for event in events] == ["Pending", "Running", "Succeeded"]
    assert {event["task_id"] for event in events} == {one.task_id}
    assert events[0]["tags"] == [']a"[', "\u4f60"]
    assert events[0]["node"] == "echo"
    assert [event["version"] for event in events] == [1, 2, 3]


def test_usage_is_added_up_once(store: RealStore) -> None:
    """Per day and node, however often the end is told."""
    for tokens in (3, 4):
        claim = store.start(submit(store))
        usage = json.dumps({"total_tokens": tokens, "note": "x", "cost": -1}).encode()
        for _ in range(2):
            end(store, claim, b"1", usage=usage)

    day = time.strftime("%Y%m%d", time.gmtime(store.now_ms() / 1000))
    totals = store.link.call("HGETALL", KEYS.usage("default", day))
    assert totals == [b"echo/total_tokens", b"7"]


def test_a_due_schedule_is_offered_until_it_is_fired(store: RealStore) -> None:
    """Whoever is told and dies loses nothing: it is due again a few seconds later."""
    store.link.call("ZADD", KEYS.due, store.now_ms() - 5, "s:default:nightly")

    fired = store.fire_timers()
    assert fired.schedules == ("default:nightly",)
    assert fired.next_in == pytest.approx(5, abs=0.5)
    assert store.fire_timers().schedules == ()


def test_a_worker_says_something_of_itself(store: RealStore) -> None:
    """As long as it lives."""
    assert store.renew(WORKER, [], b'{"slots":300}')
    assert store.link.call("GET", KEYS.worker_info(WORKER)) == b'{"slots":300}'

    store.retire(WORKER)
    assert store.link.call("GET", KEYS.worker_info(WORKER)) is None


def test_a_dead_letter_is_kept_for_a_week(store: RealStore) -> None:
    """Longer than its task asked to be kept, so that somebody can look at it."""
    task_id = submit(store, ttl_ms=1_000, max_dispatches=0)
    store.lost(task_id, worker=WORKER, dispatch=1, isolated=False)

    assert store.dead_letters() == [task_id]
    assert 6 * DAY_MS < store.link.call("PTTL", KEYS.task(task_id)) <= 7 * DAY_MS
    document = store.read(task_id)
    assert document.expires_at == document.finished_at + 7 * DAY_MS
