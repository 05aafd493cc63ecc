"""What is known of a task at a moment: events in, the next view out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from async_nodes.cli import symbols

#: A bar that only guesses from the time stays below its end.
_MOST_GUESSED = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task as the person sees it.

    Attributes:
        node, purpose: what it is.
        expected: seconds it should run.
        text_rows: lines kept for its text.
        task_id: empty until it is accepted.
        answered_ms: how long the caller waited for the 202.
        state, reason, attempt: of the last event.
        submitted_at, running_since, ended_at: seconds on the demo's clock.
        first_text_at: when the first piece of text came.
        fraction: what the node says of its progress.
        text: what was streamed in this attempt.
        note: what came of it.
        record: the whole, once it has ended.
        trouble: why it could not be submitted or followed.

    """

    node: str
    purpose: str = ""
    expected: float = 1.0
    text_rows: int = 0
    task_id: str = ""
    answered_ms: float | None = None
    state: str = ""
    reason: str = ""
    attempt: int = 0
    submitted_at: float | None = None
    running_since: float | None = None
    ended_at: float | None = None
    first_text_at: float | None = None
    fraction: float | None = None
    text: str = ""
    note: str = ""
    record: Mapping[str, Any] | None = None
    trouble: str = ""

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.record is not None or bool(self.trouble)

    def seconds(self, now: float) -> float:
        """Return how long it has been going since it was submitted."""
        if self.submitted_at is None:
            return 0.0
        return (now if self.ended_at is None else self.ended_at) - self.submitted_at

    def progress(self, now: float) -> float:
        """Return how far it is, 0 to 1: what the node says, else guessed from the time."""
        if self.state in symbols.TERMINAL:
            return 1.0
        if self.fraction is not None:
            return self.fraction
        if self.running_since is None or self.state != "Running":
            return 0.0
        return min((now - self.running_since) / self.expected, _MOST_GUESSED)


def accepted(view: TaskView, task_id: str, *, answered_ms: float, at: float) -> TaskView:
    """Return the view after the 202."""
    return replace(
        view,
        task_id=task_id,
        answered_ms=answered_ms,
        state="Pending",
        submitted_at=at - answered_ms / 1000,
    )


def failed(view: TaskView, trouble: str, *, at: float) -> TaskView:
    """Return the view after the task could not be submitted, or not be followed."""
    return replace(view, trouble=trouble, ended_at=at)


def advance(view: TaskView, kind: str, data: Mapping[str, Any], *, at: float) -> TaskView:
    """Return the view after one event of the task's stream."""
    if kind == "chunk":
        return _chunk(view, data, at)
    if kind == "progress":
        said = data.get("fraction")
        return replace(view, fraction=float(said) if said is not None else view.fraction)
    if kind in {"state", "reset"}:
        return _state(view, data, at)
    if kind == "done":
        return replace(_state(view, data, at), record=data, ended_at=at)
    return view


def _state(view: TaskView, data: Mapping[str, Any], at: float) -> TaskView:
    state, attempt = str(data["state"]), int(data.get("attempt") or 0)
    changes: dict[str, Any] = {
        "state": state,
        "reason": str(data.get("reason") or ""),
        "attempt": attempt,
    }
    if state == "Running" and (view.state != "Running" or attempt != view.attempt):
        # A new attempt begins anew: what the one before streamed is superseded.
        changes |= {"running_since": at, "text": "", "fraction": None}
    return replace(view, **changes)


def _chunk(view: TaskView, data: Mapping[str, Any], at: float) -> TaskView:
    if int(data.get("attempt") or view.attempt) < view.attempt:
        return view
    return replace(
        view,
        text=view.text + str(data.get("text", "")),
        first_text_at=at if view.first_text_at is None else view.first_text_at,
    )
