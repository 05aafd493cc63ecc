"""The demo on a terminal: one frame of lines from what is known at a moment. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from async_nodes.cli import symbols
from async_nodes.cli.following import bar
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import fill, pad, printable

if TYPE_CHECKING:
    from async_nodes.cli.demo.view import TaskView
    from async_nodes.cli.terminal import Piece, Terminal

_NODE, _STATE, _ATTEMPT, _TIME = 13, 10, 10, 9
_BAR_LEAST, _BAR_MOST = 8, 30
_INDENT = 4


def frame(views: Sequence[TaskView], *, blocking: str, now: float, terminal: Terminal) -> list[str]:
    """Return the lines of one frame; their number does not change while the demo runs.

    Args:
        views: the tasks.
        blocking: what the blocking call beside them is doing.
        now: seconds on the demo's clock.
        terminal: what can be shown.

    """
    lines: list[str] = []
    for view in views:
        lines += ["", *block(view, now=now, terminal=terminal)]
    return [*lines, "", terminal.line([(blocking, "dim")])]


def rows(views: Sequence[TaskView]) -> int:
    """Return how many rows a frame takes, the cursor's own included."""
    return sum(3 + view.text_rows for view in views) + 3


def block(view: TaskView, *, now: float, terminal: Terminal) -> list[str]:
    """Return a task's lines: state and bar, id and what happened, its text."""
    bullet = ("│ ", "| ")[not terminal.unicode]
    lines = [
        terminal.line(_headline(view, now, terminal)),
        terminal.line([(" " * _INDENT + _about(view), "dim")]),
    ]
    columns = max(10, terminal.columns - _INDENT - len(bullet) - 1)
    text = _last_rows(view, columns, unicode=terminal.unicode)
    for row in range(view.text_rows):
        shown = text[row] if row < len(text) else ""
        lines.append(terminal.line([(" " * _INDENT + bullet, "dim"), (shown, "")]))
    return lines


def _headline(view: TaskView, now: float, terminal: Terminal) -> list[Piece]:
    word = symbols.word(view.state) if view.state else tr("submitting", "提交中")
    attempt = tr(f"attempt {view.attempt}", f"第 {view.attempt} 次") if view.attempt else ""
    if view.trouble:
        word = tr("Trouble", "出错")
    state_columns = _STATE + (5 if word != view.state else 0)
    fixed = 2 + _NODE + state_columns + _ATTEMPT + _TIME + 8
    columns = max(_BAR_LEAST, min(_BAR_MOST, terminal.columns - fixed))
    fraction = view.progress(now)
    style = "red" if view.trouble else symbols.style(view.state)
    return [
        (f" {symbols.icon(view.state, unicode=terminal.unicode)} ", f"bold {style}".strip()),
        (pad(view.node, _NODE), "bold"),
        (pad(word, state_columns) + " ", style),
        (pad(attempt, _ATTEMPT), ""),
        (bar(fraction, columns, unicode=terminal.unicode), style),
        (f" {fraction:4.0%}", ""),
        (f"{view.seconds(now):7.1f} s", "dim"),
    ]


def _about(view: TaskView) -> str:
    if view.trouble:
        return printable(view.trouble)
    parts = [view.task_id or view.purpose]
    if view.answered_ms is not None:
        parts.append(
            tr(
                f"caller answered in {view.answered_ms:.0f} ms",
                f"调用方 {view.answered_ms:.0f} 毫秒得到应答",
            )
        )
    if view.state == "Pending" and view.reason:
        parts.append(waiting_for(view.reason))
    elif view.note:
        parts.append(view.note)
    return "  ".join(parts)


def waiting_for(reason: str) -> str:
    """Return why a pending task waits."""
    words = {
        "backoff": tr("failed, waits to be retried", "失败,等待重试"),
        "delayed": tr("delayed", "延迟执行"),
        "lost": tr("its worker was lost, runs again", "工作进程丢失,将再次运行"),
    }
    return words.get(reason, reason)


def _last_rows(view: TaskView, columns: int, *, unicode: bool) -> list[str]:
    """Return the last rows of the text, with a cursor while more may come."""
    if not view.text_rows or not view.text:
        return []
    cursor = "" if view.is_over else ("▌" if unicode else "_")
    return fill(printable(view.text, keep="\n") + cursor, columns)[-view.text_rows :]
