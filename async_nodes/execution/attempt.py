"""The story of one attempt: from a claim to its ending, in whichever process it runs.

A *host* gives what differs between a greenlet and a process of its own: the time limit, the way
to run a coroutine, and timers.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import GreenletExit

from async_nodes.core.context import scope
from async_nodes.core.errors import AsyncNodesError, AttemptTimeout, TaskCancelled
from async_nodes.core.retry import RetryPolicy
from async_nodes.core.states import EventType
from async_nodes.egress.client import Client
from async_nodes.execution import endings, refusals
from async_nodes.execution.forks import one_process
from async_nodes.execution.job import Job, job_of
from async_nodes.execution.report import Later, Report
from async_nodes.execution.signals import FenceLost, Released
from async_nodes.nodes import NodeContext, NodeSpec, invoke
from async_nodes.nodes.context import NoBlobs
from async_nodes.nodes.files import NodeFiles, prepared
from async_nodes.telemetry import task_lines, tracing
from async_nodes.telemetry.logs import UNDER_WAY
from async_nodes.telemetry.work_metrics import of_node

if TYPE_CHECKING:
    from types import TracebackType

    from async_nodes.core.files import Files
    from async_nodes.core.ports import Blobs, Claim, Ending, Finished, Tasks
    from async_nodes.egress.guard import Guard
    from async_nodes.execution.bus import EventBus
    from async_nodes.execution.middleware import Middleware, Wrapper

_log = logging.getLogger(__name__)

DEADLINE_MARGIN = 0.01
"""Seconds past the deadline at which a body is stopped, so that the store sees it passed too."""


class Host(Protocol):
    """What an attempt needs of the process it runs in."""

    @property
    def later(self) -> Later | None:
        """Return a timer, where there can be one."""

    def aside(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Run a function beside the body after so many seconds, unless it is prevented."""

    def limit(self, seconds: float) -> AbstractContextManager[object]:
        """Raise `AttemptTimeout` inside the block after so many seconds."""

    def run_async(self, spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
        """Run an ``async def`` body to its end."""


def _no_files(_tenant: str) -> None:
    """Give none: where there is no store for them."""


def _unprotected(_ctx: NodeContext) -> Wrapper:
    """Run the body as it is: where there are no breakers."""
    return lambda call_next: call_next


def _unguarded(_url: str, _tenant: str) -> AbstractContextManager[object]:
    """Let every call through: where there are no breakers."""
    return nullcontext()


def _unhedged(_name: str, call: Callable[[bool], Any], _after: float | None) -> Any:
    """Make the one call: where no two can be made at once."""
    return call(False)


def _nobody_listens(_task_id: str) -> None:
    """Do nothing: where no node is cleaned up after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """Hold what every attempt of a process shares.

    Attributes:
        store: where claims come from and endings go.
        registry: the nodes by name.
        host: the process.
        guard: which addresses a node may call.
        middleware: wraps every body, outermost first.
        bus: told of starts and endings.
        blobs, files: what the nodes of a tenant keep, by the tenant.
        log_level: what a body logs so severely goes to its task's own log.
        expect_end: told of a task that is about to be ended here and will be cleaned up after.
        protect: wraps the body of a node that declares a breaker, a fallback or a hedge.
        calls: gives the breaker of an endpoint.
        hedge: makes a call, and a second one beside it if that is slow.

    """

    store: Tasks
    registry: Mapping[str, NodeSpec]
    host: Host
    guard: Guard
    middleware: Callable[[Middleware], Middleware]
    bus: EventBus
    blobs: Callable[[str], Blobs] = NoBlobs
    files: Callable[[str], Files | None] = _no_files
    log_level: int = logging.INFO
    expect_end: Callable[[str], None] = _nobody_listens
    protect: Callable[[NodeContext], Wrapper] = _unprotected
    calls: Callable[[str, str], AbstractContextManager[object]] = _unguarded
    hedge: Callable[[str, Callable[[bool], Any], float | None], Any] = _unhedged


def run_attempt(
    executor: Executor,
    claim: Claim,
    *,
    on_context: Callable[[NodeContext], None] | None = None,
) -> Finished | None:
    """Run a claimed attempt and tell the store how it ended.

    Args:
        executor: what the process shares.
        claim: the right to run.
        on_context: told of the context before the body starts, for whoever may have to cancel.

    Returns:
        What the store made of the ending, or None when the task belongs to somebody else now.

    """
    try:
        job = job_of(claim, executor.registry)
    except AsyncNodesError as error:
        ending = _failed(error, claim, RetryPolicy(), endings.Side())
        return executor.store.finish(claim.task_id, claim.fence, ending)
    begun, tally = time.monotonic(), of_node(job.spec.name)
    UNDER_WAY.set({"trace_id": job.traceparent[3:35], "task_id": claim.task_id})
    trace = tracing.attempt(claim, job.traceparent, job.spec.name)
    if trace.traceparent:
        job = replace(job, traceparent=trace.traceparent)
    host = executor.host
    report = Report(
        executor.store, claim, coalesce=job.spec.coalesce, later=host.later, aside=host.aside
    )
    ctx = _context(executor, claim, job, report)
    if on_context is not None:
        on_context(ctx)
    executor.bus.publish(job.spec.name, EventType.START, claim)
    try:
        ending = _perform(executor, claim, job, ctx, report)
    except FenceLost:
        _log.warning(
            "The task was given to another worker; its result is dropped",
            extra={"action": "fence_lost", "task_id": claim.task_id, "node": job.spec.name},
        )
        tally.count("fence_lost")
        trace.given_up()
        return None
    finally:
        ctx.http.close()
    report.close_log()
    trace.ran(ending, job.inputs)
    if job.spec.compensate is not None and ending.event in endings.CLEANED_UP:
        _expect_end(executor, claim)
    finished = executor.store.finish(claim.task_id, claim.fence, ending, origin=claim.origin)
    trace.stored(finished)
    if finished.applied:
        seconds = time.monotonic() - begun
        task_lines.ended(claim, job, ending, finished, seconds)
        tally.ended(ending, claim, seconds, job.traceparent)
        tally.first_chunk(report.first_at - begun)
        executor.bus.publish(job.spec.name, ending.event, finished)
    return finished


def _expect_end(executor: Executor, claim: Claim) -> None:
    """See to it that the clean-up is not lost with this process; what is decided stays so."""
    try:
        executor.expect_end(claim.task_id)
    except (FenceLost, Released, TaskCancelled, AttemptTimeout, GreenletExit) as late:
        _log.info(
            "%s came after the end of a body",
            type(late).__name__,
            extra={"action": "late_word", "task_id": claim.task_id},
        )
    except AsyncNodesError as error:
        _log.warning(
            "The clean-up of a task may be lost with this process: %s",
            error.detail,
            extra={"action": "compensate_untold", "task_id": claim.task_id},
        )


def ended_by(finished: Finished | None) -> bool:
    """Tell whether it was this attempt that ended its task, so that the effects are its own."""
    if finished is None or not finished.applied or finished.state is None:
        return False
    return finished.state.terminal


def _perform(
    executor: Executor, claim: Claim, job: Job, ctx: NodeContext, report: Report
) -> Ending:
    seconds, late = _seconds_left(claim)

    def body(_claim: Claim, job: Job) -> Any:
        inputs = prepared(job.spec, job.inputs, ctx)
        with one_process():
            if job.spec.style.startswith("async"):
                return executor.host.run_async(job.spec, ctx, inputs)
            return invoke(job.spec, ctx, inputs)

    run = body if job.spec.protection is None else executor.protect(ctx)(body)
    try:
        with executor.host.limit(seconds), scope(job.scope):
            value = executor.middleware(run)(claim, job)
            report.flush()
        return endings.succeeded(value, report.side)
    except TaskCancelled:
        return endings.cancelled(report.side)
    except AttemptTimeout:
        return endings.timed_out(seconds, report.side, late=late)
    except Released:
        return endings.released(report.side)
    except FenceLost:
        raise
    except GreenletExit:
        # A worker that is made to stop at once kills its greenlets so.
        return endings.released(report.side)
    except BaseException as error:  # the node's own, whatever it may be
        if not isinstance(error, AsyncNodesError):
            # The record has one line of it; who looks for the mistake wants the place.
            ctx.log.exception("The node raised", exc_info=_from_the_body(error, job.spec))
        counted = refusals.without(claim, error, job.policy, read=executor.store.read)
        return _failed(error, counted, job.policy, report.side, ctx.hide)


def _from_the_body(
    error: BaseException, spec: NodeSpec
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return what logging wants to know of an error, without our own calls above the body."""
    code = getattr(spec.function, "__code__", None)
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code is not code:
        place = place.tb_next
    return type(error), error, place or error.__traceback__


def _failed(
    error: BaseException,
    claim: Claim,
    policy: RetryPolicy,
    side: endings.Side,
    hide: Callable[[str], str] = str,
) -> Ending:
    return endings.failed(
        error,
        claim=claim,
        policy=policy,
        now_ms=int(time.time() * 1000),
        draw=random.random(),  # noqa: S311 - jitter, not a secret
        side=side,
        hide=hide,
    )


def _seconds_left(claim: Claim) -> tuple[float, bool]:
    """Return how long the body may run, and whether it is the deadline that says so."""
    seconds = claim.timeout_ms / 1000
    if not claim.deadline_ms:
        return seconds, False
    # The store's clock gave both times; only the difference is used here.
    until_deadline = (claim.deadline_ms - claim.started_ms) / 1000 + DEADLINE_MARGIN
    return max(min(seconds, until_deadline), 0.001), until_deadline < seconds


def _context(executor: Executor, claim: Claim, job: Job, report: Report) -> NodeContext:
    trace_id = job.traceparent.split("-")[1] if job.traceparent.count("-") >= 2 else ""  # noqa: PLR2004
    return NodeContext(
        task_id=claim.task_id,
        node=job.spec.name,
        attempt=claim.attempt,
        starts=claim.attempt,
        tenant=claim.tenant,
        trace_id=trace_id,
        traceparent=job.traceparent,
        deadline=claim.deadline_ms / 1000 if claim.deadline_ms else None,
        scope=job.scope,
        http=Client(executor.guard, traceparent=job.traceparent),
        files=NodeFiles(executor.files(claim.tenant), seconds=claim.timeout_ms / 1000),
        blobs=executor.blobs(claim.tenant),
        on_progress=report.progress,
        on_usage=report.usage,
        on_chunk=report.chunk,
        on_log=report.log,
        log_level=executor.log_level,
        hide=job.hide,
        calls=executor.calls,
        hedge=executor.hedge,
    )
