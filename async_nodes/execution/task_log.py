"""What a body logs, on its way into the store: beside the body, never in its way.

Lines wait in a bounded buffer and are sent one after the other by a helper of the host. A body that
floods its log loses lines, and the log says how many; a store that does not answer costs lines, not
time. The words that the store's answers carry back (the task was given to somebody else, a cancel
was asked for) are raised at the body's next line, as its other reports raise them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError, TaskCancelled
from async_nodes.core.log_levels import level_name
from async_nodes.core.strict_json import dumps
from async_nodes.execution.signals import FenceLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.core.ports import Applied
    from async_nodes.execution.report import Later

    Send = Callable[..., Applied]

MAX_LINE = 8 << 10
"""Bytes of a line's text in UTF-8; what is longer is cut, with a mark."""

LINES_PER_SECOND = 200
"""Lines taken of one attempt within a second; further ones are counted and dropped."""

MOST_WAITING = 1_000
"""Lines that may wait for the store."""

GATHER_SECONDS = 0.05
"""Pause between two rounds of sending."""

CLOSE_SECONDS = 2.0
"""How long the end of an attempt waits for its lines."""

_CUT = " … [cut: {:,} bytes]"
_log = logging.getLogger(__name__)


class Line(NamedTuple):
    """Hold one line: when (seconds since 1970), how severe, what."""

    at: float
    level: str
    text: str


class TaskLog:
    """Take the lines of one attempt and send them beside it.

    Args:
        send: `Tasks.log`.
        task_id: whose lines.
        fence: the right to write.
        attempt: shown in each line.
        aside: runs a function beside the body after some seconds.
        number: of the last line that is in the store already.
        is_over: whether the task has ended, so that a cancel is no news to its clean-up.

    """

    def __init__(
        self,
        send: Send,
        *,
        task_id: str,
        fence: str,
        attempt: int,
        aside: Later,
        number: int = 0,
        is_over: bool = False,
    ) -> None:
        self._send = send
        self._task_id = task_id
        self._fence = fence
        self._attempt = attempt
        self._aside = aside
        self._number = number
        self._is_over = is_over
        self._pid = os.getpid()
        self._lock = threading.Lock()  # of what follows; held for moments, never while sending
        self._waiting: deque[Line] = deque()
        self._second = 0
        self._taken = self._dropped = 0
        self._running = False
        self._disarm: Callable[[], None] | None = None
        self._rested_at = 0.0
        self._idle = threading.Event()
        self._idle.set()
        self._word: type[BaseException] | None = None

    def line(self, level: int, text: str) -> None:
        """Take a line; returns at once.

        Args:
            level: as in `logging`.
            text: of any length.

        Raises:
            FenceLost: the task was given to somebody else.
            TaskCancelled: its cancel was asked for.

        """
        if os.getpid() != self._pid:
            return  # a process that the body has forked: the log is its parent's
        if self._word is not None and not self._is_over:
            raise self._word
        line = Line(time.time(), level_name(level), shortened(text))
        with self._lock:
            self._take(line)
            if not self._running and self._disarm is None:
                self._idle.clear()
                rest = self._rested_at + GATHER_SECONDS - time.monotonic()
                self._disarm = self._aside(max(rest, 0.0), self._run)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait until every line is in the store, but no longer than that."""
        with self._lock:
            self._note_dropped()
            if self._disarm is not None:
                self._disarm()
                self._disarm = None
            if self._waiting and not self._running:
                self._idle.clear()
                self._aside(0.0, self._run)
            elif not self._running:
                return
        if not self._idle.wait(seconds):
            _log.warning(
                "The last lines of a task's log are not stored: the store does not answer",
                extra={"action": "task_log_late", "task_id": self._task_id},
            )

    def _take(self, line: Line) -> None:
        second = int(line.at)
        if second != self._second:
            self._note_dropped()
            self._second, self._taken = second, 0
        if self._taken >= LINES_PER_SECOND or len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._taken += 1
        self._waiting.append(line)

    def _note_dropped(self) -> None:
        if self._dropped and len(self._waiting) < MOST_WAITING:
            text = f"… {self._dropped:,} lines dropped: too many at once"
            self._waiting.append(Line(time.time(), level_name(logging.WARNING), text))
            self._dropped = 0

    def _run(self) -> None:
        with self._lock:
            self._disarm = None
            if self._running:
                return
            self._running = True
        try:
            while (line := self._next()) is not None:
                self._number += 1
                self._store(line, self._number)
        except BaseException:
            with self._lock:
                self._rest()
            raise

    def _next(self) -> Line | None:
        """Return the next line; without one the round ends, and a line that comes starts another.

        Both under one lock, or a line might be left between two rounds.
        """
        with self._lock:
            if self._waiting and self._word is not FenceLost:
                return self._waiting.popleft()
            self._rest()
            return None

    def _rest(self) -> None:
        self._waiting.clear()
        self._running = False
        self._rested_at = time.monotonic()
        self._idle.set()

    def _store(self, line: Line, number: int) -> None:
        json = dumps(
            {
                "at": iso(int(line.at * 1000)),
                "level": line.level,
                "text": line.text,
                "attempt": self._attempt,
                "n": number,
            }
        )
        try:
            applied = self._send(self._task_id, self._fence, json, number=number)
        except AsyncNodesError as error:
            with self._lock:
                self._dropped += 1
            _log.warning(
                "A line of a task's log is lost: %s",
                error,
                extra={"action": "task_log_lost", "task_id": self._task_id},
            )
            return
        if not applied.applied:
            self._word = FenceLost
        elif applied.cancel_asked:
            self._word = TaskCancelled


def shortened(text: str) -> str:
    """Return a text of at most `MAX_LINE` bytes, with a mark where it was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= MAX_LINE:
        return raw.decode()
    mark = _CUT.format(len(raw))
    return raw[: MAX_LINE - len(mark.encode())].decode("utf-8", "ignore") + mark
