"""``async-nodes breakers``: what is called no more, why, and until when."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import tr
from async_nodes.cli.tables import Column, seconds, table
from async_nodes.cli.terminal import Piece, Terminal, printable
from async_nodes.cli.watching import show, watch_option

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS: Final[list[Column]] = [
    (tr("breaker", "熔断器"), "left"),
    (tr("state", "状态"), "left"),
    (tr("mode", "模式"), "left"),
    (tr("per second", "每秒"), "right"),
    (tr("P95", "P95"), "right"),
    (tr("failed", "失败"), "right"),
    (tr("degraded", "降级"), "left"),
    (tr("until", "直到"), "left"),
]
_STYLES: Final = {"closed": "", "open": "bold red", "half-open": "bold yellow"}


@click.command(help=tr("Show the breakers, or force one.", "显示熔断器,或强制其状态。"))
@click.argument("name", required=False)
@click.option(
    "--force",
    "mode",
    type=click.Choice(["open", "closed", "auto"]),
    help=tr("What it is to be; auto: it decides again.", "强制状态;auto 表示恢复自动判断。"),
)
@click.option("--json", "as_json", is_flag=True, help=tr("Print JSON.", "输出 JSON。"))
@watch_option
@url_option
def command(
    name: str | None, *, mode: str | None, as_json: bool, every: float | None, url: str | None
) -> int:
    """Print a line for each breaker, or for NAME, such as node:echo or endpoint:host:443."""
    if mode is not None and name is None:
        raise click.UsageError(tr("--force needs a NAME", "--force 需要指定名称"))
    terminal = Terminal.of(sys.stdout)
    path = "/v1/breakers" + (f"/{quote(name, safe=':')}" if name else "")
    with client_for(url) as client:
        if mode is not None:
            client.post(path, {"mode": mode})

        def look() -> Sequence[str]:
            document = client.get(path).document
            if as_json:
                return [json.dumps(document, ensure_ascii=False)]
            return lines(document.get("breakers", [document]), terminal)

        show(look, terminal, every=every)
    return 0


def lines(breakers: list[dict[str, Any]], terminal: Terminal) -> list[str]:
    """Return the table of the breakers."""
    if not breakers:
        nothing = tr("No node declares a breaker, and no endpoint was called.", "没有熔断器。")
        return [terminal.line([(nothing, "dim")])]
    return table(_COLUMNS, map(_row, breakers), terminal)


def _row(breaker: dict[str, Any]) -> list[Piece]:
    found, state = breaker["measured"], breaker["state"]
    words = {
        "closed": tr("closed", "关闭"),
        "open": tr("open", "打开"),
        "half-open": tr("half-open", "半开"),
    }
    return [
        (printable(breaker["name"]), "bold"),
        (words.get(state, state), _STYLES.get(state, "")),
        (breaker["mode"], "" if breaker["mode"] == "auto" else "bold yellow"),
        (f"{found['rate']:.1f}", ""),
        (seconds(found["p95_seconds"]), ""),
        (f"{found['failure_rate']:.0%}", "" if found["failures"] else "dim"),
        (printable(breaker["degraded"] or "–"), "yellow" if breaker["degraded"] else "dim"),
        (breaker["until"] or "–", "" if breaker["until"] else "dim"),
    ]
