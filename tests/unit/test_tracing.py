"""What is traced: the share of new traces, the flags of others, and nothing without the setting."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Claim
from async_nodes.telemetry import profiling, tracing
from async_nodes.telemetry.logs import UNDER_WAY, JsonFormatter, _named

IDS = st.integers(0, 2**128 - 1).map("{:032x}".format)
CLAIM = Claim("t_1", "f", 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, "default", b"", b"")


@given(st.floats(0, 1), IDS)
def test_the_share_is_decided_by_the_id(sample: float, trace_id: str) -> None:
    """Below the share of all ids a trace is sampled; every process decides the same."""
    is_below = int(trace_id[:8], 16) < int(sample * 2**32)

    assert (trace_id[:8] < tracing.bound_of(sample)) == (sample >= 1 or is_below)


def test_nothing_is_sampled_without_the_setting() -> None:
    """Not even the lowest id, and an attempt of a sampled trace makes no span."""
    trace = tracing.attempt(CLAIM, f"00-{'0' * 32}-{'1' * 16}-01", "echo")

    assert tracing.flags_of("0" * 32) == "00"
    assert trace.traceparent == ""
    assert tracing.start(None, "web") is None


@pytest.mark.parametrize(
    ("flags", "kept"), [("00", False), ("01", True), ("02", False), ("03", True)]
)
def test_the_last_bit_of_the_flags_decides(flags: str, *, kept: bool) -> None:
    """The others say something else, and no trace at all is not kept."""
    assert tracing.is_sampled(f"00-{'a' * 32}-{'b' * 16}-{flags}") is kept
    assert not tracing.is_sampled("")
    assert not tracing.is_sampled(None)


@pytest.mark.parametrize(
    ("module", "begin", "name"),
    [
        ("opentelemetry", lambda: tracing.start(0.5, "web"), "ASYNC_NODES_TRACE_SAMPLE"),
        ("pyroscope", lambda: profiling.start("http://x:4040", "web"), "ASYNC_NODES_PYROSCOPE_URL"),
    ],
)
def test_a_missing_extra_is_told(
    module: str, begin: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the setting that needs it, with what to install."""
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(AsyncNodesError, match=f"{name} needs the extra: pip install") as told:
        begin()
    assert told.value.code == "invalid_setting"
    assert tracing.TRACING.spans is None
    assert profiling.PROFILING.profiler is None


@given(st.text(), st.one_of(st.text(), st.floats(), st.integers(), st.booleans()))
def test_a_json_line_is_one_object(message: str, fact: object) -> None:
    """Whatever is in it; facts keep the types that JSON has, and never take a known name."""
    given_facts = {"msg": message.replace("%", "%%"), "levelname": "WARNING", "name": "a"}
    record = logging.makeLogRecord({**given_facts, "fact": fact, "level": "mine"})
    line = JsonFormatter().format(record)
    found = json.loads(line)

    assert line.isascii()
    assert "\n" not in line
    assert found["level"] == "warning"
    assert found["message"] == message.replace("%", "%%")
    assert type(found["fact"]) in (str, int, float, bool)


def test_what_is_under_way_is_named() -> None:
    """A line that names a task itself keeps its own name."""
    token = UNDER_WAY.set({"trace_id": "abc", "task_id": "t_outer"})
    try:
        record = logging.makeLogRecord({"task_id": "t_own"})
        assert _named(record)
    finally:
        UNDER_WAY.reset(token)

    assert (record.__dict__["trace_id"], record.__dict__["task_id"]) == ("abc", "t_own")
