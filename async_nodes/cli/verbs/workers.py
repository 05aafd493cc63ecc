"""``async-nodes workers``: who works, where, and at what."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import tr
from async_nodes.cli.tables import Column, seconds, table
from async_nodes.cli.terminal import Piece, Terminal, printable
from async_nodes.cli.watching import show, watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: list[Column] = [
    (tr("worker", "工作进程"), "left"),
    (tr("host", "主机"), "left"),
    (tr("version", "版本"), "left"),
    (tr("up", "已运行"), "right"),
    (tr("running", "运行/槽位"), "right"),
    (tr("per second", "每秒"), "right"),
    (tr("stalls", "阻塞"), "right"),
    (tr("lease", "租约"), "right"),
]
_TASK_COLUMNS: list[Column] = [
    (tr("task", "任务"), "left"),
    (tr("node", "节点"), "left"),
    (tr("attempt", "次数"), "right"),
    (tr("running for", "已运行"), "right"),
]


@click.command(help=tr("Show the live workers.", "显示存活的工作进程。"))
@click.argument("worker_id", metavar="ID", required=False)
@click.option("--json", "as_json", is_flag=True, help=tr("Print JSON.", "输出 JSON。"))
@watch_option
@url_option
def command(worker_id: str | None, *, as_json: bool, every: float | None, url: str | None) -> int:
    """Print a line for each worker, or one worker with what it runs."""
    terminal = Terminal.of(sys.stdout)
    path = "/v1/workers" + (f"/{quote(worker_id, safe='')}" if worker_id else "")
    with client_for(url) as client:

        def look() -> Sequence[str]:
            document = client.get(path).document
            if as_json:
                return [json.dumps(document, ensure_ascii=False)]
            return lines(document, terminal, now=time.time())

        show(look, terminal, every=every)
    return 0


def lines(document: dict[str, Any], terminal: Terminal, *, now: float) -> list[str]:
    """Return the table of the workers, or of one and of what it runs.

    Args:
        document: the answer.
        terminal: what can be shown.
        now: seconds since 1970.

    """
    workers = document.get("workers", [document])
    if not workers:
        return [terminal.line([(tr("There is no live worker.", "没有存活的工作进程。"), "red")])]
    shown = table(_COLUMNS, (_row(one, now) for one in workers), terminal)
    if document.get("tasks"):
        shown += ["", *table(_TASK_COLUMNS, map(_task, document["tasks"]), terminal)]
    return shown


def _row(worker: dict[str, Any], now: float) -> list[Piece]:
    started, slots = worker["started_at"], worker["concurrency"]
    up = None if started is None else max(now - datetime.fromisoformat(started).timestamp(), 0)
    return [
        (printable(worker["worker_id"]), "bold"),
        (printable(worker["host"] or "-"), ""),
        (printable(worker["version"] or "-"), ""),
        (seconds(up), ""),
        (f"{worker['running']}/{'?' if slots is None else slots}", ""),
        (f"{sum(worker['rates'].values()):.1f}", ""),
        (f"{worker['stalls'] or 0}", "red" if worker["stalls"] else "dim"),
        (seconds(worker["lease_seconds"]), ""),
    ]


def _task(task: dict[str, Any]) -> list[Piece]:
    return [
        (task["task_id"], ""),
        (printable(task["node"]), "bold"),
        (f"{task['attempt']}", ""),
        (seconds(task["seconds"]), ""),
    ]
