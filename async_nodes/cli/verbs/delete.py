"""``async-nodes delete ID``: remove every trace of an ended task."""

from __future__ import annotations

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.http import path_of
from async_nodes.cli.language import tr


@click.command(help=tr("Delete tasks that have ended.", "删除已结束的任务。"))
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@url_option
def command(task_ids: tuple[str, ...], url: str | None) -> int:
    """Delete one after the other, up to the first that cannot be deleted."""
    with client_for(url) as client:
        for task_id in task_ids:
            client.delete(path_of(task_id))
            click.echo(tr(f"{task_id} deleted", f"{task_id} 已删除"), err=True)
    return 0
