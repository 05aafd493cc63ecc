"""The one place that writes to the terminal while several threads have something to say."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from async_nodes.cli.terminal import Terminal, printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

_STYLES = {
    "web": "blue",
    "worker io": "cyan",
    "worker cpu": "magenta",
    "redis": "yellow",
    "model": "green",
}
_NAME_COLUMNS = 10


class Console:
    """Write lines, and on a terminal keep a frame of lines at the bottom that is drawn anew.

    Args:
        stream: where to write.
        terminal: what it can show.
        is_quiet: keep the lines of the processes back; what happens to them is told anyway.

    """

    def __init__(
        self,
        stream: TextIO | None = None,
        terminal: Terminal | None = None,
        *,
        is_quiet: bool = False,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._terminal = terminal
        self._quiet = is_quiet
        self._lock = threading.Lock()
        self._drawn: list[str] = []
        self._last_status = ""

    @property
    def terminal(self) -> Terminal:
        """Return what the stream can show now; a person may have resized it."""
        return Terminal.of(self._stream) if self._terminal is None else self._terminal

    def line(self, text: str = "") -> None:
        """Write a line above the frame."""
        with self._lock:
            self._write([text])

    def lines(self, lines: Sequence[str]) -> None:
        """Write lines above the frame, nothing in between."""
        with self._lock:
            self._write(lines)

    def draw(self, lines: Sequence[str]) -> None:
        """Show a frame in place of the one before; on a terminal only."""
        with self._lock:
            if list(lines) != self._drawn:
                self._stream.write(self._erased() + "".join(f"{line}\n" for line in lines))
                self._drawn = list(lines)
                self._stream.flush()

    def keep(self) -> None:
        """Leave the frame where it is: what follows is written below it."""
        with self._lock:
            self._drawn = []

    def status(self, text: str) -> None:
        """Show what is being waited for: one line drawn anew, or a new line where it changed."""
        if self.terminal.live:
            self.draw([text] if text else [])
        elif text and text != self._last_status:
            self.line(text)
        self._last_status = text

    def said(self, service: str, line: str) -> None:
        """Write a line of a process behind its name."""
        if not self._quiet:
            self.line(self._prefix(service) + printable(line, keep="\t"))

    def happened(self, service: str, text: str) -> None:
        """Write what happened to a process, marked."""
        self.line(
            self._prefix(service) + self.terminal.paint(f"! {printable(text)}", "bold yellow")
        )

    def _prefix(self, service: str) -> str:
        terminal = self.terminal
        bar = "│" if terminal.unicode else "|"
        return terminal.paint(f"{service:{_NAME_COLUMNS}} {bar} ", _STYLES.get(service, ""))

    def _write(self, lines: Sequence[str]) -> None:
        text = "".join(f"{line}\n" for line in lines)
        again = "".join(f"{line}\n" for line in self._drawn)
        self._stream.write(self._erased() + text + again)
        self._stream.flush()

    def _erased(self) -> str:
        """Return what removes the frame: up to its first line, then clear to the end."""
        return f"\x1b[{len(self._drawn)}F\x1b[J" if self._drawn else ""
