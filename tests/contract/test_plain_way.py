"""The usual life of a task leaves the same bytes as the scripts that decide on every column."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_nodes.core.ports import Claim, Ending
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage import plain
from async_nodes.storage.layout import AT, CONTROL_SIZE, FIELDS, INLINE_OUTPUT
from tests.contract.real_store import KEYS, WORKER, RealStore, open_store, submission, tail_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from async_nodes.core.ports import Submission
    from tests.servers import RedisServer

TIMES = [AT[field.name] for field in FIELDS if field.name.endswith("_at") and field.python == "d"]
COMPLETE = Ending(event=EventType.COMPLETE, output=b'{"y":2}')


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.close()


def keyspace(store: RealStore) -> dict[bytes, Any]:
    """Return all that the store holds of tasks, without what differs from run to run."""
    found: dict[bytes, Any] = {}
    for key in store.link.call("KEYS", "*"):
        kind = store.link.call("TYPE", key)
        has_end = store.link.call("PTTL", key) > 0
        if kind == "string":
            value = store.link.call("GET", key)
            found[key] = has_end, timeless(value) if b":t:" in key else value
        elif kind == "list":
            messages = store.link.call("LRANGE", key, 0, -1)
            found[key] = [re.sub(rb'"an_at":\d+', b"", one) for one in messages]
        elif kind == "zset":
            found[key] = sorted(store.link.call("ZRANGE", key, 0, -1))
        elif kind == "set":
            found[key] = sorted(store.link.call("SMEMBERS", key))
    return found


def timeless(raw: bytes) -> bytes:
    """Return a record without its moments and its fence."""
    shown = bytearray(raw)
    for offset in TIMES:
        is_set = struct.unpack_from("<d", raw, offset)[0] > 0
        shown[offset : offset + 8] = struct.pack("<d", is_set)
    shown[AT["fence"] : AT["worker"]] = b"f" * 16
    document = re.sub(rb'"\d{4}-\d\d-\d\dT[\d:.]{12}Z"', b'"time"', bytes(shown[CONTROL_SIZE:]))
    return bytes(shown[:CONTROL_SIZE]) + document


def usual(store: RealStore, one: Submission, ending: Ending) -> list[dict[bytes, Any]]:
    """Live a life the usual way; return what the store held after each step."""
    store.submit(one)
    seen = [keyspace(store)]
    (claim,) = store.take([one.list_name], 1, worker=WORKER).claims
    assert claim.origin is not None, "not claimed the usual way"
    seen.append(keyspace(store))
    assert store.finish(claim.task_id, claim.fence, ending, origin=claim.origin).applied
    return [*seen, keyspace(store)]


def decided(store: RealStore, one: Submission, ending: Ending) -> list[dict[bytes, Any]]:
    """Live the same life by the scripts that decide on everything."""
    store.store._may_be_plain = False
    store.submit(one)
    seen = [keyspace(store)]
    store.pop(one.list_name)
    claim = store.start(one.task_id)
    seen.append(keyspace(store))
    assert store.finish(claim.task_id, claim.fence, ending).applied
    return [*seen, keyspace(store)]


json_texts = st.one_of(
    st.just(b"null"),
    st.integers().map(lambda number: str(number).encode()),
    st.integers(0, 3_000).map(lambda size: b'"' + b"x" * size + b'"'),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(
        lambda text: b'"' + text.encode().replace(b"\\", b"/").replace(b'"', b"'") + b'"'
    ),
)


@st.composite
def submissions(draw: st.DrawFn) -> Submission:
    """Draw a task that asks for nothing unusual."""
    inputs = draw(json_texts)
    tail, inputs_at = tail_of(inputs, tags=draw(st.lists(st.just("tag"), max_size=3)))
    hidden = draw(st.booleans())
    private = b'{"node":"echo","inputs":' + inputs + b"}" if hidden else b'{"node":"echo"}'
    return replace(
        submission(),
        tail=tail,
        inputs_at=inputs_at,
        inputs_len=0 if hidden else len(inputs),
        private=private,
        list_name=draw(st.sampled_from(LISTS)),
        tenant=draw(st.sampled_from(["default", "a", "t" * 32])),
        idempotency=draw(st.sampled_from(["", "0123456789abcdef" * 2])),
        fingerprint=draw(st.sampled_from(["-", "f" * 64])),
        timeout_ms=draw(st.integers(1, 86_400_000)),
        ttl_ms=draw(st.integers(60_000, 30 * 86_400_000)),
    )


@given(one=submissions(), output=json_texts)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_both_ways_leave_the_same(
    redis_server: RedisServer, one: Submission, output: bytes
) -> None:
    """Every key and every byte, moments and the fence apart, after each of the three steps."""
    ending = replace(COMPLETE, output=output)
    lives = []
    for live in (usual, decided):
        redis_server.empty()
        store = open_store(redis_server)
        store.register(WORKER)
        lives.append(live(store, one, ending))
        store.link.close()
    for step, (ours, theirs) in enumerate(zip(*lives, strict=True)):
        assert ours == theirs, f"step {step}"


@given(one=submissions())
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_both_ways_claim_the_same(redis_server: RedisServer, one: Submission) -> None:
    """What a worker gets is what the record says, whichever script has read it."""
    claims: list[Claim] = []
    for plainly in (True, False):
        redis_server.empty()
        store = open_store(redis_server)
        store.register(WORKER)
        store.submit(one)
        if plainly:
            claims += store.take([one.list_name], 1, worker=WORKER).claims
        else:
            store.pop(one.list_name)
            claims.append(store.start(one.task_id))
        store.link.close()
    times = {name: 0 for name in Claim.__slots__ if name.endswith("_ms") and name != "timeout_ms"}
    ours, theirs = (replace(one, fence="", origin=None, **times) for one in claims)
    assert ours == theirs


@pytest.mark.parametrize(
    "change",
    [
        {"delay_ms": 60_000},
        {"deadline_ms": 4_000_000_000_000},
        {"max_dispatches": 3},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_unusual_is_decided_on(store: RealStore, change: dict[str, int]) -> None:
    """It does not go the usual way, and is accepted all the same."""
    one = replace(submission(), **change)
    assert not plain.is_plain(one)
    assert store.submit(one).task_id == one.task_id
    assert store.json_of(one.task_id)["state"] == "Pending"


def test_a_replay_is_found(store: RealStore) -> None:
    """A key that is known leads to its task, and leaves nothing of the second one."""
    key = {"idempotency": "ab" * 16, "fingerprint": "same"}
    first = store.submit(submission(**key))
    second = submission(**key)

    said = store.submit(second)

    assert (said.task_id, said.replayed) == (first.task_id, True)
    assert store.read(second.task_id) is None
    assert store.list_of("io.default") == [(first.task_id, 1)]


def test_a_row_sent_again_is_known(store: RealStore) -> None:
    """With a key and without one: the task is accepted once, and said to be accepted twice."""
    for one in (submission(), submission(idempotency="cd" * 16, fingerprint="x")):
        first = store.submit(one)
        again = store.submit(one)
        assert (again.task_id, again.created_ms) == (first.task_id, first.created_ms)
        assert store.list_of("io.default").count((one.task_id, 1)) == 1


EVENTS = {
    "a chunk": lambda store, claim: store.chunk(claim.task_id, claim.fence, b'{"text":"a"}'),
    "progress": lambda store, claim: store.progress(
        claim.task_id, claim.fence, b'{"fraction":0.5,"text":""}'
    ),
    "a log line": lambda store, claim: store.log(claim.task_id, claim.fence, b"{}", number=1),
    "a cancel": lambda store, claim: store.cancel(claim.task_id, tenant="default"),
}


@pytest.mark.parametrize("event", EVENTS)
def test_what_happened_meanwhile_is_kept(store: RealStore, event: str) -> None:
    """An end that was thought to be usual and is not is decided on."""
    one = submission()
    store.submit(one)
    (claim,) = store.take(["io.default"], 1, worker=WORKER).claims
    EVENTS[event](store, claim)

    said = store.finish(claim.task_id, claim.fence, COMPLETE, origin=claim.origin)

    assert (said.applied, said.state) == (True, NodeState.SUCCEEDED)
    document = store.read(one.task_id)
    assert document.version == said.version
    assert document.inline_output == COMPLETE.output
    if event == "a log line":
        assert store.link.call("PTTL", KEYS.log(one.task_id)) > 0
    if event == "a chunk":
        assert store.link.call("PTTL", KEYS.stream(one.task_id)) > 0


def test_another_owner_is_respected(store: RealStore) -> None:
    """A task that was lost and claimed again is not ended by its first worker."""
    one = submission()
    store.submit(one)
    (claim,) = store.take(["io.default"], 1, worker=WORKER).claims
    store.lost(claim.task_id, worker=WORKER, dispatch=1, isolated=False)
    (second,) = store.take(["io.default"], 1, worker=WORKER).claims
    assert second.origin is None, "a second attempt is not usual"

    late = store.finish(claim.task_id, claim.fence, COMPLETE, origin=claim.origin)

    assert not late.applied
    assert store.read(one.task_id).state is NodeState.RUNNING
    assert store.finish(second.task_id, second.fence, COMPLETE).applied


def test_an_end_sent_again_is_known(store: RealStore) -> None:
    """The second sending changes nothing and says the same."""
    store.submit(submission())
    (claim,) = store.take(["io.default"], 1, worker=WORKER).claims
    said = [
        store.finish(claim.task_id, claim.fence, COMPLETE, origin=claim.origin) for _ in range(2)
    ]
    assert said[0] == said[1]
    assert said[0].applied


def test_a_large_output_is_kept_apart(store: RealStore) -> None:
    """It is no usual end: the record does not hold it."""
    store.submit(submission())
    (claim,) = store.take(["io.default"], 1, worker=WORKER).claims
    ending = replace(COMPLETE, output=b'"' + b"x" * INLINE_OUTPUT + b'"')

    assert store.finish(claim.task_id, claim.fence, ending, origin=claim.origin).applied

    document = store.read(claim.task_id)
    assert document.apart == 1
    assert store.output(document) == ending.output


def test_a_lost_answer_finds_its_claims(store: RealStore) -> None:
    """A take that is asked for again with the same nonce answers what it had claimed."""
    ids = {store.submit(submission()).task_id for _ in range(3)}
    arguments = (WORKER.ljust(40), "n" * 12, 5)
    first = store.run("take", *arguments, 0, b"", 1, 1)
    again = store.run("take", *arguments, 1, b"", 1, 1)

    assert len(first[1]) == 2 * 3
    assert again[1] == []
    assert {row[0].decode() for row in again[2]} == ids
    fences = {store.read(row[0].decode()).fence for row in again[2]}
    assert fences == {row[1] for row in again[2]} == {b"n" * 12 + b"000%d" % n for n in range(3)}


def test_a_batch_with_something_unusual_keeps_its_order(store: RealStore) -> None:
    """Tasks of one call stand in their list in the call's order, whatever each asks for."""
    asked = [submission(), replace(submission(), deadline_ms=4_000_000_000_000), submission()]
    assert [said.task_id for said in store.submit_many(asked)] == [one.task_id for one in asked]
    assert [task for task, _ in reversed(store.list_of("io.default"))] == [
        one.task_id for one in asked
    ]
