"""The I/O pool: hundreds of bodies as greenlets of one process.

With the fast transport the `intake` brings claims, which are run. With the stock one a slim Celery
strategy brings messages: a message is taken, its task claimed, the message acknowledged, the body
run. When all slots are busy the consumer waits inside `receive` for one to come free, so the worker
holds one message more than it can start, and the keeper tells the store that this one is not lost.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import gevent
from gevent.event import Event
from gevent.hub import get_hub

from async_nodes.core.errors import AttemptTimeout, TaskCancelled
from async_nodes.core.ports import Claim, Refused
from async_nodes.core.states import NodeState
from async_nodes.dispatch.messages import DISPATCH_HEADER
from async_nodes.execution import isolated
from async_nodes.execution.attempt import Executor, ended_by, run_attempt
from async_nodes.execution.introspection import no_counts
from async_nodes.execution.process import new_fence
from async_nodes.execution.signals import FenceLost, Released

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_nodes.execution.effects import Effects
    from async_nodes.execution.intake import Intake
    from async_nodes.nodes import NodeContext
    from async_nodes.storage.redis_store import RedisStore

_log = logging.getLogger(__name__)

OVERTIME = 5.0
"""Seconds past its time-out after which a body that swallowed it is thrown at again."""


CLAIMING = "claim "
"""What a task's name in the table of running bodies begins with until its claim is answered."""


@dataclass(slots=True, eq=False)
class Running:
    """One body at work."""

    claim: Claim
    greenlet: gevent.Greenlet
    started: float
    ctx: NodeContext | None = None
    child: isolated.Isolated | None = None

    def throw(self, reason: BaseException) -> None:
        """Unwind the body; sockets close at once, even where the body does not yield."""
        if self.ctx is not None:
            self.ctx.cancel()
        self.greenlet.kill(reason, block=False)


class Pulse:
    """Show the keeper that the event loop turns."""

    def __init__(self) -> None:
        self.last_turn = time.monotonic()
        gevent.spawn(self._beat)

    def _beat(self) -> None:
        while True:
            self.last_turn = time.monotonic()
            gevent.sleep(0.1)


class IoPool:
    """Run claimed tasks as greenlets.

    Args:
        executor: what attempts share; its store is the process's shared one.
        effects: what follows a task's end.
        worker: this worker's id.

    """

    def __init__(self, executor: Executor, effects: Effects, worker: str) -> None:
        self._executor = executor
        self._effects = effects
        self._worker = worker
        self._held: dict[str, int] = {}
        self._running: dict[str, Running] = {}
        self._draining = False
        self._drained = Event()
        self.taken = no_counts()
        self._hub = get_hub()
        self.intake: Intake | None = None
        self.pulse = Pulse()
        gevent.spawn(self._watch_overtime)

    # -- messages ----------------------------------------------------------------------------

    def receive(self, message: Any, slots: Any, ack: Callable[[], None]) -> None:
        """Take a message; waits until a slot is free.

        Args:
            message: kombu's message.
            slots: Celery's pool, one slot per greenlet.
            ack: acknowledges the message.

        """
        task_id, dispatched = message.headers["id"], message.headers.get(DISPATCH_HEADER)
        if not isinstance(dispatched, int):
            _log.warning(
                "A message without a dispatch number is dropped",
                extra={"action": "message_foreign", "task_id": str(task_id)[:40]},
            )
            ack()
            return
        self._held[task_id] = dispatched
        slots.apply_async(self._handle, (message, task_id, dispatched, ack), callback=_nothing)

    @property
    def store(self) -> RedisStore:
        """Return the store the attempts share."""
        store: Any = self._executor.store
        return cast("RedisStore", store)

    def active(self) -> int:
        """Return how many bodies run now."""
        return len(self._running)

    def known(self) -> set[str]:
        """Return the ids of the tasks this process has; called by the keeper's thread."""
        return {name.removeprefix(CLAIMING) for name in [*self._held, *self._running]}

    def held(self) -> list[str]:
        """Return the ids popped and not claimed; called by the keeper's thread."""
        return list(self._held)

    def _handle(self, message: Any, task_id: str, dispatched: int, ack: Callable[[], None]) -> None:
        try:
            if self._draining:
                message.reject_log_error(_log, _errors(message), requeue=True)
                return
            claim = self._claim(task_id, dispatched)
            ack()
        except Released:
            message.reject_log_error(_log, _errors(message), requeue=True)
            return
        finally:
            self._held.pop(task_id, None)
        if claim is not None:
            self.run(claim)

    def _claim(self, task_id: str, dispatched: int) -> Claim | None:
        fence = new_fence()
        me = Running(_NO_CLAIM, gevent.getcurrent(), time.monotonic())
        self._running[CLAIMING + task_id] = me
        try:
            while True:
                answer = self._executor.store.claim(
                    task_id, dispatched, worker=self._worker, fence=fence
                )
                if isinstance(answer, Claim):
                    return answer
                if answer.why != "no_lease":
                    self._refused(task_id, answer)
                    return None
                gevent.sleep(0.1)  # the keeper is about to take a new lease
        finally:
            del self._running[CLAIMING + task_id]

    def _refused(self, task_id: str, answer: Refused) -> None:
        _log.debug(
            "Nothing to run: %s",
            answer.why,
            extra={"action": "claim_refused", "task_id": task_id, "why": answer.why},
        )
        if answer.why == "expired":
            self._effects.task_ended(task_id)

    def run(self, claim: Claim) -> None:
        """Run a claim to its end in the calling greenlet."""
        running = Running(claim, gevent.getcurrent(), time.monotonic())
        self._running[claim.task_id] = running
        self.taken[claim.list_name] += 1
        try:
            ended = self._run_isolated(running) if claim.suspect else self._run_here(running)
        except (TaskCancelled, AttemptTimeout, Released, FenceLost):
            # Thrown after the body had ended, while its ending was on the way: that one counts.
            return
        finally:
            if self._running.get(claim.task_id) is running:
                del self._running[claim.task_id]
        if ended and self._effects.wanted(claim.private):
            self._effects.task_ended(claim.task_id)

    def _run_here(self, running: Running) -> bool:
        def on_context(ctx: NodeContext) -> None:
            running.ctx = ctx

        return ended_by(run_attempt(self._executor, running.claim, on_context=on_context))

    def _run_isolated(self, running: Running) -> bool:
        claim = running.claim
        store = self.store
        running.child = isolated.start(claim)
        try:
            ending = running.child.wait()
            if ending is not None:
                self._effects.expect_end(claim.task_id, claim.private, ending)
                store.finish(claim.task_id, claim.fence, ending)
            elif self._is_running(claim):
                store.lost(claim.task_id, worker=self._worker, dispatch=0, isolated=True)
        except FenceLost:
            return False
        except Released:
            running.child.kill()
            store.lost(claim.task_id, worker=self._worker, dispatch=0, isolated=False)
            return False
        finally:
            running.child.kill()
        return True

    def _is_running(self, claim: Claim) -> bool:
        """Tell whether a claim's own attempt has not ended: the next one may run here by now."""
        document = self.store.read(claim.task_id)
        return (
            document is not None
            and document.state is NodeState.RUNNING
            and document.fence == claim.fence.encode()
        )

    # -- words from outside ------------------------------------------------------------------

    def cancel(self, task_id: str, fence: str) -> None:
        """Stop a body whose task was cancelled, if it is the one meant."""
        running = self._running.get(task_id)
        if running is None or running.claim.fence != fence:
            return
        if running.child is not None:
            running.child.cancel()
        else:
            running.throw(TaskCancelled())

    def look_back(self) -> None:
        """Look for cancels that were said while nobody could hear."""
        for task_id, running in list(self._running.items()):
            document: Any = self._executor.store.read(task_id) if running.ctx else None
            if document is not None and document.cancel:
                self.cancel(task_id, running.claim.fence)

    def expired(self, task_ids: Sequence[str]) -> None:
        """Carry out what follows the end of tasks that were too late to start."""
        for task_id in task_ids:
            gevent.spawn(self._effects.task_ended, task_id)

    def lease_lost(self) -> None:
        """Stop everything: the tasks run elsewhere now. Called by the keeper's thread."""
        self._hub.loop.run_callback_threadsafe(gevent.spawn, self._throw_all, FenceLost)

    def ended_elsewhere(self, task_ids: Sequence[str]) -> None:
        """Carry out what follows the end of tasks no worker had. Called by the keeper's thread."""
        for task_id in task_ids:
            self._hub.loop.run_callback_threadsafe(gevent.spawn, self._effects.task_ended, task_id)

    def drain(self, seconds: float) -> None:
        """Wait for the running bodies, then hand back what is left."""
        if self._draining:
            return
        self._draining = True
        until = time.monotonic() + seconds
        if self.intake is not None:
            self.intake.stop()
        while self._running and time.monotonic() < until:
            gevent.sleep(0.05)
        if self._running:
            _log.warning(
                "Handing back %d tasks",
                len(self._running),
                extra={"action": "drain_released", "count": len(self._running)},
            )
        until = time.monotonic() + 2.0
        while self._running and time.monotonic() < until:
            self._throw_all(Released)
            gevent.sleep(0.2)
        self._drained.set()

    def wait_drained(self, seconds: float) -> None:
        """Wait until a drain has ended, when one was begun."""
        if self._draining:
            self._drained.wait(seconds)

    def _throw_all(self, reason: type[BaseException]) -> None:
        for running in list(self._running.values()):
            running.throw(reason())

    def _watch_overtime(self) -> None:
        while True:
            gevent.sleep(1.0)
            for running in list(self._running.values()):
                limit = running.claim.timeout_ms / 1000 + OVERTIME
                if running.ctx is not None and time.monotonic() - running.started > limit:
                    running.throw(AttemptTimeout())


def _errors(message: Any) -> tuple[type[BaseException], ...]:
    errors: tuple[type[BaseException], ...] = message.channel.connection.client.connection_errors
    return errors


def _nothing(_value: object) -> None:
    return None


_NO_CLAIM = Claim("", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "", b"", b"")
