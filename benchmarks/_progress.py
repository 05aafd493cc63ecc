"""How far a benchmark is: a bar on a terminal's standard error, lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

CELLS: Final = 24
_CLEAR: Final = "\r\x1b[K"
_FILLED, _EMPTY = "█", "░"


class Progress:
    """Count steps and show them.

    Args:
        total: steps there will be.
        to: standard error, or what a test reads.

    """

    def __init__(self, total: int, to: TextIO) -> None:
        self._total = total
        self._to = to
        self._done = 0
        self._started = time.monotonic()
        self._drawn = to.isatty()

    def step(self, said: str) -> None:
        """Show that another step is done, and what it said."""
        self._done += 1
        self._show(said)

    def _show(self, said: str) -> None:
        if not self._drawn:
            print(f"[{self._done}/{self._total}] {said}", file=self._to, flush=True)
            return
        filled = round(CELLS * self._done / self._total)
        bar = _FILLED * filled + _EMPTY * (CELLS - filled)
        line = f"{bar} {self._done}/{self._total}{self._left()}  {said}"
        columns = shutil.get_terminal_size().columns
        print(_CLEAR + line[: columns - 1], end="", file=self._to, flush=True)

    def _left(self) -> str:
        each = (time.monotonic() - self._started) / self._done
        seconds = round(each * (self._total - self._done))
        if seconds <= 0:
            return ""
        return f"  {seconds // 60}:{seconds % 60:02} left"

    def end(self) -> None:
        """Leave the terminal's line as it was."""
        if self._drawn:
            print(_CLEAR, end="", file=self._to, flush=True)


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """Yield the progress of so many steps on standard error."""
    shown = Progress(total, sys.stderr)
    try:
        yield shown
    finally:
        shown.end()
