"""``async-nodes redis``: the embedded store, in the foreground."""

from __future__ import annotations

import click

from async_nodes.cli.console import Console
from async_nodes.cli.language import tr
from async_nodes.cli.service import StoreService
from async_nodes.cli.supervisor import Supervisor
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings


@click.command(help=tr("Run the embedded store in the foreground.", "在前台运行内置存储。"))
def command() -> int:
    """Keep the server of the data directory running until a signal comes."""
    settings = Settings.load()
    store = StoreService(settings.data_dir, stage=0)
    console = Console()
    supervisor = Supervisor([store], console)

    def director() -> None:
        if store.is_shared:
            detail = tr(
                f"it runs already on {settings.data_dir}, as process {store.pid}",
                f"{settings.data_dir} 上已有进程 {store.pid} 在运行",
            )
            raise AsyncNodesError("data_dir_busy", detail)
        supervisor.mark_ready()
        console.line(
            tr(
                f"store on {settings.data_dir}, process {store.pid}",
                f"存储位于 {settings.data_dir},进程 {store.pid}",
            )
        )
        console.line(f"ASYNC_NODES_REDIS_URL={store.url}")

    return supervisor.run(director)
