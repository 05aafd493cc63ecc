"""A process that runs one body at a time: a child of the CPU pool, or a suspect's own process.

Time-outs and cancels arrive as signals, which Python delivers between two bytecodes; what does
not come back to Python is ended by the parent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from async_nodes.core.errors import AttemptTimeout, TaskCancelled
from async_nodes.execution.report import Later
from async_nodes.execution.signals import Released
from async_nodes.nodes import NodeContext, NodeSpec
from async_nodes.nodes.invoke import invoke_async

CANCEL_SIGNAL = signal.SIGUSR2


def _forget_signals() -> None:
    """Let a process that a body forks end at a SIGTERM like any other: it holds no task."""
    for number in (CANCEL_SIGNAL, signal.SIGALRM, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def in_thread(seconds: float, function: Callable[[], None]) -> Callable[[], None]:
    """Run a function in a thread after so many seconds; return what prevents it.

    Signals strike the main thread only, so neither a time-out nor a cancel ends up in there.
    """
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    return timer.cancel


class PlainHost:
    """Run bodies in the main thread of a process."""

    later: Later | None = None

    def __init__(self) -> None:
        self._armed = False
        self._asked_to_leave = False
        self._leave = signal.getsignal(signal.SIGTERM)
        signal.signal(CANCEL_SIGNAL, self._on_cancel)
        signal.signal(signal.SIGALRM, self._on_alarm)
        signal.signal(signal.SIGTERM, self._on_term)
        os.register_at_fork(after_in_child=_forget_signals)

    @contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise `AttemptTimeout` inside the block after so many seconds.

        The timer repeats, so that a body which swallows the first exception meets another.
        """
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.25)
        try:
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def aside(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]:
        """Run a function beside the body after so many seconds, unless it is prevented."""
        return in_thread(seconds, function)

    def run_async(self, spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
        """Run an ``async def`` body on a loop of its own."""
        return asyncio.run(invoke_async(spec, ctx, inputs))

    def leave_if_asked(self) -> None:
        """End the process if SIGTERM came while a body ran: its task has been handed back."""
        if self._asked_to_leave:
            raise SystemExit(128 + signal.SIGTERM)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._asked_to_leave = True
        if self._armed:
            raise Released
        if callable(self._leave):
            self._leave(number, frame)
        self.leave_if_asked()

    def _on_cancel(self, _signal: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise TaskCancelled

    def _on_alarm(self, _signal: int, _frame: FrameType | None) -> None:
        if self._armed:
            raise AttemptTimeout
