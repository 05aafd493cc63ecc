"""The I/O worker's process, where every body is a greenlet among hundreds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from greenlet import GreenletExit

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

    def race(
        self, call: Callable[[bool], Any], after: float, second: Callable[[], bool]
    ) -> tuple[Any, bool]:
        """Make a call, and after so many seconds a second one beside it, if that may be.

        The first answer wins and the other call is stopped; an error is waited past while the
        other call goes on. What the other call had brought by then is closed, if it can be.

        Args:
            call: told whether it is the second one.
            after: seconds.
            second: tells whether there may be one.

        Returns:
            The answer, and whether it is the second call's.

        """
        ended: Queue[tuple[bool, Any, BaseException | None]] = Queue()

        def run(is_second: bool) -> None:  # noqa: FBT001
            try:
                ended.put((is_second, call(is_second), None))
            except GreenletExit:
                raise
            except BaseException as error:  # noqa: BLE001 - it is raised where the answer is wanted
                ended.put((is_second, None, error))

        racers = [gevent.spawn(run, False)]
        try:
            try:
                is_second, value, error = ended.get(timeout=after)
            except Empty:
                if second():
                    racers.append(gevent.spawn(run, True))
                is_second, value, error = ended.get()
            if error is not None and len(racers) == 2:  # noqa: PLR2004 - both
                first_error = error
                is_second, value, error = ended.get()
                error = first_error if error is not None else None
            if error is not None:
                raise error
            return value, is_second
        finally:
            gevent.killall(racers, block=False)
            while not ended.empty():
                close = getattr(ended.get()[1], "close", None)
                if close is not None:
                    close()

    def run_async(self, spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
        """Run an ``async def`` body; this greenlet waits and passes its reports on."""
        if self._loop is None or not self._loop.usable:
            # A thread that a body blocks cannot be ended. Whoever comes now is not to wait for it.
            self._loop = AsyncLoop()
        return self._loop.run(spec, ctx, inputs)
