"""Policy around a node's body, like the skins of an onion: each calls the next.

A middleware may raise: what it raises is the attempt's error. Observers, which may not, belong to
the `bus`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from async_nodes.telemetry import task_lines
from async_nodes.telemetry.profiling import PROFILING
from async_nodes.telemetry.task_lines import LINES
from async_nodes.telemetry.work_metrics import active, of_node

if TYPE_CHECKING:
    from async_nodes.core.ports import Claim
    from async_nodes.execution.job import Job

Middleware = Callable[["Claim", "Job"], Any]
Wrapper = Callable[[Middleware], Middleware]


def compose(wrappers: Sequence[Wrapper]) -> Wrapper:
    """Return one wrapper that applies all, the first outermost."""
    return lambda innermost: reduce(lambda inner, wrap: wrap(inner), reversed(wrappers), innermost)


def noted(call_next: Middleware) -> Middleware:
    """Log one line when a body starts, where that is wanted."""

    def run(claim: Claim, job: Job) -> Any:
        if LINES.on:
            task_lines.started(claim, job.spec.name, job.traceparent)
        return call_next(claim, job)

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


def profiled(call_next: Middleware) -> Middleware:
    """Label the stacks of a body for whoever looks at profiles."""

    def run(claim: Claim, job: Job) -> Any:
        profiler = PROFILING.profiler
        if profiler is None:
            return call_next(claim, job)
        with profiler.labelled(job.spec.name, claim.task_id, job.traceparent):
            return call_next(claim, job)

    return run


STANDARD: Wrapper = compose((measured, noted))
