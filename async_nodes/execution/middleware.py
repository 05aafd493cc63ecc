"""Policy around a node's body, like the skins of an onion: each calls the next.

A middleware may raise: what it raises is the attempt's error. Observers, which may not, belong to
the `bus`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from async_nodes.telemetry.work_metrics import active, of_node

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim
    from async_nodes.execution.job import Job

_log = logging.getLogger(__name__)

Middleware = Callable[["Claim", "Job"], Any]
Wrapper = Callable[[Middleware], Middleware]


def compose(wrappers: Sequence[Wrapper]) -> Wrapper:
    """Return one wrapper that applies all, the first outermost."""
    return lambda innermost: reduce(lambda inner, wrap: wrap(inner), reversed(wrappers), innermost)


def logged(call_next: Middleware) -> Middleware:
    """Log one line when a body ends."""

    def run(claim: Claim, job: Job) -> Any:
        if not _log.isEnabledFor(logging.INFO):
            return call_next(claim, job)
        started = time.monotonic()
        outcome = "returned"
        try:
            return call_next(claim, job)
        except BaseException as error:
            outcome = type(error).__name__
            raise
        finally:
            _log.info(
                "A node ended",
                extra={
                    "action": "node_ended",
                    "task_id": claim.task_id,
                    "node": job.spec.name,
                    "attempt": claim.attempt,
                    "outcome": outcome,
                    "seconds": round(time.monotonic() - started, 6),
                },
            )

    return run


def measured(call_next: Middleware) -> Middleware:
    """Count running bodies and observe how long they and their waiting took."""

    def run(claim: Claim, job: Job) -> Any:
        tally = of_node(job.spec.name)
        tally.waited.observe(max(claim.started_ms - claim.queued_ms, 0) / 1000)
        active.now += 1
        started = time.monotonic()
        try:
            return call_next(claim, job)
        finally:
            active.now -= 1
            tally.runtime.observe(time.monotonic() - started)

    return run


STANDARD: Wrapper = compose((measured, logged))
