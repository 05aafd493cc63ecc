"""The state events of the past against the machine that made them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.streams.history import StateEvent, iso, states
from async_nodes.core import machine
from async_nodes.core.machine import Event, Snapshot
from async_nodes.core.ports import StreamEntry
from async_nodes.core.states import EventType, NodeState, Outcome, Reason
from async_nodes.storage import layout
from async_nodes.storage.layout import Document

BEGIN = 1_900_000_000_000  # 2030-03-17T17:46:40Z
TAIL = b'"inputs":{"attempts":[1]},"attempts":['

E = EventType
WAITING = (E.START, E.WAKE, E.CANCEL, E.TIMEOUT, E.ERROR)
RUNNING = (
    E.CANCEL_ASKED,
    E.PROGRESS, E.PROGRESS, E.CHUNK, E.RETRY, E.RETRY, E.LOST, E.RELEASE,
    E.COMPLETE, E.ERROR, E.TIMEOUT,
)  # fmt: skip


class Life:
    """A task that goes through the machine, with what was told about it and what is stored."""

    def __init__(self, *, delay_ms: int) -> None:
        self.record = machine.submitted(BEGIN, delay_ms=delay_ms)
        self.now = BEGIN
        self.seq = 0
        self.cancel_asked = False
        self.entries: list[StreamEntry] = []
        self.told = [self._state()]

    @property
    def over(self) -> bool:
        """Tell whether the task has ended."""
        return self.record.state.terminal

    def may(self, event: EventType) -> bool:
        """Tell whether the store takes an event now."""
        woken = self.record.next_attempt_at == 0
        if event is E.START:
            return woken
        if event is E.WAKE:
            return not woken
        return not self.cancel_asked or event in {E.PROGRESS, E.CHUNK, E.COMPLETE}

    def step(self, event: EventType) -> None:
        """Let an event happen a second after the last one."""
        self.now += 1_000
        due = self.now + 500 if event is E.RETRY else 0
        self.record = machine.advance(self.record, Event(event, self.now, due=due))
        if event is E.CHUNK:
            self.seq += 1
            self._keep("chunk")
            return
        self.seq = 0
        self.cancel_asked = self.cancel_asked or event is E.CANCEL_ASKED
        if event is E.PROGRESS:
            self._keep("progress")
        elif not self.over:
            self.told.append(self._state())

    def document(self) -> Document:
        """Return the task as the scripts would have stored it."""
        return stored(
            self.record, seq=self.seq, cancel=self.cancel_asked, stream=bool(self.entries)
        )

    def _state(self) -> tuple[int, NodeState, Reason, int]:
        record = self.record
        return (record.version, record.state, record.reason, record.attempt)

    def _keep(self, kind: str) -> None:
        self.entries.append(StreamEntry(self.record.version, self.seq, kind, b"{}"))


def stored(record: Snapshot, **columns: Any) -> Document:
    """Return a stored task from the machine's view of it."""
    values: dict[str, Any] = {field.name: 0 for field in layout.FIELDS}
    values |= {field.name: b"" for field in layout.FIELDS if field.lua.startswith("c")}
    values |= {name: getattr(record, name) for name in vars_of(record) if name in values}
    values["schema"] = layout.SCHEMA
    values["state"] = layout.STATES.index(record.state)
    values["reason"] = layout.REASONS.index(record.reason)
    attempts = ",".join(json.dumps(entry_of(attempt)) for attempt in record.attempts)
    text = b'{"task_id":"t_1",' + TAIL + attempts.encode()
    values["json_at"] = layout.CONTROL_SIZE
    values["attempts_end"] = layout.CONTROL_SIZE + len(text)
    control = layout._STRUCTS[layout.SCHEMA].pack(*(values | columns).values())
    return layout.parse(control + text + b'],"output":{"attempts":[7]}}')


def vars_of(record: Snapshot) -> list[str]:
    return list(Snapshot.__dataclass_fields__)


def entry_of(attempt: machine.Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "queued_at": iso(attempt.queued_at),
        "started_at": iso(attempt.started_at),
        "finished_at": iso(attempt.finished_at),
        "outcome": attempt.outcome.value,
        "error": None,
        "versions": attempt.versions,
    }


def shown(events: list[StateEvent]) -> list[tuple[int, NodeState, Reason, int]]:
    return [(event.version, event.state, event.reason, event.attempt) for event in events]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Draw a legal life of a task, ended or not."""
    life = Life(delay_ms=draw(st.sampled_from([0, 5_000])))
    for _ in range(draw(st.integers(0, 25))):
        if life.over:
            break
        running = life.record.state is NodeState.RUNNING
        possible = [event for event in (RUNNING if running else WAITING) if life.may(event)]
        if running and life.cancel_asked:
            possible.append(E.CANCEL)
        life.step(draw(st.sampled_from(possible)))
    return life


@given(lives())
def test_the_record_tells_every_state_it_went_through(life: Life) -> None:
    """Version, state, reason and attempt of every state event are derived, the end apart."""
    assert shown(states(life.document(), life.entries)) == life.told


@given(lives(), st.data())
def test_after_a_position_come_the_later_ones(life: Life, data: st.DataObject) -> None:
    """With only the entries after a position, the states after it are the same."""
    after = (data.draw(st.integers(0, life.record.version)), data.draw(st.integers(0, 3)))
    later = [entry for entry in life.entries if (entry.version, entry.seq) > after]

    found = shown(states(life.document(), later, after=after))

    assert found == [told for told in life.told if (told[0], 0) > after]


@given(lives())
def test_times_never_go_back(life: Life) -> None:
    """The times of a history are known, but for a cancel that was asked for, and in order."""
    events = states(life.document(), life.entries)

    times = [event.at for event in events if event.reason is not Reason.CANCELLING]

    assert None not in times
    assert times == sorted(times, key=str)
    assert times[0] == "2030-03-17T17:46:40.000Z"


def test_a_wait_tells_when_it_is_due_and_later_when_it_ended() -> None:
    """A back-off in force has its planned end, one that is over the time it was queued again."""
    life = Life(delay_ms=0)
    life.step(E.START)
    life.step(E.RETRY)
    waiting = states(life.document())[-1]
    life.step(E.WAKE)
    woken = states(life.document())

    assert waiting.reason is Reason.BACKOFF
    assert waiting.next_attempt_at == iso(BEGIN + 2_500)
    assert woken[-2].next_attempt_at == iso(BEGIN + 3_000)
    assert woken[-1].next_attempt_at is None


def test_a_delayed_task_that_never_ran_was_delayed() -> None:
    """A cancel before the first attempt leaves one state: delayed, end unknown."""
    life = Life(delay_ms=5_000)
    life.step(E.CANCEL)

    (only,) = states(life.document())

    assert only.reason is Reason.DELAYED
    assert only.next_attempt_at is None


def test_without_entries_a_streaming_cancel_is_left_out() -> None:
    """A version of progress is never shown as the cancel that it cannot be told from."""
    life = Life(delay_ms=0)
    life.step(E.START)
    life.step(E.PROGRESS)
    life.step(E.CANCEL_ASKED)

    assert [event.version for event in states(life.document())] == [1, 2]
    assert [event.version for event in states(life.document(), life.entries)] == [1, 2, 4]


def test_what_was_trimmed_is_not_taken_for_a_cancel() -> None:
    """Progress that was dropped leaves a hole that is no state event."""
    life = Life(delay_ms=0)
    for event in (E.START, E.PROGRESS, E.PROGRESS):
        life.step(event)
    life.step(E.CANCEL_ASKED)
    document = stored(life.record, cancel=1, stream=1, trimmed_version=3)

    assert [event.version for event in states(document, life.entries[1:])] == [1, 2, 5]


def test_the_json_is_what_the_scripts_publish() -> None:
    """Members, order and compactness are those of a published state."""
    event = StateEvent(4, NodeState.PENDING, Reason.BACKOFF, 1, iso(BEGIN), iso(BEGIN + 1))

    assert event.json == (
        b'{"state":"Pending","reason":"backoff","attempt":1,"version":4,'
        b'"at":"2030-03-17T17:46:40.000Z","next_attempt_at":"2030-03-17T17:46:40.001Z"}'
    )
    assert json.loads(StateEvent(1, NodeState.RUNNING, Reason.NONE, 1, None).json)["reason"] is None


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_can_be_read(outcome: Outcome) -> None:
    """An attempt with any outcome of the vocabulary is understood."""
    attempt = machine.Attempt(1, BEGIN, BEGIN, BEGIN, outcome, (1, 2, 3))
    record = Snapshot(
        BEGIN, NodeState.FAILED, version=3, attempt=1, queued_version=1, attempts=(attempt,)
    )

    assert [event.version for event in states(stored(record))] == [1, 2]
