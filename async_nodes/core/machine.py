"""The state machine: one table, one pure function, and the replay that checks both.

A transition is looked up by (state, event). What it means for the record is computed by
`advance`, which the store's scripts mirror and the tests hold them to; the scripts' own guards
are generated from this table, so the two cannot drift apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType

from async_nodes.core.effects import Effect
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import TERMINAL, EventType, NodeState, Outcome, Reason

SUSPECT_LOSSES = 2
"""Losses after which a task runs in a process of its own: one proves nothing, two point at it."""

POISON_DEATHS = 2
"""Deaths of a process that ran nothing else after which the task is called poison."""


@dataclass(frozen=True, slots=True)
class Transition:
    """Say where an event leads.

    Attributes:
        target: the state afterwards.
        persist: whether losing this change loses more than a repeat (a start may be repeated).
        effects: what the shell has to do, in order.

    """

    target: NodeState
    persist: bool
    effects: tuple[Effect, ...]


_S, _E = NodeState, EventType
_ENDED_WELL = (Effect.PERSIST, Effect.PUBLISH)
_ENDED_BADLY = (Effect.PERSIST, Effect.PUBLISH, Effect.COMPENSATE)

TABLE: Mapping[tuple[NodeState, EventType], Transition] = MappingProxyType(
    {
        # The specification's own three rows
        (_S.PENDING, _E.START): Transition(_S.RUNNING, persist=False, effects=(Effect.PUBLISH,)),
        (_S.RUNNING, _E.COMPLETE): Transition(_S.SUCCEEDED, persist=True, effects=_ENDED_WELL),
        (_S.RUNNING, _E.ERROR): Transition(_S.FAILED, persist=True, effects=_ENDED_BADLY),
        # While it waits
        (_S.PENDING, _E.WAKE): Transition(
            _S.PENDING, persist=True, effects=(Effect.PUBLISH, Effect.DISPATCH)
        ),
        (_S.PENDING, _E.LOST): Transition(_S.PENDING, persist=True, effects=(Effect.DISPATCH,)),
        (_S.PENDING, _E.HOLD): Transition(_S.PENDING, persist=True, effects=(Effect.PUBLISH,)),
        (_S.PENDING, _E.CANCEL): Transition(_S.CANCELLED, persist=True, effects=_ENDED_BADLY),
        (_S.PENDING, _E.TIMEOUT): Transition(_S.FAILED, persist=True, effects=_ENDED_BADLY),
        (_S.PENDING, _E.ERROR): Transition(
            _S.FAILED, persist=True, effects=(*_ENDED_BADLY, Effect.DEAD_LETTER)
        ),
        # While it runs
        (_S.RUNNING, _E.PROGRESS): Transition(_S.RUNNING, persist=False, effects=(Effect.PUBLISH,)),
        (_S.RUNNING, _E.CHUNK): Transition(_S.RUNNING, persist=False, effects=(Effect.PUBLISH,)),
        (_S.RUNNING, _E.CANCEL_ASKED): Transition(
            _S.RUNNING, persist=True, effects=(Effect.PUBLISH, Effect.TIMER)
        ),
        (_S.RUNNING, _E.RETRY): Transition(
            _S.PENDING, persist=True, effects=(Effect.PUBLISH, Effect.TIMER)
        ),
        (_S.RUNNING, _E.WAIT): Transition(
            _S.PENDING, persist=True, effects=(Effect.PUBLISH, Effect.TIMER)
        ),
        (_S.RUNNING, _E.LOST): Transition(
            _S.PENDING, persist=True, effects=(Effect.PUBLISH, Effect.DISPATCH)
        ),
        (_S.RUNNING, _E.RELEASE): Transition(
            _S.PENDING, persist=True, effects=(Effect.PUBLISH, Effect.DISPATCH)
        ),
        (_S.RUNNING, _E.TIMEOUT): Transition(_S.FAILED, persist=True, effects=_ENDED_BADLY),
        (_S.RUNNING, _E.CANCEL): Transition(_S.CANCELLED, persist=True, effects=_ENDED_BADLY),
    }
)


class IllegalTransition(ValueError):
    """The table has no row for this event in this state."""

    def __init__(self, state: NodeState, event: EventType) -> None:
        self.state = state
        self.event = event
        allowed = sorted(str(row[1]) for row in TABLE if row[0] is state)
        super().__init__(
            f"{state} does not take {event}; it takes {', '.join(allowed) or 'nothing'}"
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Tell one thing that happened to a task.

    Attributes:
        type: what.
        at: when, in milliseconds since 1970, by the store's clock.
        due: for RETRY and WAIT, when the task is to be woken, in milliseconds; 0 for at once.
        isolated: for LOST, whether the process that died ran this task alone.
        late: for ERROR, TIMEOUT and LOST of a running task, whether its deadline has passed.
        stopped: for CANCEL of a running task, whether the body is known to have stopped.

    """

    type: EventType
    at: int
    due: int = 0
    isolated: bool = False
    late: bool = False
    stopped: bool = True


@dataclass(frozen=True, slots=True)
class Attempt:
    """Tell one start of the node's body and how it ended."""

    attempt: int
    queued_at: int
    started_at: int
    finished_at: int
    outcome: Outcome
    versions: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Hold what the machine decides on: the mutable part of a record, without its payloads.

    Times are milliseconds since 1970, 0 for "not yet". `spent` counts the starts that the retry
    policy has to pay for: a loss or an orderly release gives the start back.
    """

    created_at: int
    state: NodeState = NodeState.PENDING
    reason: Reason = Reason.NONE
    version: int = 1
    attempt: int = 0
    spent: int = 0
    losses: int = 0
    deaths: int = 0
    dispatch: int = 0
    queued_at: int = 0
    queued_version: int = 0
    started_at: int = 0
    started_version: int = 0
    finished_at: int = 0
    next_attempt_at: int = 0
    attempts: tuple[Attempt, ...] = ()

    @property
    def suspect(self) -> bool:
        """Tell whether the task has to run in a process of its own."""
        return self.losses >= SUSPECT_LOSSES


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold what an event leads to: the record afterwards and the effects to carry out."""

    record: Snapshot
    effects: tuple[Effect, ...]


def submitted(at: int, *, delay_ms: int = 0) -> Snapshot:
    """Return the record of a task accepted at `at`, dispatched at once or delayed."""
    fresh = Snapshot(created_at=at)
    if delay_ms:
        return replace(fresh, reason=Reason.DELAYED, next_attempt_at=at + delay_ms)
    return _dispatched(fresh, at)


def decide(record: Snapshot, event: Event) -> Decision:
    """Return the record after the event and the effects it asks for.

    Raises:
        IllegalTransition: the table has no row for it; nothing may be changed.

    """
    row = TABLE.get((record.state, event.type))
    if row is None:
        raise IllegalTransition(record.state, event.type)
    after = _MEANING[event.type](record, event, row.target)
    if after.state is row.target:
        return Decision(after, row.effects)
    # A loss that turned out to be the last one.
    letter = (Effect.DEAD_LETTER,) if after.reason is Reason.POISON else ()
    return Decision(after, (*_ENDED_BADLY, *letter))


def advance(record: Snapshot, event: Event) -> Snapshot:
    """Return the record after the event, leaving the effects aside."""
    return decide(record, event).record


def replay(first: Snapshot, events: Iterable[Event]) -> Snapshot:
    """Return the record that a history of events leads to."""
    return reduce(advance, events, first)


def _bumped(record: Snapshot) -> Snapshot:
    return replace(record, version=record.version + 1)


def _dispatched(record: Snapshot, at: int) -> Snapshot:
    return replace(
        record,
        dispatch=record.dispatch + 1,
        queued_at=at,
        queued_version=record.version,
        next_attempt_at=0,
    )


def _attempt_closed(record: Snapshot, at: int, outcome: Outcome) -> Snapshot:
    """Append the running attempt to the history; the record's version is the one it ends with."""
    versions = (record.queued_version, record.started_version, record.version)
    entry = Attempt(record.attempt, record.queued_at, record.started_at, at, outcome, versions)
    return replace(record, attempts=(*record.attempts, entry))


def _start(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    bumped = _bumped(record)
    return replace(
        bumped,
        state=target,
        reason=Reason.NONE,
        attempt=record.attempt + 1,
        spent=record.spent + 1,
        started_at=event.at,
        started_version=bumped.version,
        next_attempt_at=0,
    )


def _changed(record: Snapshot, _event: Event, _target: NodeState) -> Snapshot:
    return _bumped(record)


def _unchanged(record: Snapshot, _event: Event, _target: NodeState) -> Snapshot:
    return record


def _ended(
    record: Snapshot, event: Event, target: NodeState, outcome: Outcome, reason: Reason
) -> Snapshot:
    ended = replace(
        _bumped(record),
        state=target,
        reason=reason,
        finished_at=event.at,
        next_attempt_at=0,
    )
    if record.state is NodeState.RUNNING:
        return _attempt_closed(ended, event.at, outcome)
    return ended


def _complete(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    return _ended(record, event, target, Outcome.SUCCEEDED, Reason.NONE)


def _error(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    reason = Reason.DEADLINE if event.late else Reason.NONE
    if record.state is NodeState.PENDING:
        reason = Reason.UNDISPATCHED
    return _ended(record, event, target, Outcome.FAILED, reason)


def _timeout(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    waiting = record.state is NodeState.PENDING
    reason = Reason.DEADLINE if waiting or event.late else Reason.TIMEOUT
    return _ended(record, event, target, Outcome.TIMEOUT, reason)


def _cancel_asked(record: Snapshot, _event: Event, _target: NodeState) -> Snapshot:
    return replace(_bumped(record), reason=Reason.CANCELLING)


def _cancel(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    return _ended(record, event, target, Outcome.CANCELLED, Reason.NONE)


def _retry(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    reason = Reason.BACKOFF if event.type is EventType.RETRY else Reason.WAITING
    outcome = Outcome.RETRIED
    bumped = replace(_bumped(record), state=target, reason=reason, next_attempt_at=event.due)
    return _attempt_closed(bumped, event.at, outcome)


def _wake(record: Snapshot, event: Event, _target: NodeState) -> Snapshot:
    return _dispatched(replace(_bumped(record), reason=Reason.NONE), event.at)


def _hold(record: Snapshot, _event: Event, _target: NodeState) -> Snapshot:
    return replace(_bumped(record), reason=Reason.PAUSED)


def _lost(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    if record.state is NodeState.PENDING:
        return replace(record, dispatch=record.dispatch + 1)
    deaths = record.deaths + (1 if event.isolated else 0)
    reason = Reason.DEADLINE if event.late else Reason.LOST
    if deaths >= POISON_DEATHS:
        reason = Reason.POISON
    last = reason is not Reason.LOST
    lost = replace(
        _bumped(record),
        state=NodeState.FAILED if last else target,
        reason=reason,
        losses=record.losses + 1,
        deaths=deaths,
        spent=record.spent - 1,
        finished_at=event.at if last else 0,
    )
    closed = _attempt_closed(lost, event.at, Outcome.LOST)
    return closed if last else _dispatched(closed, event.at)


def _release(record: Snapshot, event: Event, target: NodeState) -> Snapshot:
    given_back = replace(
        _bumped(record), state=target, reason=Reason.RELEASED, spent=record.spent - 1
    )
    closed = _attempt_closed(given_back, event.at, Outcome.RELEASED)
    return _dispatched(closed, event.at)


_MEANING = MappingProxyType(
    {
        EventType.START: _start,
        EventType.PROGRESS: _changed,
        EventType.CHUNK: _unchanged,
        EventType.COMPLETE: _complete,
        EventType.ERROR: _error,
        EventType.TIMEOUT: _timeout,
        EventType.CANCEL_ASKED: _cancel_asked,
        EventType.CANCEL: _cancel,
        EventType.RETRY: _retry,
        EventType.WAIT: _retry,
        EventType.WAKE: _wake,
        EventType.LOST: _lost,
        EventType.RELEASE: _release,
        EventType.HOLD: _hold,
    }
)


def require_reachable_end() -> None:
    """Check that every state has a way to a terminal one and that terminal states absorb.

    Raises:
        AsyncNodesError: the table was edited into a trap.

    """
    for state in NodeState:
        leaves = {row.target for (source, _), row in TABLE.items() if source is state}
        if (state in TERMINAL) == bool(leaves):
            raise AsyncNodesError("internal", f"the state table has no right way out of {state}")
