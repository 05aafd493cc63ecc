"""The quick pass over a request: the same verdict and the same bytes as the thorough one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core import strict_json
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import NodeState
from async_nodes.dispatch import request
from async_nodes.dispatch.submit import Submitted, compose
from async_nodes.nodes.registry import registry

NOW_MS = 1_796_072_400_123
TASK_ID = "t_01KEXAMPZE0123456789ABCDEF"
NODES = registry(())

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.sampled_from([0, 1, 5, 100, 101, True, "3"]),
        "initial_ms": st.sampled_from([0, 500, -1, None]),
        "jitter": st.sampled_from([True, False, 1]),
        "jiter": st.just(True),
    },
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "node": st.sampled_from(["echo", "http.request", "text.chunk", "ecoh", "", 3, None]),
        "inputs": st.sampled_from([{}, {"url": "https://example.org"}, {"text": "a"}, [], None])
        | st.dictionaries(st.text(max_size=4), JSON, max_size=3),
        "priority": st.sampled_from([0, 5, 9, 10, -1, "high", "low", "x", True, None]),
        "timeout_ms": st.sampled_from([1, 2_500, 0, 86_400_001, True, 1.5]),
        "deadline": st.sampled_from(
            [None, iso(NOW_MS - 1), iso(NOW_MS + 4_999), iso(NOW_MS + 5_001), "soon", 5]
        ),
        "retry_policy": st.sampled_from([None, []]) | POLICIES,
        "delay": st.sampled_from([0, 0.5, 5, -1, True, "1"]),
        "ttl": st.sampled_from([1, 60.5, 0, None]),
        "tags": st.sampled_from([[], ["a", "é"], [""], ["a\n"], "a", [1]]),
        "metadata": st.sampled_from([{}, [], None]) | st.dictionaries(st.text(max_size=4), JSON),
        "dealy": st.just(1),
    },
)


def verdict(parse: Any, *given: Any) -> Any:
    """Return a request, or everything that a refusal says."""
    try:
        return parse(*given)
    except AsyncNodesError as error:
        return error.code, error.detail, error.pointer, error.status, error.extra


@given(BODIES)
def test_both_passes_come_to_the_same(body: dict[str, Any]) -> None:
    """A request that the quick pass takes has no fault; one that it leaves has at least one."""
    raw = json.dumps(body, ensure_ascii=False).encode(errors="replace")
    try:
        body = strict_json.loads(raw)
    except AsyncNodesError:
        return
    quick = request._faultless(raw, body, NODES, NOW_MS)
    thorough = verdict(request._examined, raw, body, NODES, NOW_MS)
    assert (quick is not None) is isinstance(thorough, request.SubmitRequest)
    assert quick is None or quick == thorough
    parsed = verdict(lambda: request.parse(raw, NODES, now_ms=NOW_MS))
    assert parsed == thorough


GOOD = st.fixed_dictionaries(
    {"node": st.just("echo")},
    optional={
        "inputs": st.dictionaries(st.text(max_size=4), JSON, max_size=3),
        "priority": st.integers(0, 9),
        "timeout_ms": st.integers(1, 1_000_000),
        "deadline": st.sampled_from([None, iso(NOW_MS + 86_400_000)]),
        "retry_policy": st.fixed_dictionaries({}, optional={"max_attempts": st.integers(1, 9)}),
        "delay": st.integers(0, 9),
        "tags": st.lists(st.sampled_from(["a", "é", '"', "\\", "日本"]), max_size=3),
        "metadata": st.dictionaries(st.text(max_size=4), JSON, max_size=3),
    },
)
TRACES = st.sampled_from([None, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"])
SCOPES = st.none() | st.dictionaries(st.text(max_size=4), JSON, max_size=2)


@given(GOOD, TRACES, SCOPES)
def test_what_is_stored_is_what_the_encoder_makes(
    body: dict[str, Any], traceparent: str | None, scope: dict[str, Any] | None
) -> None:
    """Put together from parts, it is byte for byte the compact JSON of its members."""
    raw = json.dumps(body).encode()
    try:
        asked = request.parse(raw, NODES, now_ms=NOW_MS)
    except AsyncNodesError:
        return  # a lone surrogate, say
    row = compose(
        asked,
        task_id=TASK_ID,
        tenant="default",
        default_timeout_ms=300_000,
        traceparent=traceparent,
        scope=scope,
    )
    link = f"/v1/tasks/{TASK_ID}"
    members = {
        "node": "echo",
        "priority": asked.priority,
        "timeout_ms": row.timeout_ms,
        "deadline": iso(asked.deadline_ms) if asked.deadline_ms else None,
        "trace_id": traceparent.split("-")[1] if traceparent else None,
        "parent_id": None,
        "retry_of": None,
        "tags": asked.tags,
        "metadata": asked.metadata,
        "links": {
            "self": link,
            **{name: f"{link}/{name}" for name in ("events", "result", "logs", "cancel")},
        },
    }
    before = compact(members)[1:-1] + b',"inputs":'
    assert row.tail == before + asked.raw_inputs + b","
    private = {
        "node": "echo",
        "retry": asked.retry.to_json() if asked.retry else None,
        "scope": scope or None,
        "traceparent": traceparent,
    }
    assert row.private == compact(private)


def compact(members: Any) -> bytes:
    text = json.dumps(members, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode()


@given(st.integers(0, 253_402_300_799_999))
def test_the_time_of_creation_is_that_of_the_record(created_ms: int) -> None:
    """Its seconds are made once for many tasks, its milliseconds for each."""
    done = Submitted(TASK_ID, 1, NodeState.PENDING, created_ms, replayed=False)
    assert done.created_at == iso(created_ms)
