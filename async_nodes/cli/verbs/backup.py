"""``async-nodes backup`` and ``restore``: one moment of the store, into a file and back."""

from __future__ import annotations

from pathlib import Path

import click

from async_nodes.cli.console import Console
from async_nodes.cli.language import tr
from async_nodes.cli.located import load
from async_nodes.settings import Settings

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(help=tr("Write a backup of the store to a file.", "将存储备份到文件。"))
@click.argument("path", type=_FILE)
@click.option("--force", is_flag=True, help=tr("Replace the file.", "覆盖已有文件。"))
def command(path: Path, *, force: bool) -> None:
    """Take a snapshot while everything goes on."""
    from async_nodes.storage.snapshot import take

    if path.exists() and not force:
        said = tr(f"{path} is there already; --force replaces it", f"{path} 已存在;--force 可覆盖")
        raise click.UsageError(said)
    console = Console()

    def show(done: int, whole: int | None) -> None:
        if console.terminal.live:
            console.status(f"{done / 1e6:.1f}{f' / {whole / 1e6:.1f}' if whole else ''} MB")

    size = take(load().store_url, path, show)
    console.status("")
    console.line(tr(f"{path}: {size:,} bytes", f"{path}:{size:,} 字节"))


@click.command(
    help=tr(
        "Load a backup into the embedded store's data directory, which must be empty.",
        "将备份载入内置存储的数据目录(须为空)。",
    )
)
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def restore(path: Path) -> None:
    """Load a snapshot; `dev` or `redis` then start with it."""
    from async_nodes.embedded.restore import restore as load_snapshot
    from async_nodes.storage.snapshot import check

    data_dir = Settings.load().data_dir
    check(path)
    keys = load_snapshot(path, data_dir)
    Console().line(tr(f"{keys:,} keys are in {data_dir} now", f"{data_dir} 中现有 {keys:,} 个键"))
