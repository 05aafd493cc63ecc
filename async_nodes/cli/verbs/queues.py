"""``async-nodes queues``: what waits, since when, and who takes it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.control import word
from async_nodes.cli.language import tr
from async_nodes.cli.tables import Column, seconds, table
from async_nodes.cli.terminal import Piece, Terminal, printable
from async_nodes.cli.watching import show, watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: list[Column] = [
    (tr("queue", "队列"), "left"),
    (tr("state", "状态"), "left"),
    (tr("waiting", "等待"), "right"),
    (tr("parked", "待入队"), "right"),
    (tr("held", "已暂停"), "right"),
    (tr("delayed", "延迟"), "right"),
    (tr("backoff", "待重试"), "right"),
    (tr("oldest", "最久等待"), "right"),
    (tr("per second", "每秒"), "right"),
    (tr("running", "运行/槽位"), "right"),
    (tr("workers", "进程"), "right"),
]
STATE_STYLES = {"open": "", "paused": "bold yellow", "draining": "bold yellow"}


@click.command(help=tr("Show what waits in the queues.", "显示队列状况。"))
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help=tr("Print JSON.", "输出 JSON。"))
@watch_option
@url_option
def command(name: str | None, *, as_json: bool, every: float | None, url: str | None) -> int:
    """Print a line for each queue, or for NAME: io.high, io.default …, io, cpu."""
    terminal = Terminal.of(sys.stdout)
    path = "/v1/queues" + (f"/{quote(name, safe='')}" if name else "")
    with client_for(url) as client:

        def look() -> Sequence[str]:
            document = client.get(path).document
            if as_json:
                return [json.dumps(document, ensure_ascii=False)]
            return lines(document, terminal)

        show(look, terminal, every=every)
    return 0


def lines(document: dict[str, Any], terminal: Terminal) -> list[str]:
    """Return the table of the queues, and why some are paused or drained."""
    queues = document["queues"]
    shown = table(_COLUMNS, map(_row, queues), terminal)
    for queue in queues:
        if queue["state"] != "open":
            said = f": {printable(queue['reason'])}" if queue["reason"] else ""
            since = tr(f"since {queue['since']}", f"自 {queue['since']} 起")
            text = f"{queue['name']}: {word(queue['state'])} {since}{said}"
            shown.append(terminal.line([(text, "yellow")]))
    if not document["exact"]:
        note = tr(
            "There are many timers: more may be delayed and backing off than shown.",
            "定时任务很多:实际延迟和待重试的任务可能多于所示。",
        )
        shown.append(terminal.line([(note, "dim")]))
    return shown


def _row(queue: dict[str, Any]) -> list[Piece]:
    slots = "?" if queue["slots"] is None else queue["slots"]
    counts = ("unclaimed", "parked", "held", "delayed", "backoff")
    return [
        (queue["name"], "bold"),
        (word(queue["state"]), STATE_STYLES.get(queue["state"], "")),
        *((f"{queue[name]:,}", "" if queue[name] else "dim") for name in counts),
        (seconds(queue["oldest_seconds"]), ""),
        (f"{queue['rate']:.1f}", ""),
        (f"{queue['running']}/{slots}", ""),
        (f"{queue['workers']}", "" if queue["workers"] else "red"),
    ]
