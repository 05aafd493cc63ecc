"""Step 5, expose: what comes for a web process that is not there is accepted by the others.

Each of several processes has a listener of its own on the common port, so that the kernel spreads
the connections. All have all of them open, and what is queued at the listener of a process that has
died is accepted by the others until there is a new one: nothing is refused, and nothing waits for a
restart.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from gevent.hub import get_hub

from async_nodes.access.serving.seats import Seats

LOOK_SECONDS: Final = 0.1
"""How often a process looks whether another one's seat is empty."""

MAX_ACCEPT: Final = 16
"""Connections of one empty seat that are accepted in one turn of the loop."""

log = logging.getLogger(__name__)


class Neighbours:
    """Accept what comes to the listeners of processes that are not there.

    Args:
        seats: tells who is there.
        listeners: of the other processes, by their numbers.

    """

    def __init__(self, seats: Seats, listeners: Mapping[int, socket.socket]) -> None:
        self._seats = seats
        self._listeners = listeners
        self._watchers: dict[int, Any] = {}
        self._timer: Any = None
        self._serve: Callable[[Any, Any], None] | None = None
        self._full: Callable[[], bool] | None = None

    def start(self, serve: Callable[[Any, Any], None], full: Callable[[], bool]) -> None:
        """Begin.

        Args:
            serve: takes a connection and its address.
            full: tells that no connection can be taken.

        """
        self._serve, self._full = serve, full
        self._timer = get_hub().loop.timer(0.0, LOOK_SECONDS, ref=False)
        self._timer.start(self._look)

    def close(self) -> None:
        """Accept nothing more, and close the listeners; twice does no harm."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        for number in tuple(self._watchers):
            self._leave(number)
        for listener in self._listeners.values():
            listener.close()

    def _look(self) -> None:
        for number, listener in self._listeners.items():
            if not self._seats.is_empty(number):
                self._leave(number)
            elif number not in self._watchers:
                watcher = get_hub().loop.io(listener.fileno(), 1)
                self._watchers[number] = watcher
                watcher.start(self._accept, number, listener)

    def _leave(self, number: int) -> None:
        watcher = self._watchers.pop(number, None)
        if watcher is not None:
            watcher.stop()
            watcher.close()

    def _accept(self, number: int, listener: socket.socket) -> None:
        """Take connections; called by the loop, and does not wait."""
        if self._serve is None or self._full is None:
            return
        try:
            for _ in range(MAX_ACCEPT):
                if self._full():
                    self._leave(number)  # until the next look
                    return
                self._serve(*listener.accept())
        except BlockingIOError:
            return
        except OSError as error:
            self._leave(number)
            log.warning(
                "A connection was not accepted: %s", error, extra={"action": "not_accepted"}
            )
