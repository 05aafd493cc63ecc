"""Doing again what a task was asked to do: from its record, byte for byte, with edits."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy
from async_nodes.core.states import NodeState
from async_nodes.dispatch.again import EDITABLE, original_of, revised
from async_nodes.dispatch.request import FIELDS, SubmitRequest, parse
from async_nodes.dispatch.submit import compose
from async_nodes.nodes.registry import UnknownNodeError
from tests.unit.test_submit import EVERYTHING, NODES, NOW_MS, TASK_ID

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=10,
)  # fmt: skip


def stored(request: SubmitRequest, state: NodeState = NodeState.FAILED, **options: Any) -> Any:
    """Return what an ended task of a request shows of its record."""
    row = compose(request, task_id=TASK_ID, tenant="default", default_timeout_ms=300_000, **options)
    head = b'{"task_id":"%s",' % TASK_ID.encode()
    raw = head + row.tail + b'"attempts":[]}'
    return SimpleNamespace(
        state=state, version=3, json=raw, private=row.private, raw=raw,
        inputs_at=len(head) + row.inputs_at, inputs_len=row.inputs_len,
        timeout=row.timeout_ms, ttl=float(row.ttl_ms),
    )  # fmt: skip


def submitted(members: dict[str, Any], **options: Any) -> Any:
    return stored(parse(json.dumps(members).encode(), NODES, now_ms=NOW_MS), **options)


def again(document: Any, edits: Any = None) -> SubmitRequest:
    raw = json.dumps({} if edits is None else edits).encode()
    return revised(original_of(document), raw, NODES, now_ms=NOW_MS)


@given(inputs=st.dictionaries(st.text(max_size=5), values, max_size=5), ascii_only=st.booleans())
def test_the_same_again_is_the_same_bytes(inputs: dict[str, Any], *, ascii_only: bool) -> None:
    """Whatever the inputs are, the worker gets what was sent, and the row is the same."""
    inputs.pop("ctx", None)
    text = json.dumps(inputs, ensure_ascii=ascii_only)
    raw = f'{{"node": "echo", "inputs": {text}}}'.encode()
    first = parse(raw, NODES, now_ms=NOW_MS)
    second = again(stored(first))

    assert second.raw_inputs == first.raw_inputs == text.encode()
    options: dict[str, Any] = {"task_id": TASK_ID, "tenant": "t", "default_timeout_ms": 300_000}
    assert compose(second, **options) == compose(first, **options)


def test_everything_but_the_moment_is_kept() -> None:
    """Delay and deadline belong to the first time; secrets come from the worker's part."""
    asked = {**EVERYTHING, "deadline": "2100-01-01T00:00:00Z"}
    first = parse(json.dumps(asked).encode(), NODES, now_ms=NOW_MS)
    second = again(stored(first))

    assert (second.delay_ms, second.deadline_ms) == (0, 0)
    for name in ("spec", "raw_inputs", "inputs", "priority", "retry", "ttl_ms", "tags", "metadata"):
        assert getattr(second, name) == getattr(first, name), name
    assert second.timeout_ms == 1500
    assert b"s3cret" in second.raw_inputs


def test_the_time_out_is_the_one_that_was_stored() -> None:
    """A default of the node that has changed meanwhile does not change the task."""
    assert again(submitted({"node": "call", "inputs": {"url": "x"}})).timeout_ms == 2_500
    assert again(submitted({"node": "echo"})).timeout_ms == 300_000


def test_the_scope_goes_along() -> None:
    """What travelled with the first task travels with the second."""
    document = submitted({"node": "echo"}, scope={"user": "u1"})
    assert original_of(document).scope == {"user": "u1"}


@pytest.mark.parametrize("name", EDITABLE)
def test_every_field_but_the_node_can_be_changed(name: str) -> None:
    """And is read as a submit reads it."""
    edits = {
        "inputs": {"url": "z"}, "priority": 9, "timeout_ms": 7, "deadline": "2100-01-01T00:00:00Z",
        "retry_policy": {"max_attempts": 4}, "delay": 3, "ttl": 9, "tags": ["n"],
        "metadata": {"m": 2},
    }  # fmt: skip
    document = submitted({"node": "call", "inputs": {"url": "x"}})
    changed, same = again(document, {name: edits[name]}), again(document)
    target = FIELDS[name].target
    assert getattr(changed, target) != getattr(same, target)
    assert {
        one for one in SubmitRequest.__struct_fields__ if one not in (target, "raw_inputs")
    } == {
        one
        for one in SubmitRequest.__struct_fields__
        if one not in (target, "raw_inputs") and getattr(changed, one) == getattr(same, one)
    }


def test_a_policy_is_changed_member_by_member() -> None:
    """What is not named stays as the first task had it."""
    document = submitted(
        {"node": "call", "inputs": {"url": "x"}, "retry_policy": {"initial_ms": 9, "jitter": False}}
    )
    policy = again(document, {"retry_policy": {"max_attempts": 2}}).retry
    assert policy == RetryPolicy(max_attempts=2, initial_ms=9, jitter=False)


def test_a_secret_stays_what_it_was_where_it_is_not_shown() -> None:
    """[redacted] stands for the old value of a secret input, and for nothing else."""
    document = submitted({"node": "call", "inputs": {"url": "x", "secret": "s3cret"}})
    edited = {"url": "[redacted]", "secret": "[redacted]", "more": 1}
    assert again(document, {"inputs": edited}).inputs == {**edited, "secret": "s3cret"}
    fresh = again(document, {"inputs": {"url": "x", "secret": "new"}})
    assert fresh.inputs["secret"] == "new"
    without = submitted({"node": "call", "inputs": {"url": "x"}})
    with pytest.raises(AsyncNodesError) as caught:
        again(without, {"inputs": edited, "priority": 11})
    places = [fault["pointer"] for fault in caught.value.extra["errors"]]
    assert sorted(places) == ["/inputs/secret", "/priority"]


def test_a_node_that_is_gone_is_told() -> None:
    """As in a submit; so are inputs that do not fit any more."""
    with pytest.raises(UnknownNodeError):
        revised(original_of(submitted({"node": "echo"})), b"{}", {}, now_ms=NOW_MS)
    document = submitted({"node": "call", "inputs": {"url": "x"}})
    with pytest.raises(AsyncNodesError) as caught:
        again(document, {"inputs": {}})
    assert (caught.value.code, caught.value.pointer) == ("invalid_inputs", "/inputs/url")


@pytest.mark.parametrize("state", [NodeState.PENDING, NodeState.RUNNING])
def test_a_task_that_lives_is_not_asked_again(state: NodeState) -> None:
    """The error says when to look again."""
    with pytest.raises(AsyncNodesError) as caught:
        original_of(submitted({"node": "echo"}, state=state))
    assert (caught.value.code, caught.value.retry_after) == ("task_not_finished", 1.0)
    assert caught.value.extra == {"task_id": TASK_ID, "state": state.value, "version": 3}
