"""The CPU pool: Celery's prefork children claim and run, their parent keeps the lease.

A child runs one body at a time, so whatever kills it was that body: the parent reports the task
as lost the moment Celery notices. A body is stopped by a signal first, and by SIGKILL when it
does not come back to Python.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from billiard.exceptions import TimeLimitExceeded
from celery.worker import state as celery_state
from celery.worker.request import Request
from celery.worker.state import task_ready

from async_nodes.core.machine import SUSPECT_LOSSES
from async_nodes.core.ports import Claim
from async_nodes.core.states import NodeState
from async_nodes.dispatch.messages import DISPATCH_HEADER
from async_nodes.execution import endings
from async_nodes.execution.attempt import Executor, ended_by, run_attempt
from async_nodes.execution.introspection import no_counts
from async_nodes.execution.plain_host import CANCEL_SIGNAL, PlainHost
from async_nodes.execution.process import new_fence, plain_executor
from async_nodes.telemetry import work_metrics
from async_nodes.telemetry.children import Pipe, Reporter
from async_nodes.telemetry.logs import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_nodes.execution.effects import Effects
    from async_nodes.storage.redis_store import RedisStore

_log = logging.getLogger(__name__)

CANCEL_GRACE = 0.6
NO_LEASE_TRIES, NO_LEASE_PAUSE = 50, 0.2
NICENESS = 5
ENDED, NOT_ENDED = "the task has ended", "the task has not ended"
BEGUN = (ENDED, NOT_ENDED)
"""What a child answers that has run something; else it says why there was nothing to run."""

MAINTAIN_EVERY = 0.1
"""Seconds between two looks for dead children.

A child's end is announced by its closed pipe, a moment before the system can say that it ended; the
look that follows may come too early, and Celery's own next one is 5 s later.
"""


# -- in a child --------------------------------------------------------------------------------


class Child:
    """Run tasks in a pool child.

    Args:
        worker: the parent's id, under whose lease the child claims.
        pipe: takes what this process counts to the parent, where somebody reads it.

    """

    def __init__(self, worker: str, pipe: Pipe | None = None) -> None:
        self._worker = worker
        self._reporter = None if pipe is None else Reporter(pipe.write_end)
        self._host: PlainHost | None = None
        self._executor: Executor | None = None

    def execute(self, task_id: str, dispatched: int) -> str:
        """Claim a task and run it; the answer is for Celery's log only."""
        host, executor = self._ready()
        for _ in range(NO_LEASE_TRIES):
            answer = executor.store.claim(
                task_id, dispatched, worker=self._worker, fence=new_fence()
            )
            if isinstance(answer, Claim):
                ended = ended_by(run_attempt(executor, answer))
                UNDER_WAY.set(None)
                if self._reporter is not None:
                    self._reporter.soon()
                host.leave_if_asked()
                return ENDED if ended else NOT_ENDED
            if answer.why != "no_lease":
                return answer.why
            time.sleep(NO_LEASE_PAUSE)
        return "no_lease"

    def _ready(self) -> tuple[PlainHost, Executor]:
        if self._host is None or self._executor is None:
            self._host = PlainHost()
            self._executor, _ = plain_executor("cpu-child", self._host)
        return self._host, self._executor


# -- in the parent -----------------------------------------------------------------------------


class CpuPool:
    """Keep the promises of the children.

    Args:
        store: a blocking store, used by several threads of the parent.
        effects: what follows a task's end.
        worker: this worker's id.

    """

    def __init__(self, store: RedisStore, effects: Effects, worker: str) -> None:
        self._store = store
        self._effects = effects
        self._worker = worker
        self._draining = False
        self.taken = no_counts()

    def count(self, queue: str) -> None:
        """Count a task that a child began, by the Celery queue it came by."""
        self.taken[queue.partition(".")[2]] += 1

    def active(self) -> int:
        """Return how many bodies run now."""
        return len(celery_state.active_requests)

    def known(self) -> set[str]:
        """Return the ids of the tasks that this worker or a child of it has."""
        # Not from Celery's table by id: a task that is tried again soon has two requests for a
        # moment, and the end of the first takes the entry of both.
        requests = [*celery_state.reserved_requests, *celery_state.active_requests]
        return {request.id for request in requests}

    def held(self) -> list[str]:
        """Return the ids of messages popped and not given to a child."""
        waiting = set(celery_state.reserved_requests) - set(celery_state.active_requests)
        return [request.id for request in waiting]

    def cancel(self, task_id: str, fence: str) -> None:
        """Stop the child that runs a task, by force if it does not stop by itself."""
        pid = self._pid_of(task_id)
        if pid is None or not self._runs(task_id, fence):
            return
        _signal(pid, CANCEL_SIGNAL)
        threading.Thread(target=self._insist, args=(task_id, fence, pid), daemon=True).start()

    def look_back(self) -> None:
        """Look for cancels that were said while nobody could hear."""
        for request in list(celery_state.active_requests):
            document = self._store.read(request.id)
            if document is not None and document.cancel:
                self.cancel(request.id, document.fence.decode())

    def lease_lost(self) -> None:
        """Stop every child: their tasks run elsewhere now."""
        for request in list(celery_state.active_requests):
            if request.worker_pid:
                _signal(request.worker_pid, signal.SIGKILL)

    def ended_elsewhere(self, task_ids: Sequence[str]) -> None:
        """Carry out what follows the end of tasks no worker had."""
        for task_id in task_ids:
            threading.Thread(target=self._effects.task_ended, args=(task_id,), daemon=True).start()

    def child_ended(self, task_id: str) -> None:
        """Carry out what follows the end of a task that a child has finished."""
        self.ended_elsewhere([task_id])

    def child_lost(self, task_id: str, dispatched: int, why: str) -> None:
        """Report that the child which had a task is gone, whatever it died of."""
        document = self._store.read(task_id)
        if document is None:
            return
        work_metrics.child_losses.total += 1
        verdict = self._store.lost(
            task_id,
            worker=self._worker,
            dispatch=dispatched,
            isolated=document.losses >= SUSPECT_LOSSES,
        )
        _log.warning(
            "A child of the CPU pool is lost, its task %s: %s",
            verdict,
            why,
            extra={"action": "child_lost", "task_id": task_id, "verdict": verdict},
        )
        self.ended_elsewhere([task_id])

    def child_overran(self, task_id: str) -> None:
        """End the task of a child that was killed for not stopping at its time-out."""
        document = self._store.read(task_id)
        if document is None or not self._is_ours(document):
            return
        ending = endings.timed_out(document.timeout / 1000, endings.Side())
        self._effects.expect_end(task_id, document.private, ending)
        self._store.finish(task_id, document.fence.decode(), ending)
        self.ended_elsewhere([task_id])

    def drain(self, seconds: float) -> None:
        """Wait for the children, then hand back what they still run; called in a thread."""
        if self._draining:
            return
        self._draining = True
        until = time.monotonic() + seconds
        while celery_state.active_requests and time.monotonic() < until:
            time.sleep(0.05)
        for request in list(celery_state.active_requests):
            document = self._store.read(request.id)
            if document is None or not self._is_ours(document):
                continue
            self._store.finish(request.id, document.fence.decode(), endings.released())
            if request.worker_pid:
                _signal(request.worker_pid, signal.SIGKILL)

    def wait_drained(self, seconds: float) -> None:
        """Return at once: Celery has waited for the children already."""

    def _insist(self, task_id: str, fence: str, pid: int) -> None:
        time.sleep(CANCEL_GRACE)
        if self._pid_of(task_id) == pid and self._runs(task_id, fence):
            _signal(pid, signal.SIGKILL)

    def _pid_of(self, task_id: str) -> int | None:
        """Return the process that runs a task: the last one, should an earlier be about to go."""
        mine = [request for request in list(celery_state.active_requests) if request.id == task_id]
        last = max(mine, key=lambda request: request.time_start or 0, default=None)
        pid: int | None = last.worker_pid if last is not None else None
        return pid

    def _runs(self, task_id: str, fence: str) -> bool:
        document = self._store.read(task_id)
        return document is not None and self._is_ours(document) and document.fence.decode() == fence

    def _is_ours(self, document: Any) -> bool:
        worker: bytes = document.worker
        return document.state is NodeState.RUNNING and worker.decode().strip() == self._worker


def maintain_often(consumer: Any) -> None:
    """Let Celery's event loop replace dead children soon."""
    if consumer.hub is not None:
        consumer.hub.call_repeatedly(MAINTAIN_EVERY, consumer.pool.maintain_pool)


_pool: CpuPool | None = None


def install(pool: CpuPool) -> None:
    """Tell this process's requests which pool to report to."""
    global _pool  # noqa: PLW0603 - Celery makes the requests, by class
    _pool = pool


class CpuRequest(Request):
    """Celery's request, which also tells our pool what became of the child."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Go on hearing of successes in the class that Celery derives, which does not pass them on.

        Celery makes one such class per worker, with an `on_success` of its own.
        """
        super().__init_subclass__(**kwargs)
        theirs = cls.on_success

        def on_success(self: Any, failed__retval__runtime: Any, **given: Any) -> Any:
            result = theirs(self, failed__retval__runtime, **given)
            failed, returned, _ = failed__retval__runtime
            if _pool is not None and not failed:
                said = str(returned)
                if any(word in said for word in BEGUN):
                    _pool.count(self.delivery_info["routing_key"])
                if ENDED in said:
                    _pool.child_ended(self.id)
            return result

        cls.on_success = on_success

    def on_timeout(self, soft: bool, timeout: float) -> None:  # noqa: FBT001 - Celery's signature
        """Report a child that is killed for running over."""
        if not soft:
            self._done()
            _log.warning(
                "A child of the CPU pool did not stop at its time-out and is killed",
                extra={"action": "child_overran", "task_id": self.id},
            )
            if _pool is not None:
                _in_thread(_pool.child_overran, self.id)

    def on_failure(
        self,
        exc_info: Any,
        send_failed_event: bool = True,  # noqa: FBT001, FBT002 - Celery's signature
        return_ok: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Report a child that died, or whose own report of the end did not get through.

        Celery would write a result here and wait for its backend to take it; the record is ours.
        """
        self._done()
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if _pool is not None and not isinstance(error, TimeLimitExceeded):
            dispatched = self.request_dict.get(DISPATCH_HEADER, 0)
            _in_thread(_pool.child_lost, self.id, dispatched, _one_line(error))

    def _done(self) -> None:
        """Forget the message: what happens next is in the record, with a message of its own."""
        if _pool is not None:
            _pool.count(self.delivery_info["routing_key"])
        task_ready(self)
        if not self.acknowledged:
            self.acknowledge()


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def _in_thread(function: Any, *args: object) -> None:
    """Talk to Redis off Celery's event loop."""
    threading.Thread(target=function, args=args, daemon=True).start()


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
