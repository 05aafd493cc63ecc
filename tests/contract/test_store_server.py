"""What only a real server can show: bytes, memory, scripts forgotten, time, the gate, the sweep."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim, Ending
from async_nodes.core.states import EventType, NodeState, Reason
from async_nodes.storage import layout
from async_nodes.storage.ends import Ends
from async_nodes.storage.redis_errors import NotSent, OutcomeUnknown, StoreUnavailable
from async_nodes.storage.redis_store import scripts_for
from async_nodes.storage.script_library import render
from tests.contract.real_store import (
    IDS,
    KEYS,
    OTHER,
    WORKER,
    RealStore,
    messages,
    open_store,
    submission,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import RedisServer

COMPLETE = Ending(event=EventType.COMPLETE, output=b"1")
same_server = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50
)


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    yield made
    made.link.close()


@pytest.fixture
def opened(redis_server: RedisServer) -> Iterator[Callable[..., RealStore]]:
    """Return a function that opens the store with other settings and a registered worker."""
    made: list[RealStore] = []

    def open_with(**options: Any) -> RealStore:
        made.append(open_store(redis_server, **options))
        made[-1].register(WORKER)
        return made[-1]

    yield open_with
    for one in made:
        one.link.close()


def submit(store: RealStore, **fields: Any) -> str:
    return str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)


def in_lua(store: RealStore, code: str, *args: int) -> Any:
    """Run code behind the prelude of a script that uses all of it."""
    text = render(KEYS, messages())["claim"].text
    prelude = re.split(r"\n(?:return|local verdicts =) each\(", text)[0]
    assert prelude != text
    return store.link.call("EVAL", f"{prelude}\n{code}", 1, KEYS.base, *args)


# -- times and widths ------------------------------------------------------------------------------

DAY = 86_400_000
CENTURY = int(datetime(2101, 1, 1, tzinfo=UTC).timestamp()) * 1000


@same_server
@given(st.lists(st.integers(1, CENTURY), min_size=1, max_size=200))
@example([int(datetime(year, 2, 28, tzinfo=UTC).timestamp()) * 1000 + DAY - 1
          for year in range(1970, 2101)])  # fmt: skip
@example([int(datetime(year, 3, 1, tzinfo=UTC).timestamp()) * 1000 - 1
          for year in range(1970, 2101)])  # fmt: skip
@example([int(datetime(year, 12, 31, tzinfo=UTC).timestamp()) * 1000 + DAY - 1
          for year in range(1970, 2101)])  # fmt: skip
def test_the_scripts_know_the_calendar(store: RealStore, times: list[int]) -> None:
    """Their ISO times are datetime's for every day up to 2100, leap days included."""
    code = "local t = {} for i, v in ipairs(ARGV) do t[i] = iso(tonumber(v)) end return t"

    assert in_lua(store, code, *times) == [f'"{iso(one)}"'.encode() for one in times]


def test_the_longest_head_fits(store: RealStore) -> None:
    """With every number and word at its longest the head keeps its width and stays JSON."""
    code = """
    local widest = 0
    for state = 0, #STATE do for reason = 0, #REASON do
      local r = {id = 't_ZZZZZZZZZZZZZZZZZZZZZZZZZZ', state = state, reason = reason,
        version = 4294967295, attempt = 4294967295, losses = 4294967295,
        created_at = now, started_at = now, finished_at = now, next_attempt_at = now,
        expires_at = now, output_bytes = 4294967295}
      local text = with_head(r, '', '', '', '')
      if #text ~= HEAD then return {'wrong', #text} end
      widest = math.max(widest, #string.match(text, '^(.-) *$'))
    end end
    return {'ok', widest}"""
    verdict, width = in_lua(store, code)

    assert verdict == b"ok"
    assert width <= layout.HEAD_WIDTH - 10


# -- bytes -----------------------------------------------------------------------------------------

plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
json_texts = st.builds(
    lambda value, ascii_only, spaced: json.dumps(
        value, ensure_ascii=ascii_only, indent=spaced
    ).encode("utf-8", "surrogatepass"),
    plain_json,
    st.booleans(),
    st.none() | st.integers(0, 3),
).filter(lambda raw: b"\xed" not in raw)


@same_server
@given(json_texts, json_texts, json_texts)
@example(b'"%s%d%%"', b'"%1 %0"', b'"\\u0000 \\ud83d\\ude00"')
def test_json_passes_byte_for_byte(
    store: RealStore, inputs: bytes, output: bytes, usage: bytes
) -> None:
    """Inputs reach the worker, and the output the reader, as the very bytes that were sent."""
    task_id = submit(store, inputs=inputs, private=b"\x00{any \xff bytes}")
    claim = store.start(task_id)
    assert (claim.inputs, claim.private) == (inputs, b"\x00{any \xff bytes}")

    ending = Ending(event=EventType.COMPLETE, output=output, usage=usage)
    store.finish(task_id, claim.fence, ending)
    document = store.read(task_id)
    assert document.json.rstrip(b" ").endswith(b',"output":' + output + b"}")
    whole = json.loads(document.json)
    assert whole["output_bytes"] == (0 if output == b"null" else len(output))
    assert whole["usage"] == json.loads(usage)
    assert whole["inputs"] == json.loads(inputs)


def test_a_megabyte_passes(store: RealStore) -> None:
    """1 MiB of inputs, 8 MiB of output."""
    inputs = json.dumps("\u4f60" * (1 << 18), ensure_ascii=False).encode()[: 1 << 20] + b'"'
    inputs = json.dumps(inputs.decode("utf-8", "ignore")).encode()
    output = json.dumps("x" * (8 << 20)).encode()
    task_id = submit(store, inputs=inputs)
    claim = store.start(task_id)
    assert claim.inputs == inputs

    store.finish(task_id, claim.fence, Ending(event=EventType.COMPLETE, output=output))
    assert store.json_of(task_id)["output"] is None
    assert store.output(store.read(task_id)) == output


def test_a_document_that_shrinks_stays_json(store: RealStore) -> None:
    """Where a long progress or error was, spaces are; the string never gets shorter."""
    task_id = submit(store)
    claim = store.start(task_id)
    lengths = []
    for size in (1000, 10, 2000, 0):
        text = json.dumps({"fraction": 0.5, "text": "x" * size}).encode()
        store.progress(task_id, claim.fence, text)
        assert store.json_of(task_id)["progress"]["text"] == "x" * size
        lengths.append(len(store.read(task_id).raw))
    assert lengths == sorted(lengths)

    error = json.dumps({"message": "y" * 5000}).encode()
    store.finish(task_id, claim.fence, Ending(event=EventType.RETRY, error=error))
    time.sleep(0.005)
    store.fire_timers()
    store.start(task_id)
    whole = store.json_of(task_id)
    assert (whole["error"], whole["progress"]) == (None, None)
    assert whole["attempts"][0]["error"]["message"] == "y" * 5000
    assert store.read(task_id).raw.endswith(b" ")


def test_another_schema_is_not_guessed_at(store: RealStore) -> None:
    """A record of a later schema, or half a record, raises instead of being misread."""
    raw = store.read(submit(store)).raw

    for broken in (bytes([layout.SCHEMA + 1]) + raw[1:], raw[: layout.CONTROL_SIZE - 1], b""):
        with pytest.raises(ValueError, match="cannot be read"):
            layout.parse(broken)


# -- memory, scripts, connections --------------------------------------------------------------


def test_a_full_server_takes_nothing_new_and_finishes_what_runs(
    redis_server: RedisServer, store: RealStore
) -> None:
    """A submit is refused whole; claiming, finishing, cancelling and sweeping go on."""
    running, waiting, other = submit(store), submit(store), submit(store)
    claim = store.start(running)
    with redis_server.client() as client:
        before = client.dbsize()
        client.config_set("maxmemory", "1")
        for fields in ({}, {"delay_ms": 1000}, {"idempotency": "a" * 32}):
            with pytest.raises(StoreUnavailable, match="memory"):
                store.submit(submission(IDS.make(5), **fields))
        with pytest.raises(StoreUnavailable, match="memory"):
            store.chunk(running, claim.fence, b"{}", number=1)
        assert client.dbsize() == before

        assert store.finish(running, claim.fence, COMPLETE).state is NodeState.SUCCEEDED
        assert store.cancel(other, tenant="default").verdict == "cancelled"
        second = store.start(waiting)
        store.expire(WORKER)
        assert store.sweep().rescued == 1
        store.fire_timers()
        store.register(WORKER)
        third = store.start(waiting)
        assert (second.attempt, third.attempt) == (1, 2)
        client.config_set("maxmemory", "0")
    assert store.submit(submission(IDS.make(5))).version == 1
    assert sum(len(found) for found in store.lists().values()) >= 1


def test_forgotten_scripts_are_loaded_again(redis_server: RedisServer, store: RealStore) -> None:
    """After SCRIPT FLUSH, and after a restart, every script works at its first call."""
    for forget in (lambda: redis_server.client().script_flush(), redis_server.restart):
        forget()
        task_id = submit(store)
        forget()
        claim = store.start(task_id)
        forget()
        assert store.finish(task_id, claim.fence, COMPLETE).applied
        forget()
        assert store.sweep().rescued == 0


class Flaky:
    """A link that fails in a given way before it lets a call through."""

    def __init__(self, link: Any, *failures: Exception | str) -> None:
        self._link, self._failures = link, list(failures)

    def call_many(self, commands: Any, *, timeout: float | None = None) -> Any:
        """Run the commands, or fail before or after them."""
        failure = self._failures.pop(0) if self._failures else None
        if isinstance(failure, Exception):
            raise failure
        replies = self._link.call_many(commands, timeout=timeout)
        if failure == "cut":
            raise OutcomeUnknown("cut off before the answer")
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


def flaky(store: RealStore, *failures: Exception | str) -> RealStore:
    """Return the store behind a link that fails so; loaded scripts make each call one batch."""
    store.store._committer._link = Flaky(store.link, *failures)
    return store


def test_a_row_cut_off_is_sent_again_and_known(store: RealStore) -> None:
    """Every verb that was carried out without an answer answers at the second try."""
    task_id = submit(store)
    flaky(store, "cut", NotSent("down"), "cut")
    one = submission(IDS.make(store.now_ms()))
    assert store.submit(one).replayed is False
    assert store.dispatch_of(one.task_id) == 1

    flaky(store, "cut")
    claim = store.start(task_id)
    assert isinstance(claim, Claim)
    for _ in range(2):
        flaky(store, "cut")
        store.chunk(task_id, claim.fence, b"{}", number=1)
    assert len(store.entries(task_id, after=(0, 0))) == 1
    flaky(store, "cut")
    assert store.finish(task_id, claim.fence, COMPLETE).applied
    assert [one["attempt"] for one in store.json_of(task_id)["attempts"]] == [1]


def test_a_submit_that_may_have_happened_is_not_called_refused(
    opened: Callable[..., RealStore],
) -> None:
    """Once a row may have reached the server, later failures do not make it unsent."""
    store = opened(patience=0.1)
    submit(store)
    flaky(store, "cut", *[NotSent("down")] * 50)
    one = submission(IDS.make(store.now_ms()))

    with pytest.raises(AsyncNodesError) as unknown:
        store.submit(one)

    assert (unknown.value.code, unknown.value.extra) == (
        "outcome_unknown",
        {"task_id": one.task_id},
    )
    assert store.read(one.task_id) is not None


def test_a_submit_that_was_never_sent_says_so(opened: Callable[..., RealStore]) -> None:
    """Nothing was accepted, within the patience of a request."""
    store = flaky(opened(patience=0.2), *[NotSent("down")] * 50)
    started = time.monotonic()

    with pytest.raises(StoreUnavailable) as refused:
        submit(store)

    assert refused.value.code == "store_unavailable"
    assert time.monotonic() - started < 1


def test_a_take_cut_off_is_sent_again_and_finds_its_claims(store: RealStore) -> None:
    """Nothing it popped is lost and nothing is claimed twice."""
    tasks = [submit(store) for _ in range(3)]
    flaky(store, "cut")
    store.store.link = store.store._committer._link
    taken = store.take(["io.high", "io.default", "io.low"], 2, worker=WORKER)

    assert {claim.task_id for claim in taken.claims} == set(tasks[:2])
    assert store.running(WORKER) == sorted(tasks[:2])
    assert len({claim.fence for claim in taken.claims}) == 2
    assert store.list_of("io.default") == [(tasks[2], 1)]


def test_a_take_without_a_lease_leaves_the_messages(store: RealStore) -> None:
    """Also one that a blocking pop has brought goes back to where it came from."""
    task_id = submit(store)
    first = store.link.call("RPOP", KEYS.queue("io.default"))

    taken = store.take(["io.default"], 5, worker=OTHER, first=("io.default", first))
    assert (taken.leased, taken.claims) == (False, ())
    assert store.list_of("io.default") == [(task_id, 1)]

    first = store.link.call("RPOP", KEYS.queue("io.default"))
    taken = store.take(["io.default"], 5, worker=WORKER, first=("io.default", first))
    assert [claim.task_id for claim in taken.claims] == [task_id]


def test_a_take_gives_every_list_its_share(store: RealStore) -> None:
    """6 : 3 : 1 while all have some, whatever is there when not."""
    names = ["io.high", "io.default", "io.low"]
    lists = {submit(store, list_name=name): name for name in names for _ in range(10)}
    shares = []
    for _ in range(3):
        taken = store.take(names, 10, worker=WORKER).claims
        shares.append([sum(lists[one.task_id] == name for one in taken) for name in names])

    assert shares == [[6, 3, 1], [4, 5, 1], [0, 2, 8]]


def test_what_is_not_ours_is_dropped_by_a_take(store: RealStore) -> None:
    """Stale messages, and texts that are none, cost nobody a task."""
    task_id, stale = submit(store), submit(store)
    store.cancel(stale, tenant="default")
    for rubbish in (b"", b"{}", b'{"id": "t_X", "an_dispatch": 1}', b"\xff"):
        store.link.call("RPUSH", KEYS.queue("io.default"), rubbish)

    taken = store.take(["io.default"], 5, worker=WORKER)
    assert [claim.task_id for claim in taken.claims] == [task_id]
    assert store.lists() == {}


class Reporting:
    """A link to a server that reports these lines of INFO."""

    def __init__(self, info: str) -> None:
        self._info = info

    def call(self, *args: object, timeout: float | None = None) -> bytes | None:
        """Return the lines."""
        return self._info.encode() if args[0] == "INFO" else None


@pytest.mark.parametrize(
    ("info", "code"),
    [
        ("redis_version:6.0.16\r\nredis_mode:standalone", "redis_too_old"),
        ("nothing of the kind", "redis_too_old"),
        ("redis_version:7.2.0\r\nredis_mode:cluster", "unsupported_store"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(info: str, code: str) -> None:
    """Older than 6.2, or a cluster: one clear error."""
    with pytest.raises(AsyncNodesError) as refused:
        scripts_for(Reporting(info), KEYS, messages())

    assert refused.value.code == code


@pytest.mark.parametrize("info", ["redis_version:6.2.0", "redis_version:10.0.1"])
def test_6_2_and_all_later_ones_are_taken(info: str) -> None:
    """The script flag is used only where it is known."""
    flagged = scripts_for(Reporting(info), KEYS, messages())["finish"].text.startswith("#!lua")

    assert flagged == ("10." in info)


def test_an_ending_that_is_none_changes_nothing(store: RealStore) -> None:
    """WAIT, PROGRESS or LOST do not end an attempt: refused before anything is written."""
    task_id = submit(store)
    claim = store.start(task_id)
    before = store.read(task_id).raw

    for event in (EventType.WAIT, EventType.PROGRESS, EventType.LOST, EventType.START):
        with pytest.raises(AsyncNodesError, match=r"to end an attempt|takes no") as refused:
            store.finish(task_id, claim.fence, Ending(event=event))
        assert refused.value.code == "internal"
    assert store.read(task_id).raw == before


@pytest.mark.parametrize(
    ("worker", "fence"), [(WORKER, "short"), (WORKER, "f" * 17), ("w" * 41, "f" * 16)]
)
def test_a_fence_that_does_not_fit_is_refused(store: RealStore, worker: str, fence: str) -> None:
    """Cut to size it could be somebody else's."""
    task_id = submit(store)

    with pytest.raises(ValueError, match="does not fit"):
        store.claim(task_id, 1, worker=worker, fence=fence)


def test_all_processes_agree_on_the_secret_of_ids(opened: Callable[..., RealStore]) -> None:
    """An id made by one is known by the other."""
    one, other = opened().id_source(), opened().id_source()

    assert other.issued(one.make(1))


# -- what is kept, and for how long ------------------------------------------------------------


def test_everything_of_a_task_goes_after_its_ttl(store: RealStore) -> None:
    """Record, stream and idempotency key have no TTL before the end and the task's after it."""
    task_id = submit(store, ttl_ms=60_000, idempotency="a" * 32)
    claim = store.start(task_id)
    store.chunk(task_id, claim.fence, b"{}", number=1)
    owned = [KEYS.task(task_id), KEYS.stream(task_id), f"{KEYS.base}k:default:{'a' * 32}"]
    assert [store.link.call("PTTL", key) for key in owned] == [-1, -1, -1]

    store.finish(task_id, claim.fence, COMPLETE)
    assert all(59_000 < store.link.call("PTTL", key) <= 60_000 for key in owned)


def test_the_index_forgets_what_is_gone(store: RealStore) -> None:
    """Sweeps walk the index and drop ids without a record."""
    kept, gone = submit(store), submit(store)
    store.link.call("DEL", KEYS.task(gone))
    for _ in range(3):
        store.sweep()

    assert store.link.call("ZRANGE", KEYS.index("default"), 0, -1) == [kept.encode()]


def test_a_stream_over_its_cap_loses_its_older_half(opened: Callable[..., RealStore]) -> None:
    """The position of the last dropped entry is kept, and the bytes are counted exactly."""
    store = opened(stream_cap=1_000)
    task_id = submit(store)
    claim = store.start(task_id)
    for number in range(1, 100):
        json_text = b'{"text":"%s","n":%d}' % (b"x" * (number % 50), number)
        store.chunk(task_id, claim.fence, json_text, number=number)
        kept = store.entries(task_id, after=(0, 0))
        document = store.read(task_id)
        assert document.stream_bytes == sum(len(one.json) for one in kept) <= 1_000
        dropped = number - len(kept)
        assert (document.trimmed_version, document.trimmed_seq) == (
            (2, dropped) if dropped else (0, 0)
        )
        assert kept[-1].seq == number


def test_one_chunk_over_the_cap_is_kept_alone(opened: Callable[..., RealStore]) -> None:
    """The newest entry is never dropped, however large."""
    store = opened(stream_cap=1_000)
    task_id = submit(store)
    claim = store.start(task_id)
    for number in range(1, 4):
        store.chunk(task_id, claim.fence, b'"%s"' % (b"x" * 5_000), number=number)

    assert [one.seq for one in store.entries(task_id, after=(0, 0))] == [3]
    assert store.read(task_id).trimmed_seq == 2


# -- the gate ----------------------------------------------------------------------------------


def test_the_gate_parks_and_tops_up(opened: Callable[..., RealStore]) -> None:
    """Two messages are out, the rest wait in turn, and each claim or cancel lets one follow."""
    store = opened(gate_limit=2)
    tasks = [submit(store) for _ in range(5)]
    listed = [tuple(one) for one in store.list_of("io.default")]
    assert [task_id for task_id, _ in reversed(listed)] == tasks[:2]

    store.start(tasks[0])
    assert store.list_of("io.default")[0][0] == tasks[2]
    store.cancel(tasks[3], tenant="default")
    store.cancel(tasks[1], tenant="default")
    assert store.list_of("io.default")[0][0] == tasks[4]
    assert store.link.call("HGET", f"{KEYS.base}gate", "io.default:default") == b"2"


def test_tenants_and_lists_have_gates_of_their_own(opened: Callable[..., RealStore]) -> None:
    """One tenant's crowd parks none of another, nor of another list."""
    store = opened(gate_limit=2)
    for _ in range(4):
        submit(store)
    others = [submit(store, tenant="other"), submit(store, list_name="io.high")]

    assert [store.read(task_id).queued for task_id in others] == [1, 1]
    assert len(store.list_of("io.default")) == 3


def test_a_parked_task_that_vanished_holds_up_nobody(opened: Callable[..., RealStore]) -> None:
    """The place goes to the next one that is there."""
    store = opened(gate_limit=1)
    tasks = [submit(store) for _ in range(4)]
    store.link.call("DEL", KEYS.task(tasks[1]), KEYS.task(tasks[2]))
    store.start(tasks[0])

    assert store.list_of("io.default")[0][0] == tasks[3]


# -- the sweep -----------------------------------------------------------------------------------

SHORT = 0.06


def test_a_silent_worker_is_dead_after_its_lease(opened: Callable[..., RealStore]) -> None:
    """Not before; the sweep after it gives all its tasks back, however many sweeps it takes."""
    store = opened(lease_seconds=SHORT)
    tasks = [submit(store) for _ in range(250)]
    for task_id in tasks:
        store.register(WORKER)
        store.start(task_id)
    store.register(WORKER)
    assert store.sweep().rescued == 0

    time.sleep(SHORT * 1.5)
    assert store.sweep().rescued == 200
    assert store.sweep().rescued == 50
    assert {store.read(task_id).why for task_id in tasks} == {Reason.LOST}
    assert store.workers() == {}


def test_only_a_vanished_message_is_sent_again(opened: Callable[..., RealStore]) -> None:
    """Waiting in the list, however long, is no loss; being popped and not claimed is."""
    store = opened(lease_seconds=SHORT)
    tasks = []
    for _ in range(3):
        tasks.append(submit(store))
        time.sleep(0.003)
    popped = store.pop()
    assert popped == (tasks[0], 1)
    assert store.sweep().sent_again == 0

    time.sleep(SHORT * 1.5)
    assert store.sweep().sent_again == 1
    assert store.list_of("io.default") == [(tasks[0], 2), (tasks[2], 1), (tasks[1], 1)]
    time.sleep(SHORT * 1.5)
    assert store.sweep().sent_again == 0


def test_a_message_that_a_worker_holds_is_not_sent_again(
    opened: Callable[..., RealStore],
) -> None:
    """It says so with every renewal."""
    store = opened(lease_seconds=SHORT)
    task_id = submit(store)
    store.pop()
    for _ in range(4):
        time.sleep(SHORT / 2)
        assert store.renew(WORKER, [task_id])
        assert store.sweep().sent_again == 0

    time.sleep(SHORT * 1.5)
    assert store.sweep().sent_again == 1


def test_a_message_handed_back_does_not_make_the_others_look_lost(
    opened: Callable[..., RealStore],
) -> None:
    """It goes to the front of a long queue, and nothing behind it is sent twice."""
    store = opened(lease_seconds=SHORT)
    tasks = [submit(store) for _ in range(5)]
    time.sleep(SHORT * 1.5)
    store.register(WORKER)
    store.pop()
    claim = store.start(tasks[0])
    store.finish(tasks[0], claim.fence, Ending(event=EventType.RELEASE))

    assert store.list_of("io.default")[-1] == (tasks[0], 2)
    assert store.sweep().sent_again == 0
    assert store.pop() == (tasks[0], 2)


def test_a_task_whose_messages_always_vanish_fails(opened: Callable[..., RealStore]) -> None:
    """After max_dispatches messages more it is undispatched, and a dead letter."""
    store = opened(lease_seconds=SHORT)
    task_id = submit(store, max_dispatches=2)
    swept = []
    for _ in range(3):
        store.pop()
        time.sleep(SHORT * 1.5)
        swept.append(store.sweep())

    assert [one.sent_again for one in swept] == [1, 1, 0]
    assert swept[-1].ended == (task_id,)
    whole = store.json_of(task_id)
    assert (whole["state"], whole["reason"], whole["error"]["code"]) == (
        "Failed",
        "undispatched",
        "dispatch_exhausted",
    )
    assert store.dead_letters() == [task_id]


def test_after_an_outage_everybody_gets_one_more_lease(opened: Callable[..., RealStore]) -> None:
    """When nobody swept for long, silence proves nothing; a lease given up stays given up."""
    lease = 1.0  # long enough for a busy machine to reach the first sweep in
    store = opened(lease_seconds=lease)
    task_id = submit(store)
    store.start(task_id)
    store.register(OTHER)
    store.expire(OTHER)
    store.sweep()
    time.sleep(lease * 1.5)
    store.link.call("SET", f"{KEYS.base}swept", store.now_ms() - 60_000)

    swept = store.sweep()
    assert (swept.graced, swept.rescued) == (1, 0)
    assert store.read(task_id).state is NodeState.RUNNING
    time.sleep(lease * 1.5)
    assert store.sweep().rescued == 1


def test_deadlines_and_graces_come_by_themselves(store: RealStore) -> None:
    """A waiting task fails at its deadline; a deaf one is ended some seconds after its cancel."""
    waiting = submit(store, deadline_ms=store.now_ms() + 1_000, delay_ms=3_600_000)
    deaf = submit(store)
    claim = store.start(deaf)
    store.cancel(deaf, tenant="default")
    store.link.call("ZADD", KEYS.due, store.now_ms() + 1_000, f"c:{deaf}")
    assert store.fire_timers().ended == ()

    time.sleep(1.05)
    assert set(store.fire_timers().ended) == {waiting, deaf}
    assert store.json_of(waiting)["reason"] == "deadline"
    assert store.json_of(deaf)["error"]["stopped"] is False
    assert store.finish(deaf, claim.fence, COMPLETE).applied is False
    assert 14 < (store.fire_timers().next_in or 0) <= 15  # until somebody has cleaned up
    for task_id in (waiting, deaf):
        Ends(store.store, 15.0).settle(task_id)
    assert store.fire_timers().next_in is None


def test_a_cancel_is_told_to_the_worker(redis_server: RedisServer, store: RealStore) -> None:
    """Its control channel names the task and the fence, once per request."""
    task_id = submit(store)
    claim = store.start(task_id)
    with redis_server.client() as client, client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(KEYS.control(WORKER))
        heard.get_message(timeout=1)
        store.cancel(task_id, tenant="default")
        store.cancel(task_id, tenant="default")
        said = [message for _ in range(4) if (message := heard.get_message(timeout=0.5))]

    assert [one["data"].decode() for one in said] == [f"cancel {task_id} {claim.fence}"] * 2


def test_lease_depth_and_workers_are_shown(store: RealStore) -> None:
    """What /readyz and /metrics ask for."""
    submit(store)
    submit(store, list_name="cpu.low")
    store.retire(WORKER)
    store.register(OTHER)

    assert store.depths() == {
        "io.high": 0, "io.default": 1, "io.low": 0, "cpu.high": 0, "cpu.default": 0, "cpu.low": 1,
    }  # fmt: skip
    assert list(store.workers()) == [OTHER]
    assert 14 < store.workers()[OTHER] <= 15
    store.ping()
