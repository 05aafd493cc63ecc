"""``async-nodes files``: put, get, list and remove files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.console import Console
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Terminal, pad, printable
from async_nodes.cli.transfer import download, path_of, upload
from async_nodes.core.files import base_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from async_nodes.cli.http import Client

_PAGE = 200
_SIZE_COLUMNS = 14


@click.group(help=tr("Upload, download, list and remove files.", "上传、下载、列出和删除文件。"))
def command() -> None:
    """Hold what can be done with them."""


@command.command("put", help=tr("Upload files; print their ids.", "上传文件,输出其 ID。"))
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@click.option("--name", help=tr("What it is to be called.", "文件名。"))
@click.option("--type", "media_type", default="", help=tr("Its media type.", "媒体类型。"))
@click.option("--ttl", type=click.IntRange(1), help=tr("Seconds to keep it.", "保留秒数。"))
@url_option
def put_files(
    paths: tuple[Path, ...], name: str | None, media_type: str, ttl: int | None, url: str | None
) -> int:
    """Upload one after the other, up to the first that fails."""
    if name is not None and len(paths) > 1:
        raise click.UsageError(tr("--name is for one file", "--name 只用于单个文件"))
    console = Console(sys.stderr)
    with client_for(url) as client:
        for path in paths:
            info = upload(client, path, console, name=name, media_type=media_type, ttl=ttl)
            click.echo(info["file_id"])
            said = f"{info['name']}  {info['size']:,} B  {info['expires_at'][:19]}Z"
            console.line(printable(said))
    return 0


@command.command("get", help=tr("Download a file.", "下载文件。"))
@click.argument("file_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, allow_dash=True),
    help=tr("Where to; - for standard output. Default: its own name, here.",
            "保存位置,- 表示标准输出;默认存为当前目录下的原文件名。"),
)  # fmt: skip
@click.option("--force", is_flag=True, help=tr("Replace the file.", "覆盖已有文件。"))
@url_option
def get_file(file_id: str, *, output: Path | None, force: bool, url: str | None) -> int:
    """Write the content to a file, which is there only once it is whole."""
    console = Console(sys.stderr)
    with client_for(url) as client:
        info = client.get(path_of(file_id)).document
        if str(output) == "-":
            download(client, info, sys.stdout.buffer, console)
            sys.stdout.buffer.flush()
            return 0
        target = output or Path(base_name(info["name"]))
        if target.exists() and not force:
            raise click.UsageError(
                tr(
                    f"{target} is there already; --force replaces it",
                    f"{target} 已存在;--force 可覆盖",
                )
            )
        _save(client, info, target, console)
    console.line(printable(f"{target}  {info['size']:,} B"))
    return 0


def _save(client: Client, info: dict[str, Any], target: Path, console: Console) -> None:
    partial = target.with_name(f"{target.name}.{info['file_id'][-6:]}.part")
    try:
        with partial.open("wb") as file:
            download(client, info, file, console)
        partial.replace(target)
    except OSError as error:
        why = error.strerror
        raise Failure(
            tr(f"{target} cannot be written: {why}", f"无法写入 {target}:{why}")
        ) from error
    finally:
        partial.unlink(missing_ok=True)


@command.command("list", help=tr("List files, the youngest first.", "列出文件,新文件在前。"))
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help=tr("One JSON object a line, for programs.", "每行一个 JSON 对象,供程序使用。"),
)
@url_option
def list_files(*, limit: int, as_json: bool, url: str | None) -> int:
    """Print a line for each: id, size, end of its life, name."""
    terminal = Terminal.of(sys.stdout)
    found = 0
    with client_for(url) as client:
        for info in _files(client, limit):
            found += 1
            click.echo(json.dumps(info, ensure_ascii=False) if as_json else _line(info, terminal))
    if not found and not as_json:
        click.echo(tr("There are no files.", "没有文件。"), err=True)
    return 0


def _files(client: Client, limit: int) -> Iterator[dict[str, Any]]:
    query: dict[str, str] = {}
    while limit > 0:
        page = client.get(
            f"{path_of()}?{urlencode({'limit': min(limit, _PAGE), **query})}"
        ).document
        yield from page["files"]
        limit -= len(page["files"])
        if page["next"] is None:
            return
        query = {"cursor": page["next"]}


def _line(info: dict[str, Any], terminal: Terminal) -> str:
    return terminal.line(
        [
            (f"{info['file_id']}  ", ""),
            (f"{info['size']:>{_SIZE_COLUMNS},}  ", ""),
            (pad(f"{info['expires_at'][:19]}Z", 22), "dim"),
            (printable(info["name"]), "bold"),
        ]
    )


@command.command("rm", help=tr("Remove files.", "删除文件。"))
@click.argument("file_ids", metavar="ID...", nargs=-1, required=True)
@url_option
def remove_files(file_ids: tuple[str, ...], url: str | None) -> int:
    """Remove one after the other, up to the first that is not there."""
    with client_for(url) as client:
        for file_id in file_ids:
            client.delete(path_of(file_id))
            click.echo(tr(f"{file_id} removed", f"{file_id} 已删除"), err=True)
    return 0
