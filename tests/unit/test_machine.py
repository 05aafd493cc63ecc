"""The state machine: the table row by row, and what holds for every history."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.effects import Effect
from async_nodes.core.machine import (
    POISON_DEATHS,
    SUSPECT_LOSSES,
    TABLE,
    Event,
    IllegalTransition,
    Snapshot,
    advance,
    decide,
    replay,
    require_reachable_end,
    submitted,
)
from async_nodes.core.states import TERMINAL, EventType, NodeState, Outcome, Reason

PENDING, RUNNING = NodeState.PENDING, NodeState.RUNNING
SUCCEEDED, FAILED, CANCELLED = NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED
E = EventType

# state, event -> state and reason afterwards, outcome of the attempt, versions gained
MEANS: dict[tuple[NodeState, EventType], tuple[NodeState, Reason, Outcome | None, int]] = {
    (PENDING, E.START): (RUNNING, Reason.NONE, None, 1),
    (PENDING, E.WAKE): (PENDING, Reason.NONE, None, 1),
    (PENDING, E.LOST): (PENDING, Reason.NONE, None, 0),
    (PENDING, E.HOLD): (PENDING, Reason.PAUSED, None, 1),
    (PENDING, E.CANCEL): (CANCELLED, Reason.NONE, None, 1),
    (PENDING, E.TIMEOUT): (FAILED, Reason.DEADLINE, None, 1),
    (PENDING, E.ERROR): (FAILED, Reason.UNDISPATCHED, None, 1),
    (RUNNING, E.PROGRESS): (RUNNING, Reason.NONE, None, 1),
    (RUNNING, E.CHUNK): (RUNNING, Reason.NONE, None, 0),
    (RUNNING, E.CANCEL_ASKED): (RUNNING, Reason.CANCELLING, None, 1),
    (RUNNING, E.COMPLETE): (SUCCEEDED, Reason.NONE, Outcome.SUCCEEDED, 1),
    (RUNNING, E.ERROR): (FAILED, Reason.NONE, Outcome.FAILED, 1),
    (RUNNING, E.TIMEOUT): (FAILED, Reason.TIMEOUT, Outcome.TIMEOUT, 1),
    (RUNNING, E.CANCEL): (CANCELLED, Reason.NONE, Outcome.CANCELLED, 1),
    (RUNNING, E.RETRY): (PENDING, Reason.BACKOFF, Outcome.RETRIED, 1),
    (RUNNING, E.WAIT): (PENDING, Reason.WAITING, Outcome.RETRIED, 1),
    (RUNNING, E.LOST): (PENDING, Reason.LOST, Outcome.LOST, 1),
    (RUNNING, E.RELEASE): (PENDING, Reason.RELEASED, Outcome.RELEASED, 1),
}
EVERY_PAIR = [(state, event) for state in NodeState for event in EventType]


def in_state(state: NodeState) -> Snapshot:
    """Return a record that came into a state by the shortest way."""
    record = submitted(1_000)
    if state is PENDING:
        return record
    if state is CANCELLED:
        return advance(record, Event(E.CANCEL, 1_001))
    record = advance(record, Event(E.START, 1_001))
    ends = {SUCCEEDED: E.COMPLETE, FAILED: E.ERROR}
    return record if state is RUNNING else advance(record, Event(ends[state], 1_002))


@pytest.mark.parametrize(("state", "event"), EVERY_PAIR)
def test_every_pair_of_state_and_event_is_allowed_or_refused(
    state: NodeState, event: EventType
) -> None:
    """A pair in the table leads where it says; any other raises and names what is allowed."""
    record = in_state(state)

    if (state, event) not in MEANS:
        with pytest.raises(IllegalTransition, match=f"{state} does not take {event}"):
            decide(record, Event(event, 2_000))
        return
    target, reason, outcome, gained = MEANS[state, event]
    after = advance(record, Event(event, 2_000, due=3_000))

    assert (after.state, after.reason) == (target, reason)
    assert after.version == record.version + gained
    assert [one.outcome for one in after.attempts] == ([outcome] if outcome else [])


def test_the_table_is_what_is_written_here() -> None:
    """No row was added or taken away without this file knowing."""
    assert {pair: row.target for pair, row in TABLE.items()} == {
        pair: target for pair, (target, *_) in MEANS.items()
    }


def test_the_specification_s_rows_stand() -> None:
    """Start, complete and error lead where the specification says, stored as it says."""
    rows = [(PENDING, E.START), (RUNNING, E.COMPLETE), (RUNNING, E.ERROR)]

    assert [(TABLE[row].target, TABLE[row].persist) for row in rows] == [
        (RUNNING, False),
        (SUCCEEDED, True),
        (FAILED, True),
    ]


def test_every_state_has_a_way_out_or_is_the_end() -> None:
    """Terminal states have no row, all others have one."""
    require_reachable_end()

    assert {state for state, _ in TABLE} == set(NodeState) - TERMINAL


def test_a_bad_end_asks_for_compensation() -> None:
    """Whatever fails or cancels a task compensates; what succeeds or goes on does not."""
    for (_, event), row in TABLE.items():
        assert (Effect.COMPENSATE in row.effects) == (row.target in {FAILED, CANCELLED}), event


def test_what_is_dispatched_and_timed_is_said_by_effects() -> None:
    """Back to Pending at once is a message, later a timer, held for a pause neither."""
    for pair, row in TABLE.items():
        waits = pair[1] in {E.RETRY, E.WAIT}
        if row.target is PENDING:
            assert (Effect.TIMER in row.effects) == waits, pair
            assert (Effect.DISPATCH in row.effects) == (not waits and pair[1] is not E.HOLD), pair


# -- losses ----------------------------------------------------------------------------------------


def lost(record: Snapshot, *, isolated: bool = False, late: bool = False) -> Snapshot:
    started = advance(record, Event(E.START, 1))
    return advance(started, Event(E.LOST, 2, isolated=isolated, late=late))


def test_a_loss_does_not_cost_a_retry() -> None:
    """Attempt counts the start, spent gives it back."""
    once = lost(submitted(1))

    assert (once.attempt, once.spent, once.losses, once.deaths) == (1, 0, 1, 0)


def test_two_losses_make_a_suspect() -> None:
    """The first proves nothing; from the second on the task runs in a process of its own."""
    record, suspicions = submitted(1), []
    for _ in range(3):
        record = lost(record)
        suspicions.append(record.suspect)

    assert suspicions == [False, True, True]
    assert SUSPECT_LOSSES == 2


def test_losses_among_others_never_kill_a_task() -> None:
    """Fifty deploys in a row end nothing: only deaths alone count."""
    record = submitted(1)
    for _ in range(50):
        record = lost(record)

    assert (record.state, record.losses, record.spent) == (PENDING, 50, 0)


def test_two_deaths_alone_are_poison() -> None:
    """The second death of a process that ran nothing else fails the task with a dead letter."""
    record = advance(lost(submitted(1), isolated=True), Event(E.START, 3))
    end = decide(record, Event(E.LOST, 4, isolated=True))

    assert (end.record.state, end.record.reason) == (FAILED, Reason.POISON)
    assert end.record.attempts[-1].outcome is Outcome.LOST
    assert end.effects[-1] is Effect.DEAD_LETTER
    assert Effect.COMPENSATE in end.effects
    assert POISON_DEATHS == 2


def test_a_loss_after_the_deadline_is_the_end() -> None:
    """A late loss fails the task, and is no dead letter."""
    record = advance(submitted(1), Event(E.START, 2))
    end = decide(record, Event(E.LOST, 3, late=True))

    assert (end.record.state, end.record.reason) == (FAILED, Reason.DEADLINE)
    assert Effect.DEAD_LETTER not in end.effects
    assert Effect.COMPENSATE in end.effects


@pytest.mark.parametrize("event", [E.ERROR, E.TIMEOUT])
def test_a_passed_deadline_is_the_reason(event: EventType) -> None:
    """A running task that ends because its deadline came says so."""
    record = advance(submitted(1), Event(E.START, 2))

    assert advance(record, Event(event, 3, late=True)).reason is Reason.DEADLINE


def test_a_delayed_task_waits_without_a_message() -> None:
    """It has a time instead of a dispatch, until it is woken."""
    waiting = submitted(1_000, delay_ms=500)
    woken = advance(waiting, Event(E.WAKE, 1_500))

    assert (waiting.reason, waiting.next_attempt_at, waiting.dispatch) == (
        Reason.DELAYED,
        1_500,
        0,
    )
    assert (woken.reason, woken.next_attempt_at, woken.dispatch) == (Reason.NONE, 0, 1)
    assert (woken.queued_at, woken.queued_version) == (1_500, 2)


# -- every history ---------------------------------------------------------------------------------

events = st.builds(
    Event,
    st.sampled_from(EventType),
    st.integers(1_000, 2_000),
    due=st.integers(1, 3_000),
    isolated=st.booleans(),
    late=st.booleans(),
)
histories = st.lists(events, max_size=60)
delays = st.sampled_from([0, 0, 500])


def legal(history: list[Event], *, delay: int) -> tuple[list[Snapshot], list[Event]]:
    """Return the records a history leads through, leaving out the events that are refused."""
    records, taken = [submitted(1_000, delay_ms=delay)], []
    for event in history:
        if event.type is E.START and records[-1].next_attempt_at:
            continue  # a start needs a message, and this one waits for its timer
        try:
            records.append(advance(records[-1], event))
        except IllegalTransition:
            continue
        taken.append(event)
    return records, taken


@given(histories, delays)
def test_a_terminal_state_absorbs(history: list[Event], delay: int) -> None:
    """After the end every event is refused and the record stays as it is."""
    records, taken = legal(history, delay=delay)

    ends = [record for record in records if record.state.terminal]
    assert len(ends) <= 1
    if ends:
        assert records[-1] is ends[0]
        assert len(taken) == len(records) - 1


@given(histories, delays)
def test_the_version_rises_by_one_with_every_change_of_the_document(
    history: list[Event], delay: int
) -> None:
    """Only a chunk and a message sent again leave the version alone."""
    records, taken = legal(history, delay=delay)

    for before, event, after in zip(records, taken, records[1:], strict=False):
        quiet = event.type is E.CHUNK or (event.type is E.LOST and before.state is PENDING)
        assert after.version == before.version + (0 if quiet else 1)


@given(histories, delays)
def test_replaying_the_events_gives_the_record(history: list[Event], delay: int) -> None:
    """A history is all there is: run again, it leads to the same record."""
    records, taken = legal(history, delay=delay)

    assert replay(records[0], taken) == records[-1]


@given(histories, delays)
def test_a_record_keeps_its_own_books(history: list[Event], delay: int) -> None:
    """Attempts, losses and versions agree with each other in every record."""
    for record in legal(history, delay=delay)[0]:
        running = record.state is RUNNING
        assert len(record.attempts) == record.attempt - running
        assert [one.attempt for one in record.attempts] == [*range(1, len(record.attempts) + 1)]
        outcomes = [one.outcome for one in record.attempts]
        assert record.losses == outcomes.count(Outcome.LOST)
        free = record.losses + outcomes.count(Outcome.RELEASED)
        assert record.spent == record.attempt - free
        assert 0 <= record.deaths <= min(record.losses, POISON_DEATHS)
        marks = [version for one in record.attempts for version in one.versions]
        assert marks == sorted(marks)
        assert all(mark <= record.version for mark in marks)
        assert bool(record.finished_at) == record.state.terminal


@given(histories, delays, events)
def test_deciding_changes_nothing_by_itself(history: list[Event], delay: int, event: Event) -> None:
    """Decide is pure: asked twice it says the same, and the record it was given stays."""
    record = legal(history, delay=delay)[0][-1]
    copy = replace(record)

    assert said(record, event) == said(record, event)
    assert record == copy


def said(record: Snapshot, event: Event) -> Any:
    try:
        return decide(record, event)
    except IllegalTransition as refusal:
        return str(refusal)


def test_a_duplicate_delivery_changes_nothing() -> None:
    """The second start of the same dispatch, and the second end, are refused."""
    running = advance(submitted(1), Event(E.START, 2))
    done = advance(running, Event(E.COMPLETE, 3))

    with pytest.raises(IllegalTransition):
        advance(running, Event(E.START, 4))
    with pytest.raises(IllegalTransition):
        advance(done, Event(E.COMPLETE, 4))
