"""A line of a task's log as a person reads it in the terminal."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from async_nodes.cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from async_nodes.cli.terminal import Terminal

_STYLES: Final[Mapping[str, str]] = {
    "debug": "dim",
    "warning": "yellow",
    "error": "red",
    "critical": "bold red",
}


def log_line(data: dict[str, Any], terminal: Terminal, *, is_dim: bool = False) -> str:
    """Return a line: local time, level, text; a traceback keeps its lines.

    Args:
        data: the line as the server tells it.
        terminal: what can be shown.
        is_dim: show all of it dimly, as something beside the matter.

    """
    level = str(data.get("level"))
    text = printable(str(data.get("text")), keep="\n\t")
    said = f"{_moment(str(data.get('at')))} {level:<8} {text}"
    return terminal.paint(said, "dim" if is_dim else _STYLES.get(level, ""))


def _moment(at: str) -> str:
    try:
        return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S.%f}"[:-3]
    except ValueError:
        return printable(at)
