"""Why a task is still Pending: the first cause that holds, in words, with an estimate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.states import NodeState, Reason
from async_nodes.core.waiting import CODES, HELD, LONGEST_ERROR, OUT, PARKED, Facts, explain

PENDING = NodeState.PENDING
NOW = 1_800_000_000_000
ALIVE: dict[str, Any] = {"workers": 1, "any_workers": 2, "slots": 10, "running": 3}
BUSY = {**ALIVE, "running": 10}

everything = st.builds(
    Facts,
    state=st.sampled_from(NodeState),
    reason=st.sampled_from(Reason),
    queued=st.integers(0, 3),
    now_ms=st.just(NOW),
    next_attempt_ms=st.sampled_from([0, NOW - 1, NOW, NOW + 5_000]),
    error=st.text(max_size=300),
    paused=st.sampled_from(["", "queue:io.default", "node:echo"]),
    paused_ms=st.just(NOW - 1),
    paused_reason=st.text(max_size=20),
    ahead=st.none() | st.integers(0, 10**6),
    workers=st.integers(0, 2),
    any_workers=st.integers(0, 4),
    slots=st.none() | st.integers(0, 600),
    running=st.integers(0, 600),
    rate=st.floats(0, 1e4),
)


@pytest.mark.parametrize(
    ("facts", "code", "eta"),
    [
        ({"state": NodeState.RUNNING}, "running", 0.0),
        ({"state": NodeState.FAILED}, "ended", None),
        ({"reason": Reason.DELAYED, "queued": 0, "next_attempt_ms": NOW + 1_500}, "delayed", 1.5),
        ({"reason": Reason.BACKOFF, "queued": 0, "next_attempt_ms": NOW + 250}, "backoff", 0.25),
        ({"queued": HELD, "paused": "node:echo", "paused_ms": NOW}, "paused", None),
        ({"queued": OUT, "paused": "queue:io.default", "paused_ms": NOW}, "paused", None),
        ({"queued": HELD, "ahead": 3, "rate": 2.0, **ALIVE}, "releasing", 2.0),
        ({"queued": PARKED, "ahead": 9, "rate": 5.0, **ALIVE}, "parked", 2.0),
        ({"queued": OUT, "ahead": 0, "any_workers": 1}, "no_worker", None),
        ({"queued": 0, "next_attempt_ms": NOW - 5}, "no_worker", None),
        ({"queued": 0, "next_attempt_ms": NOW - 5, "any_workers": 1}, "dispatching", 0.0),
        ({"reason": Reason.LOST, "ahead": 7, **BUSY}, "again", 0.0),
        ({"reason": Reason.RELEASED, "ahead": 7, **ALIVE}, "again", 0.0),
        ({"ahead": 4, "rate": 2.5, **BUSY}, "busy", 2.0),
        ({"ahead": 4, **BUSY}, "busy", None),
        ({"ahead": 4, "rate": 2.5, **ALIVE}, "queued", 2.0),
        ({"ahead": 0, **ALIVE}, "dispatching", 0.0),
        ({"ahead": None, **ALIVE, "slots": None}, "dispatching", 0.0),
    ],
)
def test_the_first_cause_that_holds_is_told(
    facts: dict[str, Any], code: str, eta: float | None
) -> None:
    """Each has a code of its own, and an estimate where one can be made."""
    why = explain(Facts(**{"state": PENDING, "now_ms": NOW, **facts}))

    assert (why.code, why.eta_seconds) == (code, eta)


@given(everything)
def test_there_is_always_an_answer(facts: Facts) -> None:
    """A known code, a sentence in each language, no estimate in the past, whatever the facts."""
    why = explain(facts)

    assert why.code in CODES
    assert why.en
    assert why.zh
    assert why.eta_seconds is None or why.eta_seconds >= 0


@given(everything, st.integers(1, 1_000))
def test_more_tasks_ahead_never_make_it_sooner(facts: Facts, more: int) -> None:
    """The estimate only grows with the line."""
    known = {name: getattr(facts, name) for name in Facts.__slots__}
    before = explain(facts)
    after = explain(Facts(**{**known, "ahead": (facts.ahead or 0) + more}))

    if before.eta_seconds is not None and after.eta_seconds is not None:
        assert after.eta_seconds >= before.eta_seconds


def test_the_sentences_tell_the_facts() -> None:
    """Who paused it and why, what failed, how many are ahead."""
    paused = Facts(
        state=PENDING, queued=HELD, paused="node:llm.chat", paused_ms=NOW, paused_reason="quota"
    )
    assert explain(paused).en == (
        "The node llm.chat has been paused since 2027-01-15T08:00:00.000Z (quota)."
    )
    assert explain(paused).zh == "节点 llm.chat 自 2027-01-15T08:00:00.000Z 起暂停 (quota)。"
    failed = Facts(state=PENDING, reason=Reason.BACKOFF, next_attempt_ms=NOW, error="x" * 999)
    assert explain(failed).en.endswith("failed: " + "x" * LONGEST_ERROR)
    one = Facts(state=PENDING, ahead=1, **ALIVE)
    assert explain(one).en == "One task is ahead of it in io.default."
