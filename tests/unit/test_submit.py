"""Submit: what a request may say, all its faults at once, and the bytes that are stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.context import scope
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import IdSource
from async_nodes.core.ports import Accepted, Submission
from async_nodes.core.retry import RetryPolicy
from async_nodes.core.states import NodeState
from async_nodes.dispatch.request import FIELDS, MAX_REQUEST, parse
from async_nodes.dispatch.submit import Submitter, compose, digest_of_key, fingerprint
from async_nodes.nodes import NodeSpec, node
from async_nodes.settings import Settings

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"
NOW = 1_796_072_400.123
NOW_MS = 1_796_072_400_123
TASK_ID = "t_01KEXAMPZE0123456789ABCDEF"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _call(url: str, count: int = 1, secret: str | None = None, more: Any = None) -> str:
    return f"{url}{count}{secret}{more}"


def _anything(**inputs: Any) -> Any:
    return inputs


def declared(name: str, function: Any, **given: Any) -> NodeSpec:
    """Return a node as `@node` makes it, without telling the registry of this process."""
    found: list[NodeSpec] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("async_nodes.nodes.registry.add", found.append)
        node(name, **given)(function)
    return found[0]


NODES: Mapping[str, NodeSpec] = {
    "echo": declared("echo", _anything),
    "call": declared(
        "call",
        _call,
        kind="cpu",
        timeout=2.5,
        retry=RetryPolicy(max_attempts=7),
        redact=("secret",),
    ),
}


class Store:
    """Remember submissions; answer as told."""

    def __init__(self) -> None:
        self.rows: list[Submission] = []
        self.answer: Accepted | AsyncNodesError | None = None

    def submit(self, submission: Submission) -> Accepted:
        """Remember the row."""
        self.rows.append(submission)
        if isinstance(self.answer, AsyncNodesError):
            raise self.answer
        return self.answer or Accepted(submission.task_id, 1, NOW_MS)

    def submit_many(self, submissions: Sequence[Submission]) -> list[Accepted | AsyncNodesError]:
        """Remember the rows; those that ask for the node ``call`` fail as told."""
        self.rows += submissions
        return [
            self.answer
            if isinstance(self.answer, AsyncNodesError) and one.list_name.startswith("cpu")
            else Accepted(one.task_id, 1, NOW_MS)
            for one in submissions
        ]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def submitter(store: Store) -> Submitter:
    ids = IdSource(b"0123456789abcdef", lambda bits: (1 << bits) - 1)
    return Submitter(store, ids, NODES, Settings(), lambda: NOW)  # type: ignore[arg-type]


def body(**members: Any) -> bytes:
    return json.dumps({"node": "echo", **members}).encode()


def faults(raw: bytes) -> tuple[str, dict[str, str]]:
    with pytest.raises(AsyncNodesError) as caught:
        parse(raw, NODES, now_ms=NOW_MS)
    listed = caught.value.extra["errors"]
    assert caught.value.pointer == listed[0]["pointer"]
    return caught.value.code, {fault["pointer"]: fault["detail"] for fault in listed}


def submission(raw: bytes, **options: Any) -> Submission:
    request = parse(raw, NODES, now_ms=NOW_MS)
    given: dict[str, Any] = {"tenant": "default", "default_timeout_ms": 300_000, **options}
    return compose(request, task_id=TASK_ID, **given)


EVERYTHING = {
    "node": "call",
    "inputs": {"url": "https://example.org/?q=é", "secret": "s3cret", "more": [1.0, None]},
    "priority": "high",
    "timeout_ms": 1500,
    "deadline": "2026-12-01T09:00:00+08:00",
    "retry_policy": {"max_attempts": 2, "jitter": False},
    "delay": 1.5,
    "ttl": 60,
    "tags": ["a", "标签"],
    "metadata": {"user": 7},
}


@pytest.mark.parametrize(
    ("name", "request_body", "options"),
    [
        ("submit_least", {"node": "echo"}, {}),
        (
            "submit_everything",
            EVERYTHING,
            {
                "idempotency": digest_of_key("default", "key-1"),
                "traceparent": TRACEPARENT,
                "scope": {"user": "u1"},
            },
        ),
    ],
)
def test_the_stored_bytes_are_the_golden_ones(
    name: str, request_body: dict[str, Any], options: dict[str, Any]
) -> None:
    """What a request becomes in the store changes only on purpose."""
    row = asdict(submission(json.dumps(request_body, ensure_ascii=False).encode(), **options))
    row = {k: v.decode() if isinstance(v, bytes) else v for k, v in row.items()}
    assert row == json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def test_the_inputs_are_stored_as_they_came(submitter: Submitter, store: Store) -> None:
    """The client's own bytes are at the offset the row names; a line break becomes a space."""
    submitter.submit(b'{"inputs": {"x" :\n1.50,"y":"\\u00e9\\n"} ,\n "node":"echo"}', tenant="t")
    row = store.rows[0]
    stored = row.tail[row.inputs_at : row.inputs_at + row.inputs_len]
    assert stored == b'{"x" : 1.50,"y":"\\u00e9\\n"}'
    assert row.tail[row.inputs_at - 9 :] == b'"inputs":' + stored + b","
    assert b"inputs" not in row.private


@given(
    inputs=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.recursive(
            st.none() | st.floats(-1e9, 1e9) | st.text('é\U0001f600\u2028"\\\n a'), st.lists
        ),
        max_size=5,
    ),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_the_public_part_is_json_whatever_the_inputs(
    inputs: dict[str, Any], indent: int | None, *, ascii_only: bool
) -> None:
    """Any JSON inputs in any layout give a tail that closes into one JSON object of one line."""
    raw = json.dumps({"node": "echo", "inputs": inputs}, indent=indent, ensure_ascii=ascii_only)
    row = submission(raw.encode())
    document = json.loads(b"{" + row.tail + b'"end":0}')
    assert document["inputs"] == inputs
    assert json.loads(row.tail[row.inputs_at : row.inputs_at + row.inputs_len]) == inputs
    assert b"\n" not in row.tail


def test_redacted_inputs_are_the_workers_only() -> None:
    """A secret is in the private part, as sent, and the public part shows that it was there."""
    row = submission(b'{"node":"call","inputs":{"url":"u", "secret":"s3cret"}}')
    assert b"s3cret" not in row.tail
    assert b'"inputs":{"url":"u","secret":"[redacted]"},' in row.tail
    assert row.inputs_len == 0
    assert row.private.endswith(b'"inputs":{"url":"u", "secret":"s3cret"}}')


def test_a_node_that_redacts_stores_harmless_inputs_once() -> None:
    """Without a secret in them the inputs stay in the public part only."""
    row = submission(b'{"node":"call","inputs":{"url":"u"}}')
    assert row.inputs_len == len(b'{"url":"u"}')
    assert b"inputs" not in row.private


def test_the_node_decides_what_the_request_leaves_open() -> None:
    """Time-out and list follow the node, then the settings; a partial policy is the node's else."""
    call = submission(b'{"node":"call","inputs":{"url":"u"},"retry_policy":{"initial_ms":1}}')
    assert (call.timeout_ms, call.list_name) == (2500, "cpu.default")
    assert json.loads(call.private)["retry"]["max_attempts"] == 7
    assert json.loads(call.private)["retry"]["initial_ms"] == 1
    echo = submission(body(priority=9))
    assert (echo.timeout_ms, echo.list_name) == (300_000, "io.low")
    assert json.loads(echo.private)["retry"] is None


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "/priority": ({"priority": 10}, "0 (most urgent) to 9"),
    "/timeout_ms": ({"timeout_ms": 0}, "1 to 86400000"),
    "/deadline": ({"deadline": "2026-11-30"}, "zone"),
    "/retry_policy/max_attempts": ({"retry_policy": {"max_attempts": 0}}, "1 to 100"),
    "/delay": ({"delay": -1}, "0 to 2592000"),
    "/ttl": ({"ttl": 0.5}, "1 to 2592000"),
    "/tags/1": ({"tags": ["ok", "x" * 65]}, "1 to 64"),
    "/metadata": ({"metadata": {"k": "v" * 16_384}}, "16384 bytes"),
    "/prioritty": ({"prioritty": 1}, "did you mean 'priority'?"),
}


@pytest.mark.parametrize("pointer", BAD)
def test_one_fault_is_named(pointer: str) -> None:
    """A wrong field is refused with its pointer and what is right."""
    members, words = BAD[pointer]
    code, found = faults(body(**members))
    assert (code, list(found)) == ("invalid_request", [pointer])
    assert words in found[pointer]


@pytest.mark.parametrize(
    "members",
    [
        {"priority": "urgent"},
        {"priority": True},
        {"timeout_ms": 1.5},
        {"timeout_ms": True},
        {"timeout_ms": 86_400_001},
        {"timeout_ms": "5"},
        {"deadline": 5},
        {"deadline": "2026-11-30T21:00:00"},
        {"deadline": "2026-11-30T00:00:00Z"},
        {"deadline": "0001-01-01T00:00:00+14:00"},
        {"deadline": "2026-12-01T00:00:00Z", "delay": 86_400},
        {"retry_policy": []},
        {"retry_policy": {"tries": 1}},
        {"retry_policy": {"jitter": 1}},
        {"retry_policy": {"multiplier": 0.5}},
        {"retry_policy": {"total_ms": -1}},
        {"delay": "1"},
        {"delay": 2_592_001},
        {"ttl": None},
        {"tags": "a"},
        {"tags": ["a"] * 33},
        {"tags": ["a\nb"]},
        {"tags": [""]},
        {"metadata": []},
        {"Node": "echo"},
    ],
)
def test_what_is_out_of_bounds_is_refused(members: dict[str, Any]) -> None:
    """Every bound and every type of every field holds."""
    code, found = faults(body(**members))
    assert code == "invalid_request"
    assert len(found) == 1


def test_the_bounds_themselves_are_fine() -> None:
    """The least and the greatest values are accepted, in whole numbers or fractions."""
    least = parse(body(priority=0, timeout_ms=1, delay=0, ttl=1), NODES, now_ms=NOW_MS)
    assert (least.priority, least.timeout_ms, least.delay_ms, least.ttl_ms) == (0, 1, 0, 1000)
    most = parse(
        body(
            priority=9,
            timeout_ms=86_400_000,
            delay=2_592_000,
            ttl=2_592_000.0,
            deadline="9999-12-31T23:59:59.999999Z",
            tags=["x" * 64] * 32,
            metadata={"k": "v" * 16_376},
            retry_policy={"max_attempts": 100, "total_ms": None},
        ),
        NODES,
        now_ms=NOW_MS,
    )
    assert most.deadline_ms == 253_402_300_799_999
    assert parse(body(delay=0.0015), NODES, now_ms=NOW_MS).delay_ms == 2
    assert parse(body(deadline=None), NODES, now_ms=NOW_MS).deadline_ms == 0


def test_a_whole_number_may_have_a_point() -> None:
    """JSON Schema knows no difference between 30000 and 30000.0: it is the same request."""
    policy = {"max_attempts": 2, "initial_ms": 10, "max_ms": 20, "total_ms": 30}
    plain = {"priority": 3, "timeout_ms": 30_000, "retry_policy": policy}
    pointed = {
        "priority": 3.0,
        "timeout_ms": 30_000.0,
        "retry_policy": {name: float(value) for name, value in policy.items()},
    }

    found = [parse(body(**given), NODES, now_ms=NOW_MS) for given in (plain, pointed)]

    assert found[0] == found[1]
    assert len({fingerprint(request) for request in found}) == 1


def test_all_faults_are_listed_at_once() -> None:
    """One answer names every wrong field and every wrong input."""
    code, found = faults(
        b'{"node":"call","inputs":{"count":"x","secret":1,"nope":2},"priority":11,"ttl":0}'
    )
    assert code == "invalid_request"
    assert set(found) == {
        "/priority", "/ttl", "/inputs/nope", "/inputs/count", "/inputs/secret", "/inputs/url",
    }  # fmt: skip
    assert "missing" in found["/inputs/url"]


def test_faults_of_one_kind_keep_their_code() -> None:
    """Only wrong inputs are ``invalid_inputs``; a wrong name is ``unknown_node`` with a guess."""
    assert faults(b'{"node":"call","inputs":{}}')[0] == "invalid_inputs"
    assert faults(b'{"node":"call","inputs":[]}')[0] == "invalid_inputs"
    with pytest.raises(AsyncNodesError) as caught:
        parse(b'{"node":"ecoh"}', NODES, now_ms=NOW_MS)
    assert caught.value.code == "unknown_node"
    assert caught.value.extra["suggestion"] == "echo"
    assert "did you mean 'echo'?" in caught.value.detail


@pytest.mark.parametrize("raw", [b'{"node":""}', b"{}", b'{"node":7}', b'{"node":null}'])
def test_a_request_without_a_node_is_refused(raw: bytes) -> None:
    """The node's name is the one thing that every request has."""
    assert faults(raw) == ("invalid_request", {"/node": "node is required: the name of a node"})


@pytest.mark.parametrize("raw", [b"[]", b"1", b'"x"', b"null"])
def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    """JSON that is not an object says so, at the root."""
    with pytest.raises(AsyncNodesError, match="must be a JSON object") as caught:
        parse(raw, NODES, now_ms=NOW_MS)
    assert (caught.value.code, caught.value.pointer) == ("invalid_request", "")


def test_a_huge_wrong_value_is_not_repeated() -> None:
    """A fault's text stays short, whatever was sent."""
    for members in ({"priority": "x" * 100_000}, {"deadline": "x" * 100_000}, {"x" * 100_000: 1}):
        _, found = faults(body(**members))
        assert all(len(detail) < 500 for detail in found.values())
    _, found = faults(body(**{f"k{n}": n for n in range(5_000)}))
    assert len(found) == 50


def test_equal_requests_have_equal_fingerprints() -> None:
    """Layout, order and spelt-out defaults make no difference; any other value does."""

    def digest(raw: bytes) -> str:
        return fingerprint(parse(raw, NODES, now_ms=NOW_MS))

    first = digest(b'{"node":"echo","inputs":{"a":1,"b":"\\u00e9"}}')
    same = '{ "inputs": {"b":"é","a":1}, "priority":"default", "ttl":86400, "node":"echo"}'
    assert digest(same.encode()) == first
    others = [
        b'{"node":"echo","inputs":{"a":2,"b":"\\u00e9"}}',
        b'{"node":"echo","inputs":{"a":1,"b":"\\u00e9"},"priority":1}',
        b'{"node":"echo","inputs":{"a":1,"b":"\\u00e9"},"tags":["x"]}',
        b'{"node":"echo","inputs":{"a":1,"b":"\\u00e9"},"delay":1}',
    ]
    assert len({first, *map(digest, others)}) == 5


def test_a_key_belongs_to_its_tenant() -> None:
    """The same key of two tenants is two keys, however the two texts are split."""
    digests = {
        digest_of_key("a", "bc"), digest_of_key("ab", "c"), digest_of_key("a", "b"),
        digest_of_key("b", "b"),
    }  # fmt: skip
    assert len(digests) == 4
    assert all(len(digest) == 32 for digest in digests)


def test_a_submit_goes_to_the_store_with_an_id_of_ours(submitter: Submitter, store: Store) -> None:
    """The answer carries the id under which the row was stored, and the time it was stored at."""
    done = submitter.submit(body(), tenant="default", traceparent=TRACEPARENT)
    assert store.rows[0].task_id == done.task_id
    assert (done.state, done.version, done.replayed) == (NodeState.PENDING, 1, False)
    assert done.created_at == "2026-11-30T21:00:00.123Z"
    assert b'"trace_id":"0af7651916cd43dd8448eb211c80319c"' in store.rows[0].tail
    assert store.rows[0].idempotency == ""
    assert store.rows[0].fingerprint == "-"


def test_a_replayed_submit_tells_of_the_first_task(submitter: Submitter, store: Store) -> None:
    """With a key that was used before, the first task and its present state are answered."""
    store.answer = Accepted("t_first", 3, NOW_MS, replayed=True, state=NodeState.RUNNING)
    done = submitter.submit(body(), tenant="default", idempotency_key="k")
    assert (done.task_id, done.version, done.replayed) == ("t_first", 3, True)
    assert done.state is NodeState.RUNNING
    assert store.rows[0].idempotency == digest_of_key("default", "k")


def test_a_refused_request_reaches_no_store(submitter: Submitter, store: Store) -> None:
    """Nothing is stored of a request that has a fault, or of a text that is not JSON."""
    for raw in (body(priority=77), b'{"node":"echo","inputs":{"x":NaN}}'):
        with pytest.raises(AsyncNodesError):
            submitter.submit(raw, tenant="default")
    assert store.rows == []


def test_what_the_store_reports_is_passed_on(submitter: Submitter, store: Store) -> None:
    """An unknown outcome keeps the id of the task that may exist."""
    store.answer = AsyncNodesError("outcome_unknown", task_id="t_x")
    with pytest.raises(AsyncNodesError) as caught:
        submitter.submit(body(), tenant="default")
    assert caught.value.extra["task_id"] == "t_x"


def test_every_field_has_a_schema_and_a_place() -> None:
    """The table that validates is the one that documents."""
    assert list(FIELDS)[:2] == ["node", "inputs"]
    for field in FIELDS.values():
        assert "type" in field.schema or "oneOf" in field.schema


def test_the_scope_in_force_travels_with_the_task(submitter: Submitter, store: Store) -> None:
    """What a caller has put into its scope reaches the worker without being handed over."""
    with scope(user="u1"):
        submitter.submit(body(), tenant="default")
    assert json.loads(store.rows[0].private)["scope"] == {"user": "u1"}


# -- many at once ----------------------------------------------------------------------------------


def test_many_are_accepted_each_by_itself(submitter: Submitter, store: Store) -> None:
    """A broken item is told its fault, a failed one its failure; the others are accepted."""
    store.answer = AsyncNodesError("outcome_unknown", task_id="t")
    items = [
        body(inputs={"n": 1}),
        b'{"node": "echo", "node": "echo"}',
        body(priority=11),
        json.dumps({"node": "call", "inputs": {"url": "x"}}).encode(),
        b"[]",
        body(inputs={"x": "y" * MAX_REQUEST}),
        body(inputs={"n": 2}),
    ]
    answers = submitter.submit_many(items, tenant="default", traceparent=TRACEPARENT)

    codes = [one.code if isinstance(one, AsyncNodesError) else "ok" for one in answers]
    assert codes == [
        "ok", "not_json", "invalid_request", "outcome_unknown", "invalid_request",
        "body_too_large", "ok",
    ]  # fmt: skip
    assert [row.tail.count(b'"n": ') for row in store.rows] == [1, 0, 1]
    assert len(store.rows) == 3
    assert submitter.submit_many([], tenant="default") == []


def test_an_item_is_stored_as_a_submit_is(submitter: Submitter, store: Store) -> None:
    """Byte for byte, with the scope in force, whichever way it came."""
    with scope(user="u1"):
        submitter.submit(json.dumps(EVERYTHING).encode(), tenant="default", idempotency_key="k/0")
        submitter.submit_many(
            [json.dumps(EVERYTHING).encode()], tenant="default", idempotency_key="k"
        )

    assert store.rows[0] == store.rows[1]
    assert b"u1" in store.rows[0].private


def test_an_item_s_own_key_goes_before_the_batch_s(submitter: Submitter, store: Store) -> None:
    """Item i has <key>/<i>, or the one it brings; the member is no part of the meaning."""
    items = [body(), body(idempotency_key="mine"), body()]
    submitter.submit_many(items, tenant="default", idempotency_key="k")
    submitter.submit_many(items[:2], tenant="default")

    keys = [digest_of_key("default", key) for key in ("k/0", "mine", "k/2")]
    assert [row.idempotency for row in store.rows] == [*keys, "", keys[1]]
    assert len({row.fingerprint for row in store.rows if row.idempotency}) == 1


@pytest.mark.parametrize("key", ["", " ", "é", "x" * 256, 7, None, "a\nb"])
def test_a_key_that_is_none_is_its_item_s_fault(submitter: Submitter, key: object) -> None:
    """It is named, and the item is not accepted."""
    (answer,) = submitter.submit_many([body(idempotency_key=key)], tenant="default")
    assert isinstance(answer, AsyncNodesError)
    assert (answer.code, answer.pointer) == ("invalid_request", "/idempotency_key")


def test_a_single_submit_takes_no_key_in_its_body() -> None:
    """There it is a header."""
    assert "/idempotency_key" in faults(body(idempotency_key="k"))[1]
