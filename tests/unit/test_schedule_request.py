"""What a schedule may say: any JSON is taken whole, or refused with every fault named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.schedule import Missed, Overlap, first_tick
from async_nodes.dispatch.schedules import FIELDS, Spec, Wanted, read, spec_of, ticked
from async_nodes.nodes.registry import registry

NOW = 1_800_000_000_000
NODES = registry(())

numbers = st.integers(-5, 10**7) | st.floats(0, 10**6)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
likely = {
    "name": st.sampled_from(["a", "a.b-C_9", "", "x" * 55, "x" * 56]),
    "cron": st.sampled_from(["* * * * *", "@daily", "0 0 31 2 *", "61 * * * *", ""]),
    "every": st.sampled_from([1, 1.5, 60, 0, 10**9]),
    "timezone": st.sampled_from(["UTC", "Europe/Berlin", "Nowhere", "../x", "Asia"]),
    "starts_at": st.sampled_from(["2027-06-01T00:00:00Z", "2027-06-01", "2300-01-01T00:00:00Z"]),
    "ends_at": st.sampled_from(["2028-01-01T00:00:00+08:00", "2020-01-01T00:00:00Z"]),
    "jitter": st.sampled_from([0, 1.5, 3600, 4000]),
    "task": st.sampled_from([{"node": "echo"}, {"node": "ecoh"}, {"node": "echo", "ttl": 0}]),
    "missed": st.sampled_from(list(Missed)),
    "overlap": st.sampled_from(list(Overlap)),
    "paused": st.booleans(),
}
changes = st.lists(
    st.one_of(
        [st.tuples(st.just(name), kind | values) for name, kind in likely.items()]
        + [st.tuples(st.just("x"), values)]
    ),
    max_size=3,
).map(dict)
GOOD = {"name": "n", "cron": "* * * * *", "task": {"node": "echo"}}


def parsed(body: Any, **options: Any) -> Wanted:
    return read(json.dumps(body).encode(), NODES, now_ms=NOW, timezone="UTC", **options)


@given(change=changes)
def test_any_body_is_taken_or_refused_by_name(change: dict[str, Any]) -> None:
    """What is taken ticks in the future and is stored as it is; what is refused names a place."""
    body = {**GOOD, **change}
    refused = None
    try:
        wanted = parsed(body)
    except AsyncNodesError as error:
        refused = error
    if refused is not None:
        assert refused.code in {"invalid_request", "unknown_node", "invalid_inputs"}
        assert refused.extra["errors"]
        return
    spec = spec_of(wanted.spec.encode())
    assert spec == wanted.spec
    tick = first_tick(spec.schedule("t", wanted.name).timetable, NOW)
    assert tick is not None
    assert tick > NOW
    assert json.loads(wanted.task) == body["task"]


def test_every_member_has_a_field_in_the_definition() -> None:
    """The table of fields fills what is kept, and nothing besides."""
    targets = {field.target for field in FIELDS.values()} - {"", "name", "paused"}
    assert targets == set(Spec.__struct_fields__) - {"anchor_ms", "base"}


def test_a_tick_is_told_in_tag_and_metadata() -> None:
    """A task that brings as many tags as it may still has room for one."""
    from async_nodes.dispatch.request import parse

    body = {"node": "echo", "tags": [f"t{n}" for n in range(31)], "metadata": {"k": 1}}
    task = parsed({"name": "n", "every": 5, "task": body}).task
    request = ticked(parse(task, NODES, now_ms=NOW), "n", 1_000)

    assert len(request.tags) == 32
    assert request.tags[-1] == "schedule:n"
    assert request.metadata == {"scheduled_at": "1970-01-01T00:00:01.000Z", "k": 1}


def test_a_secret_that_was_never_there_cannot_stay() -> None:
    """[redacted] stands for what the schedule has had."""
    inputs = {"base_url": "http://127.0.0.1/v1", "model": "m", "messages": [{"role": "user", "content": "x"}]}  # fmt: skip  # noqa: E501
    task = {"node": "llm.chat", "inputs": {**inputs, "api_key": "[redacted]"}}
    before = json.dumps({"node": "llm.chat", "inputs": inputs}).encode()

    with pytest.raises(AsyncNodesError) as caught:
        parsed({"every": 5, "task": task}, name="n", task_before=before)

    assert (caught.value.code, caught.value.pointer) == ("invalid_inputs", "/task/inputs/api_key")


def test_what_a_later_release_has_added_is_passed_over() -> None:
    """While processes are upgraded one by one."""
    raw = json.loads(Spec(every_ms=5_000).encode()) | {"calendar": "x"}
    assert spec_of(json.dumps(raw).encode()) == Spec(every_ms=5_000)
