"""Step 5, expose: the signals of a web process, as events that its main greenlet waits for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

RETIRE = signal.SIGUSR2
"""Asks one of several processes to leave its place to a successor."""

RELOAD = signal.SIGUSR1
"""Asks for the certificate to be read again."""


class Signals:
    """Listen to the signals from now on.

    Args:
        reload: reads the certificate again; None where there is none.
        one_of_many: whether another process looks after this one. It decides then how long an end
            may take, and the system's own signal to all processes must not cut it short.

    Attributes:
        stopping: set by SIGTERM or SIGINT.
        retiring: set by `RETIRE`.

    """

    def __init__(self, *, reload: Callable[[], None] | None, one_of_many: bool) -> None:
        self.stopping = Event()
        self.retiring = Event()
        self._patient = one_of_many
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        if one_of_many:
            signal.signal(RETIRE, lambda *_: self.retiring.set())
        if reload is not None:
            for number in (RELOAD, signal.SIGHUP):
                signal.signal(number, lambda *_: gevent.spawn(reload))
        elif one_of_many:
            for number in (RELOAD, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)

    def _stop(self, number: int, _frame: Any) -> None:
        if not self._patient:
            signal.signal(number, signal.SIG_DFL)  # a second one ends the process at once
        self.stopping.set()
