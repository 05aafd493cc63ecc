"""The state events of a task's past, derived from its record (part of the step *expose*).

No log of states is kept: the record's attempts carry the versions at which they were queued,
started and ended, and the head has what is going on now. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from async_nodes.core import contracts
from async_nodes.core.ports import StreamEntry
from async_nodes.core.states import NodeState, Outcome, Reason
from async_nodes.storage.layout import Document

Position = tuple[int, int]
"""A place in a task's events, `(version, n)`; on the wire ``<version>-<n>``."""

START: Position = (0, 0)

_REASON_AFTER = {
    Outcome.RETRIED: Reason.BACKOFF,
    Outcome.LOST: Reason.LOST,
    Outcome.RELEASED: Reason.RELEASED,
}


@dataclass(frozen=True, slots=True)
class StateEvent:
    """Tell that a task entered a state, or another reason for it.

    Attributes:
        at: when, ISO 8601; None where the record does not tell (a cancel that was asked for).
        next_attempt_at: when the next attempt was due, ISO 8601. Of a wait that is over, when
            it really ended.

    """

    version: int
    state: NodeState
    reason: Reason
    attempt: int
    at: str | None
    next_attempt_at: str | None = None

    @property
    def position(self) -> Position:
        """Return the event's place: a state is the first event of its version."""
        return (self.version, 0)

    @property
    def json(self) -> bytes:
        """Return the event's data, member by member as the store publishes it."""
        data = {
            "state": self.state.value,
            "reason": self.reason.value or None,
            "attempt": self.attempt,
            "version": self.version,
            "at": self.at,
            "next_attempt_at": self.next_attempt_at,
        }
        return json.dumps(data, separators=(",", ":")).encode()


class _Attempt(msgspec.Struct):
    """One member of the record's `attempts`."""

    attempt: int
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    outcome: Outcome
    versions: tuple[int, int, int]


class _Attempts(msgspec.Struct):
    attempts: list[_Attempt]


_decoder = msgspec.json.Decoder(_Attempts)


@dataclass(frozen=True, slots=True)
class _Stage:
    """One way from the queue to the end of an attempt, as far as it went (0: not yet)."""

    number: int
    queued: int
    queued_at: str | None
    started: int = 0
    started_at: str | None = None
    ended: int = 0
    ended_at: str | None = None
    reason: Reason = Reason.NONE


def states(
    document: Document, entries: Sequence[StreamEntry] | None = None, *, after: Position = START
) -> list[StateEvent]:
    """Return the state events of a task after a position, oldest first.

    The terminal state is not among them: it is told by `done`.

    Args:
        document: the task as stored.
        entries: the stored chunks and progress after the position. Without them, the version
            at which a streaming task was asked to cancel cannot be told from one of progress,
            and that event is left out.
        after: the position.

    """
    stages = _stages(document)
    found = [*_past(document, stages), *_cancelling(document, stages[-1], entries, after)]
    return sorted(
        (event for event in found if event.position > after), key=lambda event: event.version
    )


def iso(ms: float) -> str | None:
    """Return milliseconds since 1970 as ISO 8601 in UTC, None for 0."""
    return contracts.iso(int(ms)) if ms else None


def _stages(document: Document) -> list[_Stage]:
    """Return the ended attempts and what came after them, never an empty list."""
    ended = [
        _Stage(
            entry.attempt,
            entry.versions[0],
            entry.queued_at,
            entry.versions[1],
            entry.started_at,
            entry.versions[2],
            entry.finished_at,
            _REASON_AFTER.get(entry.outcome, Reason.NONE),
        )
        for entry in _attempts(document)
    ]
    if document.state is NodeState.RUNNING:
        begun = (document.started_version, iso(document.started_at))
        return [*ended, _waiting(document, document.attempt, *begun)]
    if not ended or document.queued_version > ended[-1].ended:
        return [*ended, _waiting(document, document.attempt + 1)]
    return ended


def _waiting(
    document: Document, number: int, started: int = 0, started_at: str | None = None
) -> _Stage:
    queued_at = iso(document.queued_at)
    return _Stage(number, document.queued_version, queued_at, started, started_at)


def _attempts(document: Document) -> list[_Attempt]:
    running = document.state is NodeState.RUNNING
    if document.attempt == (1 if running else 0):
        return []  # none has ended: spare reading the inputs
    # Up to the end of the attempts: an output may be large and is not needed.
    text = document.raw[document.json_at : document.attempts_end] + b"]}"
    return _decoder.decode(text).attempts


def _past(document: Document, stages: Sequence[_Stage]) -> Iterator[StateEvent]:
    first = stages[0]
    delayed = first.queued % 2 == 0  # queued at once is 1, and every pause in between adds two
    pending, running = NodeState.PENDING, NodeState.RUNNING
    yield StateEvent(
        version=1,
        state=pending,
        reason=Reason.DELAYED if delayed else Reason.NONE,
        attempt=0,
        at=iso(document.created_at),
        next_attempt_at=_due(document, 1, first) if delayed else None,
    )
    told = 1
    for index, stage in enumerate(stages):
        yield from _queued(told, stage)
        if stage.started:
            yield StateEvent(stage.started, running, Reason.NONE, stage.number, stage.started_at)
        if stage.ended and not (document.state.terminal and stage.ended == document.version):
            following = stages[index + 1] if index + 1 < len(stages) else None
            due = _due(document, stage.ended, following) if stage.reason is Reason.BACKOFF else None
            yield StateEvent(stage.ended, pending, stage.reason, stage.number, stage.ended_at, due)
        told = max(stage.queued, stage.ended, 1)
    last = document.version - (document.state.terminal and stages[-1].ended != document.version)
    if document.state is not running and last > told:
        yield StateEvent(last, pending, Reason.PAUSED, document.attempt, at=None)


def _queued(told: int, stage: _Stage) -> Iterator[StateEvent]:
    """Yield how a wait went on to the queue: by a timer, and in and out of pauses."""
    for version in range(told + 1, stage.queued + 1):
        out = (stage.queued - version) % 2 == 0
        reason, at = (Reason.NONE, stage.queued_at) if out else (Reason.PAUSED, None)
        when = at if version == stage.queued else None
        yield StateEvent(version, NodeState.PENDING, reason, stage.number - 1, when)


def _due(document: Document, version: int, following: _Stage | None) -> str | None:
    """Return when the wait that began with a version was due to end, or did end."""
    if document.version == version:
        return iso(document.next_attempt_at)
    return following.queued_at if following and following.queued == version + 1 else None


def _cancelling(
    document: Document, stage: _Stage, entries: Sequence[StreamEntry] | None, after: Position
) -> Iterator[StateEvent]:
    """Yield the cancel of a running task: the one version that is neither state nor progress."""
    if not document.cancel or (entries is None and document.stream):
        return
    progress = {entry.version for entry in entries or () if entry.kind == "progress"}
    first = max(stage.started, after[0], document.trimmed_version) + 1
    until = stage.ended or document.version + 1
    version = next((v for v in range(first, until) if v not in progress), None)
    if version is not None:
        yield StateEvent(version, NodeState.RUNNING, Reason.CANCELLING, stage.number, at=None)
