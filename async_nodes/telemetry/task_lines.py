"""One line in the log for each change of a task's state, where ASYNC_NODES_LOG_TASKS is set.

Accepted, started, ended: each with the task's id, node and trace; the last two with when the task
was put into its queue and taken out of it, how long it waited and how long it ran. Off by default:
measured, a line takes about as long (0.1 ms) as all the rest of a short task.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from async_nodes.core.states import NodeState
from async_nodes.telemetry.outcomes import OUTCOMES

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim, Ending, Finished, Submission

log: Final = logging.getLogger("async_nodes.tasks")


class Switch:
    """Say whether lines are wanted.

    Attributes:
        on: to be set once, at the start of a process.

    """

    on = False


LINES: Final = Switch()


def start(*, wanted: bool) -> None:
    """Write lines from now on, whatever level the log has otherwise."""
    LINES.on = wanted
    log.setLevel(logging.INFO if wanted else logging.NOTSET)


def accepted(task_id: str, node: str, submission: Submission) -> None:
    """Tell that a task is in the store; its trace is what goes with it."""
    log.info(
        "Task accepted",
        extra={
            "action": "task_accepted",
            "task_id": task_id,
            "node": node,
            "queue": submission.list_name,
            "state": NodeState.PENDING.value,
            "trace_id": _trace_id(submission.private),
        },
    )


def started(claim: Claim, node: str, traceparent: str) -> None:
    """Tell that a worker has taken a task."""
    log.info(
        "Task started",
        extra={
            "action": "task_started",
            "state": NodeState.RUNNING.value,
            **_of(claim, node, traceparent),
        },
    )


class Job(Protocol):
    """What of an attempt's job is told."""

    @property
    def traceparent(self) -> str:
        """Return the task's trace."""
        ...

    @property
    def spec(self) -> Any:
        """Return its node."""
        ...


def ended(claim: Claim, job: Job, ending: Ending, finished: Finished, seconds: float) -> None:
    """Tell how an attempt ended, and in which state its task is now, where lines are wanted.

    Args:
        claim: the attempt.
        job: its node and trace.
        ending: how it ended.
        finished: what the store made of it.
        seconds: since the attempt began.

    """
    if not LINES.on:
        return
    log.info(
        "Task ended" if finished.state is not None and finished.state.terminal else "Attempt ended",
        extra={
            "action": "task_ended",
            "state": finished.state.value if finished.state is not None else None,
            "outcome": OUTCOMES.get(ending.event, "failed"),
            **_of(claim, job.spec.name, job.traceparent),
            "run_seconds": round(seconds, 6),
        },
    )


def _of(claim: Claim, node: str, traceparent: str) -> dict[str, Any]:
    return {
        "task_id": claim.task_id,
        "node": node,
        "attempt": claim.attempt,
        "queue": claim.list_name or None,
        "enqueued_at": _at(claim.queued_ms),
        "dequeued_at": _at(claim.started_ms),
        "wait_seconds": max(claim.started_ms - claim.queued_ms, 0) / 1000,
        "trace_id": trace_id_of(traceparent),
    }


def _at(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def _trace_id(private: bytes) -> str | None:
    """Return the trace that goes with a task."""
    return trace_id_of(json.loads(private).get("traceparent"))


def trace_id_of(traceparent: str | None) -> str | None:
    """Return the id in a ``traceparent``, None where there is none."""
    return traceparent.split("-")[1] if traceparent else None
