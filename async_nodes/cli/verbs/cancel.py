"""``async-nodes cancel ID``: ask a task to stop."""

from __future__ import annotations

import sys
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.following import state_line
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Terminal

_WAIT_SECONDS = 30


@click.command(help=tr("Cancel a task.", "取消任务。"))
@click.argument("task_id", metavar="ID")
@click.option("--wait", is_flag=True, help=tr("Wait until it has stopped.", "等待任务停止。"))
@url_option
def command(task_id: str, *, wait: bool, url: str | None) -> int:
    """Cancel; 0 when it is cancelled, or when that was asked for without waiting."""
    path = f"/v1/tasks/{quote(task_id, safe='')}/cancel" + (
        f"?wait={_WAIT_SECONDS}" if wait else ""
    )
    with client_for(url) as client:
        document = client.post(path, timeout=_WAIT_SECONDS + 10.0).document
    click.echo(state_line(document, Terminal.of(sys.stdout)))
    if document["state"] != "Cancelled":
        click.echo(tr("It was asked to stop.", "已请求停止。"), err=True)
        return 1 if wait else 0
    return 0
