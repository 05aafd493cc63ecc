"""Show something once, or again and again in the same place."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from async_nodes.cli.language import tr

if TYPE_CHECKING:
    from async_nodes.cli.terminal import Terminal

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
_CLEAR = "\x1b[H\x1b[2J"

watch_option: Option = click.option(
    "--watch",
    "every",
    type=click.FloatRange(0.2, 3_600),
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help=tr("Show it anew every so often (2 s).", "定时刷新(默认 2 秒)。"),
)


def show(
    look: Callable[[], Sequence[str]],
    terminal: Terminal,
    *,
    every: float | None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Print the lines that `look` returns; with `every`, until Ctrl-C.

    On a terminal they are drawn over the last ones, elsewhere below them.
    """
    while True:
        lines = "\n".join(look())
        if every and terminal.live:
            click.echo(_CLEAR + lines, color=True)  # or it would take the codes for colours
        else:
            click.echo(lines)
        if not every:
            return
        sleep(every)
        if not terminal.live:
            click.echo("")
