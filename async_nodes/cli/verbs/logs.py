"""``async-nodes logs ID``: what a task has logged."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.http import path_of
from async_nodes.cli.language import tr
from async_nodes.cli.log_lines import log_line
from async_nodes.cli.terminal import Terminal
from async_nodes.core.log_levels import LEVELS


@click.command(help=tr("Show what a task has logged.", "显示任务的日志。"))
@click.argument("task_id", metavar="ID")
@click.option("--follow", is_flag=True, help=tr("Go on to its end.", "持续显示直到任务结束。"))
@click.option(
    "--level", type=click.Choice(list(LEVELS)), help=tr("This and above.", "该级别及以上。")
)
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON, one a line.", "每行一个 JSON。"))
@url_option
def command(
    task_id: str, *, follow: bool, level: str | None, as_json: bool, url: str | None
) -> int:
    """Print the lines, one each; a traceback has several."""
    path = f"{path_of(task_id)}/logs" + (f"?level={level}" if level else "")
    terminal = Terminal.of(sys.stdout)

    def show(line: dict[str, Any]) -> None:
        click.echo(json.dumps(line, ensure_ascii=False) if as_json else log_line(line, terminal))

    with client_for(url) as client:
        if not follow:
            for line in client.get(path).document["lines"]:
                show(line)
            return 0
        for message in client.follow(path):
            if message.type == "log":
                show(json.loads(message.data))
    return 0
