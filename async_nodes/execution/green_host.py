"""The I/O worker's process, where every body is a greenlet among hundreds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import gevent

from async_nodes.core.errors import AttemptTimeout
from async_nodes.execution.async_loop import AsyncLoop
from async_nodes.nodes import NodeContext, NodeSpec


class GreenHost:
    """Run bodies as greenlets, and coroutines on one event loop in a native thread."""

    def __init__(self) -> None:
        self._loop: AsyncLoop | None = None

    def limit(self, seconds: float) -> AbstractContextManager[object]:
        """Raise `AttemptTimeout` inside the block after so many seconds."""
        limit: AbstractContextManager[object] = gevent.Timeout(seconds, AttemptTimeout())
        return limit

    def later(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Run a function after so many seconds unless it is prevented."""
        timer = gevent.spawn_later(seconds, function)
        return lambda: timer.kill(block=False) if timer is not gevent.getcurrent() else None

    aside = later

    def run_async(self, spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
        """Run an ``async def`` body; this greenlet waits and passes its reports on."""
        if self._loop is None or not self._loop.usable:
            # A thread that a body blocks cannot be ended. Whoever comes now is not to wait for it.
            self._loop = AsyncLoop()
        return self._loop.run(spec, ctx, inputs)
