"""The demo where nothing can be drawn over, as in CI: a line when something happens. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_nodes.cli import symbols
from async_nodes.cli.demo.frame import waiting_for
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import pad, printable, width

if TYPE_CHECKING:
    from async_nodes.cli.demo.view import TaskView
    from async_nodes.cli.terminal import Terminal

_LINE = 56
_NODE = 13
_BREAKS = " 。,、!?"


def changes(before: TaskView, after: TaskView, *, at: float, terminal: Terminal) -> list[str]:
    """Return the lines that tell what differs between two views of a task."""
    said: list[tuple[str, str]] = []
    if after.task_id and not before.task_id:
        said.append(
            (
                tr(
                    f"accepted as {after.task_id} in {after.answered_ms:.0f} ms",
                    f"已接受,编号 {after.task_id},用时 {after.answered_ms:.0f} 毫秒",
                ),
                "",
            )
        )
    if after.trouble and not before.trouble:
        said.append((printable(after.trouble), "red"))
    moved = (after.state, after.attempt) != (before.state, before.attempt)
    if after.state and moved and (after.attempt or after.state != "Pending"):
        said.append((_state(after, terminal), symbols.style(after.state)))
    return [line(after.node, text, at=at, style=style, terminal=terminal) for text, style in said]


def line(node: str, text: str, *, at: float, terminal: Terminal, style: str = "") -> str:
    """Return one line: the time, the node, what happened."""
    return f"{at:6.2f} s  {pad(node, _NODE)} {terminal.paint(text, style)}"


def _state(view: TaskView, terminal: Terminal) -> str:
    text = f"{symbols.icon(view.state, unicode=terminal.unicode)} {symbols.word(view.state)}"
    text += tr(f", attempt {view.attempt}", f",第 {view.attempt} 次")
    if view.state == "Pending" and view.reason:
        text += f" ({waiting_for(view.reason)})"
    return text


class TextLines:
    """Cut a text that arrives in pieces into lines, early enough to be read live."""

    def __init__(self) -> None:
        self._shown = 0

    def take(self, text: str, *, is_over: bool) -> list[str]:
        """Return the lines of ``text`` that were not returned before.

        Args:
            text: all of it so far; one that got shorter is another attempt's, and begins anew.
            is_over: nothing more comes, so the rest is a line too.

        """
        if len(text) < self._shown:
            self._shown = 0
        lines: list[str] = []
        while (end := _line_end(text, self._shown, is_over=is_over)) is not None:
            piece = printable(text[self._shown : end].strip("\n"))
            self._shown = end
            if piece.strip():
                lines.append(piece.strip())
        return lines


def _line_end(text: str, start: int, *, is_over: bool) -> int | None:
    """Return where the next line ends: at a newline, a space past the width, or the very end."""
    columns = 0
    for position in range(start, len(text)):
        columns += width(text[position])
        character = text[position]
        if character == "\n" or (character in _BREAKS and columns >= _LINE):
            return position + 1
        if columns >= _LINE * 3 // 2:  # no space in sight, as in Chinese
            return position + 1
    return len(text) if is_over and start < len(text) else None
