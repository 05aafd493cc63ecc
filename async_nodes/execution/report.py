"""What a running body says, on its way into the store.

The store's answer carries two words back: that the task was given to somebody else, and that a
cancel was asked for. Both are raised into the body at its next report.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import GreenletExit

from async_nodes.core.errors import AttemptTimeout, TaskCancelled
from async_nodes.core.ports import NULL
from async_nodes.core.strict_json import dumps
from async_nodes.execution.endings import Side
from async_nodes.execution.signals import FenceLost, Released
from async_nodes.execution.task_log import TaskLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.core.ports import Applied, Claim, Tasks


_log = logging.getLogger(__name__)


class Later(Protocol):
    """Runs a function after some seconds; answers with a function that prevents it."""

    def __call__(self, seconds: float, function: Callable[[], None]) -> Callable[[], None]: ...


class Report:
    """Send one attempt's chunks, progress, usage and log.

    Args:
        store: where to.
        claim: the attempt.
        coalesce: seconds within which text pieces are joined into one chunk; 0 sends each alone.
        later: timer for a joined chunk that no further piece follows; without one it waits for
            the next piece or the end.
        aside: runs what is not to hold up the body; without one log lines are not stored.

    Attributes:
        first_at: when the first chunk was sent, on the monotonic clock; 0 without one.

    """

    def __init__(
        self,
        store: Tasks,
        claim: Claim,
        *,
        coalesce: float = 0.0,
        later: Later | None = None,
        aside: Later | None = None,
    ) -> None:
        self._store = store
        self._claim = claim
        self._coalesce = coalesce
        self._later = later
        self._aside = aside
        self._log: TaskLog | None = None
        self._sent = 0
        self.first_at = 0.0
        self._pieces: list[str] = []
        self._last_flush = 0.0
        self._disarm: Callable[[], None] | None = None
        self._turns: dict[str, threading.RLock] = {}
        self._usage: dict[str, int] = {}
        self._usage_json: bytes = NULL
        self._progress: bytes = NULL

    @property
    def side(self) -> Side:
        """Return usage and progress for the record's end."""
        return Side(self._usage_json, self._progress)

    @property
    def _turn(self) -> threading.RLock:
        """Return what a chunk waits for, made with the first one.

        Chunks are numbered and sent one after the other, whichever thread or timer has one: the
        store takes a number only once, and a body's end waits for what is on its way.
        """
        return self._turns.get("") or self._turns.setdefault("", threading.RLock())

    def chunk(self, value: Any) -> None:
        """Send a piece of the stream."""
        if isinstance(value, str) and self._coalesce > 0:
            self._join(value)
            return
        with self._turn:
            self.flush()
            self._send({"text" if isinstance(value, str) else "data": value})

    def progress(self, fraction: float, text: str) -> None:
        """Send how far the work is."""
        self.flush()
        self._progress = dumps({"fraction": fraction, "text": text})
        shown = dumps({"fraction": fraction, "text": text, "attempt": self._claim.attempt})
        self._heed(self._store.progress(self._claim.task_id, self._claim.fence, shown))

    def usage(self, counts: dict[str, int]) -> None:
        """Add to what the attempt has used."""
        total = dict(self._usage)
        for name, count in counts.items():
            total[name] = total.get(name, 0) + count
        # Encoded here, where the body hears of a name that is not JSON, and not at the end, where
        # nobody could be told.
        self._usage_json = dumps(total)
        self._usage = total

    def log(self, level: int, text: str) -> None:
        """Send a line of the log, beside the body; raises what `TaskLog.line` raises."""
        if self._log is None:
            if self._aside is None:
                return
            self._log = TaskLog(
                self._store.log,
                task_id=self._claim.task_id,
                fence=self._claim.fence,
                attempt=self._claim.attempt,
                aside=self._aside,
            )
        self._log.line(level, text)

    def close_log(self) -> None:
        """Let the lines arrive before the attempt's end, after which they would be refused.

        The ending is decided: a cancel or a time-out that strikes now comes too late for it.
        """
        if self._log is None:
            return
        try:
            self._log.close()
        except (FenceLost, Released, TaskCancelled, AttemptTimeout, GreenletExit) as late:
            _log.info(
                "%s came after the end of a body",
                type(late).__name__,
                extra={"action": "task_log_late", "task_id": self._claim.task_id},
            )

    def flush(self) -> None:
        """Send the pieces that wait to be joined."""
        if not self._turns and not self._pieces:
            return  # nothing was ever said
        if self._disarm is not None:
            self._disarm()
            self._disarm = None
        with self._turn:
            if self._pieces:
                text = "".join(self._pieces)
                self._pieces.clear()
                self._last_flush = time.monotonic()
                self._send({"text": text})

    def _join(self, piece: str) -> None:
        self._pieces.append(piece)
        wait = self._last_flush + self._coalesce - time.monotonic()
        if wait <= 0:
            self.flush()
        elif self._disarm is None and self._later is not None:
            self._disarm = self._later(wait, self._flush_late)

    def _flush_late(self) -> None:
        """Flush from a timer, where nobody is there to be told of a cancel: the next report is."""
        self._disarm = None
        try:
            self.flush()
        except (FenceLost, TaskCancelled):
            return

    def _send(self, content: dict[str, Any]) -> None:
        self._sent += 1
        if self._sent == 1:
            self.first_at = time.monotonic()
        json = dumps({**content, "attempt": self._claim.attempt, "n": self._sent})
        task_id, fence = self._claim.task_id, self._claim.fence
        self._heed(self._store.chunk(task_id, fence, json, number=self._sent))

    def _heed(self, applied: Applied) -> None:
        if not applied.applied:
            raise FenceLost
        if applied.cancel_asked:
            raise TaskCancelled
