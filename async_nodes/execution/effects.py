"""The one place for effects that happen outside the store: a handler per effect, and compensation.

All other effects are carried out by the store's scripts in the transaction that changes the state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from async_nodes.core.effects import Effect
from async_nodes.core.machine import TABLE
from async_nodes.core.states import EventType, NodeState
from async_nodes.egress.client import Client
from async_nodes.execution.job import node_of, travelling
from async_nodes.execution.task_log import TaskLog
from async_nodes.nodes import NodeContext

if TYPE_CHECKING:
    from async_nodes.egress.guard import Guard
    from async_nodes.execution.report import Later
    from async_nodes.nodes.spec import NodeSpec
    from async_nodes.storage.layout import Document
    from async_nodes.storage.redis_store import RedisStore

_log = logging.getLogger(__name__)

_EVENT_OF_END = {
    NodeState.SUCCEEDED: EventType.COMPLETE,
    NodeState.FAILED: EventType.ERROR,
    NodeState.CANCELLED: EventType.CANCEL,
}


class Effects:
    """Carry out what follows a task's end in a worker.

    Args:
        store: to read the ended task.
        registry: the nodes by name.
        guard: which addresses a compensation may call.
        aside: runs what is not to hold up a compensation: sending what it logs.
        log_level: what it logs so severely goes to its task's own log.

    """

    def __init__(
        self,
        store: RedisStore,
        registry: Mapping[str, NodeSpec],
        guard: Guard,
        *,
        aside: Later,
        log_level: int = logging.INFO,
    ) -> None:
        self._store = store
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

    def task_ended(self, task_id: str) -> None:
        """Carry out the effects of a terminal state; the store has the record already."""
        document = self._store.read(task_id)
        if document is None or not document.state.terminal:
            return
        spec = self._registry.get(node_of(document.private))
        if spec is None:
            return
        event = _EVENT_OF_END[document.state]
        for effect in TABLE[NodeState.RUNNING, event].effects:
            handler = self._handlers.get(effect)
            if handler is not None:
                handler(spec, document)

    def _compensate(self, spec: NodeSpec, document: Document) -> None:
        """Let the node clean up; only if it ever started."""
        if spec.compensate is None or not document.attempt:
            return
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
            spec.compensate(ctx, record)
        except Exception:  # noqa: BLE001 - whatever the node's own clean-up raises
            # The task has ended; a clean-up that fails is for people to see, not for the record.
            _log.exception(
                "The compensation of a node failed",
                extra={"action": "compensate_failed", "task_id": record["task_id"]},
            )
        finally:
            ctx.http.close()
            log.close()
