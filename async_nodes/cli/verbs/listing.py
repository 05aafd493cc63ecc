"""``async-nodes list``: tasks, newest first, by state, node or tag."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from async_nodes.cli import symbols
from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Piece, Terminal, pad, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from async_nodes.cli.http import Client

_PAGE = 200
_STATE_COLUMNS, _NODE_COLUMNS = 16, 16


@click.command(help=tr("List tasks, newest first.", "列出任务,新任务在前。"))
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(symbols.SYMBOLS), case_sensitive=False),
    help=tr("In this state; repeated: any of them.", "处于该状态;可重复,任一即可。"),
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    help=tr("Of this node; repeated: any of them.", "属于该节点;可重复,任一即可。"),
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help=tr("With this tag; repeated: all of them.", "带有该标签;可重复,须全部具备。"),
)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=20,
    show_default=True,
    help=tr("How many at most.", "最多列出多少。"),
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=tr("One JSON object a line, for programs.", "每行一个 JSON 对象,供程序使用。"),
)
@url_option
def command(
    states: tuple[str, ...],
    nodes: tuple[str, ...],
    tags: tuple[str, ...],
    *,
    limit: int,
    as_json: bool,
    url: str | None,
) -> int:
    """Print a line for each task; 0 even if there is none."""
    filters = [("state", one) for one in states] + [("node", one) for one in nodes]
    filters += [("tag", one) for one in tags]
    terminal = Terminal.of(sys.stdout)
    found = 0
    with client_for(url) as client:
        for task in _tasks(client, filters, limit):
            found += 1
            click.echo(json.dumps(task, ensure_ascii=False) if as_json else line(task, terminal))
    if not found and not as_json:
        click.echo(tr("There is no such task.", "没有符合条件的任务。"), err=True)
    return 0


def _tasks(client: Client, filters: list[tuple[str, str]], limit: int) -> Iterator[dict[str, Any]]:
    """Yield tasks in brief, over as many pages as that takes."""
    cursor: list[tuple[str, str]] = []
    while limit > 0:
        query = urlencode([*filters, ("limit", str(min(limit, _PAGE))), *cursor])
        page = client.get(f"/v1/tasks?{query}").document
        yield from page["tasks"]
        limit -= len(page["tasks"])
        if page["next"] is None:
            return
        cursor = [("cursor", page["next"])]


def line(task: dict[str, Any], terminal: Terminal) -> str:
    """Return the line of a task: its state, id, node, time, and what there is to say of it."""
    state = str(task["state"])
    icon = symbols.icon(state, unicode=terminal.unicode)
    error = task.get("error") or {}
    said = error.get("message") or task.get("reason") or " ".join(task.get("tags") or ())
    pieces: list[Piece] = [
        (pad(f"{icon} {symbols.word(state)}", _STATE_COLUMNS), symbols.style(state)),
        (f"{task['task_id']}  ", ""),
        (pad(printable(str(task["node"])), _NODE_COLUMNS) + "  ", "bold"),
        (f"{task['created_at'][:19]}Z  ", "dim"),
        (printable(str(said)), ""),
    ]
    return terminal.line(pieces).rstrip()
