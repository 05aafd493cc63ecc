"""``async-nodes result ID``: a task's output alone, however large."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.failures import Failure
from async_nodes.cli.following import as_text
from async_nodes.cli.http import path_of
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command(help=tr("Print a task's output.", "输出任务结果。"))
@click.argument("task_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=tr("Write it to a file, as JSON.", "以 JSON 写入文件。"),
)
@url_option
def command(task_id: str, file: Path | None, url: str | None) -> int:
    """Print the output as a person reads it, or write its JSON to a file as it comes."""
    path = f"{path_of(task_id)}/result"
    with client_for(url) as client:
        if file is not None:
            size = _save(client.pieces(path), file)
            click.echo(tr(f"{size} bytes in {file}", f"{size} 字节已写入 {file}"), err=True)
            return 0
        text = as_text(client.get(path).document)
    click.echo(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
    return 0


def _save(pieces: Iterator[bytes], file: Path) -> int:
    """Write the pieces to a file that is there only once it is whole; return its size."""
    first = next(pieces, b"")  # the server's problem comes before anything is written
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("wb") as sink:
            size = sink.write(first) + sum(map(sink.write, pieces))
        part.replace(file)
    except OSError as error:
        part.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise Failure(tr(f"{file} cannot be written: {why}", f"无法写入 {file}:{why}")) from error
    return size
