"""The words of the state machine: five states that the wire knows, and what can happen to them."""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """Name a task's state on the wire; there are no others."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def terminal(self) -> bool:
        """Tell whether nothing can happen to the task any more."""
        return self in TERMINAL


TERMINAL = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.CANCELLED})


class EventType(StrEnum):
    """Name what can happen to a task."""

    START = "EVENT_START"
    PROGRESS = "EVENT_PROGRESS"
    CHUNK = "EVENT_CHUNK"
    COMPLETE = "EVENT_COMPLETE"
    ERROR = "EVENT_ERROR"
    RETRY = "EVENT_RETRY"
    WAIT = "EVENT_WAIT"
    WAKE = "EVENT_WAKE"
    CANCEL_ASKED = "EVENT_CANCEL_ASKED"
    CANCEL = "EVENT_CANCEL"
    TIMEOUT = "EVENT_TIMEOUT"
    LOST = "EVENT_LOST"
    RELEASE = "EVENT_RELEASE"
    HOLD = "EVENT_HOLD"


class Reason(StrEnum):
    """Say why a task is in its state, where the state alone does not tell."""

    NONE = ""
    DELAYED = "delayed"
    BACKOFF = "backoff"
    LOST = "lost"
    RELEASED = "released"
    CANCELLING = "cancelling"
    TIMEOUT = "timeout"
    DEADLINE = "deadline"
    POISON = "poison"
    UNDISPATCHED = "undispatched"
    WAITING = "waiting"
    PAUSED = "paused"


class Outcome(StrEnum):
    """Say how one attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RETRIED = "retried"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    RELEASED = "released"
