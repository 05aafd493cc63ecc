"""The contract envelope: the specification's sample, our own spelling, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.contracts import (
    Completed,
    ContractType,
    Dispatch,
    Envelope,
    Failed,
    Payload,
    decode,
    epoch_ms,
    iso,
)
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"
SAMPLE = (GOLDEN / "dispatch_sample.json").read_bytes()
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"

trace_ids = st.from_regex(r"\A[A-Za-z0-9._-]{1,64}\Z")
milliseconds = st.integers(1, 86_400_000)
names = st.text(min_size=1, max_size=20)
jsons = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 100),
    initial_ms=st.integers(0, 86_400_000),
    max_ms=st.integers(0, 86_400_000),
    multiplier=st.floats(1, 100),
    jitter=st.booleans(),
    total_ms=st.none() | st.integers(0, 10**12),
)


def envelope(kind: ContractType, payload: st.SearchStrategy[Payload]) -> st.SearchStrategy[Any]:
    return st.builds(
        Envelope,
        event_type=st.just(kind),
        trace_id=trace_ids,
        timeout_ms=milliseconds,
        retry_policy=policies,
        payload=payload,
        deadline_ms=st.integers(0, 4_102_444_800_000),
        ack_timeout_ms=milliseconds,
        max_dispatches=st.integers(0, 1000),
    )


envelopes = st.one_of(
    envelope(
        ContractType.DISPATCH,
        st.builds(Dispatch, names, st.integers(0, 9), st.none() | names),
    ),
    envelope(ContractType.COMPLETED, st.builds(Completed, names, st.integers(1, 99), jsons)),
    envelope(
        ContractType.FAILED,
        st.builds(Failed, names, st.dictionaries(st.text(), jsons, max_size=3)),
    ),
)


def test_the_specification_s_sample_is_read() -> None:
    """The sample's meta becomes a deadline, an ack time-out and a bound on dispatches."""
    found = decode(SAMPLE, new_trace_id=lambda: TRACE)

    assert found == Envelope(
        event_type=ContractType.DISPATCH,
        trace_id=TRACE,
        timeout_ms=300_000,
        retry_policy=RetryPolicy(),
        payload=Dispatch("j-7f2a", 3),
        deadline_ms=1_718_461_320_000,
        ack_timeout_ms=5_000,
        max_dispatches=2,
    )


def test_the_sample_is_written_in_our_spelling() -> None:
    """What is written is the golden envelope, byte for byte."""
    written = decode(SAMPLE, new_trace_id=lambda: TRACE).encode()

    assert written == (GOLDEN / "dispatch_envelope.json").read_bytes().strip()


def test_a_sample_without_a_trace_gets_one_of_its_own() -> None:
    """The trace id is made up where the spelling leaves it out, and differs each time."""
    assert decode(SAMPLE).trace_id != decode(SAMPLE).trace_id


@given(envelopes)
def test_what_is_written_is_read_back(given_one: Envelope) -> None:
    """Encoding and decoding give the same envelope."""
    assert decode(given_one.encode()) == given_one


@pytest.mark.parametrize("missing", ["trace_id", "timeout_ms", "retry_policy", "payload"])
def test_the_required_fields_are_required(missing: str) -> None:
    """Without one of the four fields the envelope is refused by its name."""
    whole = json.loads((GOLDEN / "dispatch_envelope.json").read_bytes())
    del whole[missing]

    with pytest.raises(AsyncNodesError) as refused:
        decode(json.dumps(whole))

    assert (refused.value.code, refused.value.pointer) == ("invalid_request", f"/{missing}")


WRONG = [
    ({"event_type": "TASK_DISPATCHED"}, "/event_type", "TASK_DISPATCH"),
    ({"trace_id": "no spaces"}, "/trace_id", "no spaces"),
    ({"trace_id": 7}, "/trace_id", "7"),
    ({"timeout_ms": 0}, "/timeout_ms", "1.."),
    ({"timeout_ms": True}, "/timeout_ms", "whole number"),
    ({"timeout_ms": 1.5}, "/timeout_ms", "whole number"),
    ({"retry_policy": []}, "/retry_policy", "object"),
    ({"retry_policy": {"max_atempts": 2}}, "/retry_policy/max_atempts", "mean max_attempts"),
    ({"retry_policy": {"max_attempts": "2"}}, "/retry_policy/max_attempts", "type"),
    ({"retry_policy": {"max_attempts": 2.0}}, "/retry_policy/max_attempts", "type"),
    ({"retry_policy": {"jitter": 1}}, "/retry_policy/jitter", "type"),
    ({"retry_policy": {"max_attempts": 0}}, "/retry_policy/max_attempts", "1..100"),
    ({"payload": {"priority": 1}}, "/payload/task_id", "required"),
    ({"payload": {"task_id": "x", "priority": 10}}, "/payload/priority", "10"),
    ({"payload": {"task_id": "", "priority": 1}}, "/payload/task_id", "empty"),
    ({"payload": {"task_id": "x", "output": 1}}, "/payload/output", "not known"),
    ({"payload": "x"}, "/payload", "object"),
    ({"deadline": "tomorrow"}, "/deadline", "ISO 8601"),
    ({"deadline": "2024-06-15T14:22:00"}, "/deadline", "zone"),
    ({"deadline": 17}, "/deadline", "ISO 8601"),
    ({"ack_timeout_ms": -1}, "/ack_timeout_ms", "1.."),
    ({"ack_timeout": 5}, "/ack_timeout", "mean ack_timeout_ms"),
]


@pytest.mark.parametrize(("change", "pointer", "words"), WRONG)
def test_a_wrong_field_is_named(change: dict[str, Any], pointer: str, words: str) -> None:
    """The answer points at the field and says what is wanted, with a suggestion for a typo."""
    whole = json.loads((GOLDEN / "dispatch_envelope.json").read_bytes())

    with pytest.raises(AsyncNodesError) as refused:
        decode(json.dumps({**whole, **change}))

    assert (refused.value.code, refused.value.pointer) == ("invalid_request", pointer)
    assert words in refused.value.detail


@pytest.mark.parametrize("raw", ["", "{", "[" * 100_000, '{"event":', b"\xff"])
def test_text_that_is_not_json_is_refused(raw: str | bytes) -> None:
    """Broken JSON is not_json, however it is broken."""
    with pytest.raises(AsyncNodesError) as refused:
        decode(raw)

    assert refused.value.code == "not_json"


@pytest.mark.parametrize("raw", ["[]", "null", '"TASK_DISPATCH"', '{"event":"TASK_DISPATCH"}'])
def test_json_of_another_shape_is_refused(raw: str) -> None:
    """JSON that is no envelope is invalid_request."""
    with pytest.raises(AsyncNodesError) as refused:
        decode(raw)

    assert refused.value.code == "invalid_request"


def test_an_output_that_is_not_json_is_not_written() -> None:
    """NaN in an output is refused when the envelope is encoded."""
    bad = Envelope(
        event_type=ContractType.COMPLETED,
        trace_id=TRACE,
        timeout_ms=1,
        retry_policy=RetryPolicy(),
        payload=Completed("t", 1, float("nan")),
    )

    with pytest.raises(AsyncNodesError, match="Out of range") as refused:
        bad.encode()

    assert refused.value.code == "result_not_json"


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)), st.integers(-14, 14))  # noqa: DTZ001
def test_times_survive_the_way_there_and_back(moment: datetime, hours: int) -> None:
    """A time in any zone is read to the millisecond and written in UTC."""
    local = moment.replace(tzinfo=UTC).isoformat()
    shifted = moment.replace(tzinfo=UTC) - timedelta(hours=hours)
    zone = f"{'-' if hours < 0 else '+'}{abs(hours):02d}:00"

    assert epoch_ms(iso(epoch_ms(local, "/deadline")), "") == epoch_ms(local, "/deadline")
    assert epoch_ms(moment.isoformat() + zone, "") == epoch_ms(shifted.isoformat(), "")
