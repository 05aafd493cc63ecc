"""The one place for effects that happen outside the store: a handler per effect, and compensation.

All other effects are carried out by the store's scripts in the transaction that changes the state.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from greenlet import GreenletExit

from async_nodes.core.effects import Effect
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.machine import TABLE
from async_nodes.core.states import EventType, NodeState
from async_nodes.egress.client import Client
from async_nodes.execution.endings import CLEANED_UP
from async_nodes.execution.job import node_of, travelling
from async_nodes.execution.task_log import TaskLog
from async_nodes.nodes import NodeContext

if TYPE_CHECKING:
    from async_nodes.core.ports import Ending
    from async_nodes.egress.guard import Guard
    from async_nodes.execution.report import Later
    from async_nodes.nodes.spec import NodeSpec
    from async_nodes.storage.ends import Ends
    from async_nodes.storage.layout import Document
    from async_nodes.storage.redis_store import RedisStore

_log = logging.getLogger(__name__)

MOST_TRIES = 3
"""Workers that may begin one clean-up: it could be what ends them."""

PATIENCE = 600.0
"""Seconds for which an end of a node that is not known here is left to others: while a release is
rolled out, processes differ in the nodes that they know."""

_EVENT_OF_END = {
    NodeState.SUCCEEDED: EventType.COMPLETE,
    NodeState.FAILED: EventType.ERROR,
    NodeState.CANCELLED: EventType.CANCEL,
}


class Effects:
    """Carry out what follows a task's end in a worker.

    Args:
        store: to read the ended task.
        ends: keeps a clean-up from being lost with this worker.
        registry: the nodes by name.
        guard: which addresses a compensation may call.
        aside: runs what is not to hold up a compensation: sending what it logs.
        log_level: what it logs so severely goes to its task's own log.

    """

    def __init__(
        self,
        store: RedisStore,
        ends: Ends,
        registry: Mapping[str, NodeSpec],
        guard: Guard,
        *,
        aside: Later,
        log_level: int = logging.INFO,
    ) -> None:
        self._store = store
        self._ends = ends
        self._registry = registry
        self._guard = guard
        self._aside = aside
        self._log_level = log_level
        self._handlers: dict[Effect, Callable[[NodeSpec, Document], None]] = {
            Effect.COMPENSATE: self._compensate,
        }

    def wanted(self, private: bytes) -> bool:
        """Tell whether the end of a task of this private part has effects outside the store."""
        spec = self._registry.get(node_of(private))
        return spec is not None and spec.compensate is not None

    def expect_end(self, task_id: str, private: bytes, ending: Ending) -> None:
        """See to it, before an ending is sent from here, that its effects do not end with us."""
        if ending.event in CLEANED_UP and self.wanted(private):
            self._ends.expect(task_id)

    def task_ended(self, task_id: str) -> None:
        """Carry out the effects of a terminal state; the store has the record already.

        Called more than once for an end if whoever was told may not have done it.
        """
        document = self._store.read(task_id)
        if document is None or not document.state.terminal or not document.attempt:
            return
        is_known = node_of(document.private) in self._registry
        age = time.time() - document.finished_at / 1000
        try:
            if self.wanted(document.private):
                self._carry_out(task_id, document)
            elif document.state is not NodeState.SUCCEEDED and (is_known or age > PATIENCE):
                self._ends.settle(task_id)
        except AsyncNodesError as error:
            _log.warning(
                "The store does not hear of a clean-up, which may be repeated: %s",
                error.detail,
                extra={"action": "compensate_untold", "task_id": task_id},
            )

    def _carry_out(self, task_id: str, document: Document) -> None:
        spec = self._registry[node_of(document.private)]
        event = _EVENT_OF_END[document.state]
        for effect in TABLE[NodeState.RUNNING, event].effects:
            handler = self._handlers.get(effect)
            if handler is not None:
                handler(spec, document)

    def _compensate(self, spec: NodeSpec, document: Document) -> None:
        """Let the node clean up, unless that has ended too many workers."""
        task_id = json.loads(document.json)["task_id"]
        tries = self._ends.begin(task_id)
        try:
            if tries <= MOST_TRIES:
                self._clean_up(spec, document)
            else:
                _log.error(
                    "The compensation of a node is given up: it has ended %d workers",
                    MOST_TRIES,
                    extra={"action": "compensate_given_up", "task_id": task_id},
                )
        except GreenletExit:
            return  # the worker stops: another one begins again
        self._ends.settle(task_id)

    def _clean_up(self, spec: NodeSpec, document: Document) -> None:
        record = json.loads(document.json)
        travels = travelling(document.private)
        log = TaskLog(
            self._store.log,
            task_id=record["task_id"],
            fence=document.fence.decode(),
            attempt=record["attempt"],
            aside=self._aside,
            number=document.logs,
            is_over=True,
        )
        ctx = NodeContext(
            task_id=record["task_id"],
            node=spec.name,
            attempt=record["attempt"],
            tenant=document.tenant,
            trace_id=record["trace_id"] or "",
            traceparent=travels.traceparent,
            scope=travels.scope,
            http=Client(self._guard),
            on_log=log.line,
            log_level=self._log_level,
        )
        try:
            if spec.compensate is not None:
                spec.compensate(ctx, record)
        except GreenletExit:
            raise
        except BaseException:  # whatever the node's own clean-up raises
            # The task has ended; a clean-up that fails is for people to see, not for the record.
            ctx.log.exception(
                "The compensation of a node failed", extra={"action": "compensate_failed"}
            )
        finally:
            ctx.http.close()
            log.close()
