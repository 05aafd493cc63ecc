"""``async-nodes watch ID``: follow a task that was submitted before."""

from __future__ import annotations

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.following import Follower, follow
from async_nodes.cli.language import tr


@click.command(help=tr("Follow a task to its end.", "跟踪任务直到结束。"))
@click.argument("task_id", metavar="ID")
@url_option
def command(task_id: str, url: str | None) -> int:
    """Show the task's past and what comes; 0 when it succeeded."""
    with client_for(url) as client:
        return follow(client, task_id, Follower.here())
