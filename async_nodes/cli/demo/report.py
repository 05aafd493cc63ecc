"""What the demo comes to: a table of times from the records, and the sum. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from async_nodes.cli import symbols
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import pad, width

if TYPE_CHECKING:
    from async_nodes.cli.terminal import Terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The times of one task, in milliseconds.

    Attributes:
        node, state: what it was and how it ended.
        answered: how long the caller waited for the 202.
        queued: waiting for a worker, over all attempts.
        running: the attempts themselves.
        pause: between a failed attempt and the next.
        total: from its acceptance to its end.
        blocking: what a blocking call costs its caller.
        is_measured: whether that was measured by a blocking call, or is the running time.
        outcome: what came of it.

    """

    node: str
    state: str
    answered: float
    queued: float
    running: float
    pause: float
    total: float
    blocking: float
    is_measured: bool
    outcome: str


def row_of(
    record: Mapping[str, Any], *, answered_ms: float, blocking_ms: float | None, outcome: str
) -> Row:
    """Return the row of a task's record.

    Args:
        record: as the server tells it.
        answered_ms: the wait for the 202.
        blocking_ms: a blocking call of the same work, measured, or None: then the caller would
            have waited for the attempts and the pauses between them.
        outcome: what came of it.

    """
    attempts: Sequence[Mapping[str, Any]] = record.get("attempts") or ()
    spans = [
        (_ms(a.get("queued_at")), _ms(a["started_at"]), _ms(a["finished_at"])) for a in attempts
    ]
    running = sum(end - start for _, start, end in spans)
    queued = sum(start - (asked or start) for asked, start, _ in spans)
    total = _ms(record["finished_at"]) - _ms(record["created_at"])
    pause = max(0.0, total - running - queued)
    return Row(
        node=str(record["node"]),
        state=str(record["state"]),
        answered=answered_ms,
        queued=queued,
        running=running,
        pause=pause,
        total=total,
        blocking=running + pause if blocking_ms is None else blocking_ms,
        is_measured=blocking_ms is not None,
        outcome=outcome,
    )


def table(rows: Sequence[Row], terminal: Terminal) -> list[str]:
    """Return the table, a line per task and the sum."""
    heads = (
        tr("node", "节点"),
        tr("state", "状态"),
        tr("queued", "排队"),
        tr("running", "运行"),
        tr("total", "总计"),
        tr("answered", "应答"),
        tr("blocking", "阻塞调用"),
        "",
    )
    cells = [
        (
            row.node,
            f"{symbols.icon(row.state, unicode=terminal.unicode)} {symbols.word(row.state)}",
            _shown(row.queued),
            _shown(row.running) + ("+" if row.pause >= 1 else " "),
            _shown(row.total),
            _shown(row.answered),
            _shown(row.blocking) + ("*" if row.is_measured else " "),
            row.outcome,
        )
        for row in rows
    ]
    answered, blocking = totals(rows)
    last = (tr("sum", "合计"), "", "", "", "", _shown(answered), _shown(blocking) + " ", "")
    widths = [max(width(line[n]) for line in (heads, *cells, last)) for n in range(len(heads))]
    rule = ("─", "-")[not terminal.unicode] * (sum(widths[:-1]) + 2 * len(widths) - 4)
    return [
        terminal.line([(_aligned(heads, widths), "bold")]),
        terminal.line([(rule, "dim")]),
        *(
            terminal.line([(_aligned(line, widths), symbols.style(row.state) if _bad(row) else "")])
            for line, row in zip(cells, rows, strict=True)
        ),
        terminal.line([(rule, "dim")]),
        terminal.line([(_aligned(last, widths), "bold")]),
        *(terminal.line([(text, "dim")]) for text in _legend(rows)),
    ]


def totals(rows: Sequence[Row]) -> tuple[float, float]:
    """Return how long callers waited for their answers, and would have in blocking calls, in ms."""
    return sum(row.answered for row in rows), sum(row.blocking for row in rows)


def verdict(rows: Sequence[Row]) -> str:
    """Return the sentence that the demo is about."""
    answered, blocking = totals(rows)
    times = f"{blocking / answered:.0f}" if answered else "?"
    return tr(
        f"The callers were answered in {_shown(answered)} ms; blocking calls would have cost them "
        f"{_shown(blocking)} ms, {times} times as long.",
        f"调用方共等待 {_shown(answered)} 毫秒得到应答;阻塞调用需要 {_shown(blocking)} 毫秒,"
        f"是其 {times} 倍。",
    )


def _legend(rows: Sequence[Row]) -> list[str]:
    parts = [tr("times in ms", "单位:毫秒")]
    if any(row.pause >= 1 for row in rows):
        pauses = ", ".join(f"{row.node} {_shown(row.pause)}" for row in rows if row.pause >= 1)
        parts.append(tr(f"+ pause before the retry: {pauses}", f"+ 重试前等待:{pauses}"))
    if any(row.is_measured for row in rows):
        parts.append(
            tr(
                "* measured by a blocking call beside it; the others: running time and pauses",
                "* 由并行的阻塞调用实测,其余为运行时间加等待",
            )
        )
    return parts


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return the cells of a line, numbers to the right."""
    texts = {0, 1, len(cells) - 1}
    shown = [
        pad(cell, size) if n in texts else " " * (size - width(cell)) + cell
        for n, (cell, size) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(shown).rstrip()


def _bad(row: Row) -> bool:
    return row.state != "Succeeded"


def _shown(ms: float) -> str:
    return f"{ms:,.0f}"


def _ms(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000 if text else 0.0
