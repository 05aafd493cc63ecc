"""Tables on the terminal: columns as wide as what stands in them, numbers to the right. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from async_nodes.cli.terminal import pad, width

if TYPE_CHECKING:
    from async_nodes.cli.terminal import Piece, Terminal

_GAP = "  "

Column = tuple[str, str]
"""A column's heading, and ``left`` or ``right``."""


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Piece]], terminal: Terminal
) -> list[str]:
    """Return the lines of a table, its headings first.

    Args:
        columns: of every row.
        rows: their cells, each with its style.
        terminal: what can be shown; lines are cut to its width.

    """
    headings: Sequence[Piece] = [(title, "dim") for title, _ in columns]
    cells = [headings, *rows]
    sizes = [max(width(text) for text, _ in column) for column in zip(*cells, strict=True)]
    sides = [side for _, side in columns]
    return [terminal.line(_line(row, sides, sizes)).rstrip() for row in cells]


def _line(row: Sequence[Piece], sides: Sequence[str], sizes: Sequence[int]) -> list[Piece]:
    pieces: list[Piece] = []
    for (text, style), side, size in zip(row, sides, sizes, strict=True):
        filled = pad(text, size) if side == "left" else " " * (size - width(text)) + text
        pieces += [(filled, style), (_GAP, "")]
    return pieces


_UNITS = ((1, 120, "s"), (60, 7_200, "min"), (3_600, 172_800, "h"))
_PRECISE = 10.0


def seconds(count: float | None) -> str:
    """Return a time that has passed, short: ``0.4 s``, ``17 s``, ``3 min``, ``5 h``, ``2 d``."""
    if count is None:
        return "-"
    if count < _PRECISE:
        return f"{count:.1f} s"
    for size, limit, unit in _UNITS:
        if count < limit:
            return f"{count / size:.0f} {unit}"
    return f"{count / 86_400:.0f} d"
