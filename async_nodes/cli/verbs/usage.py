"""``async-nodes usage``: what nodes have used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import pad, printable, width

if TYPE_CHECKING:
    from collections.abc import Mapping

_DAY = click.DateTime(["%Y-%m-%d"])


@click.command(help=tr("Show what nodes have used.", "显示节点的用量。"))
@click.option("--from", "first", type=_DAY, help=tr("First day (UTC).", "起始日(UTC)。"))
@click.option("--to", "last", type=_DAY, help=tr("Last day (UTC).", "结束日(UTC)。"))
@click.option("--node", "nodes", multiple=True, help=tr("Of these nodes only.", "仅这些节点。"))
@click.option("--days", "is_daily", is_flag=True, help=tr("Day by day.", "按天列出。"))
@click.option("--json", "as_json", is_flag=True, help=tr("Print JSON.", "输出 JSON。"))
@url_option
def command(
    first: Any, last: Any, nodes: tuple[str, ...], *, is_daily: bool, as_json: bool, url: str | None
) -> int:
    """Print one line for each node and name, and the totals."""
    query = [("node", node) for node in nodes]
    query += [(name, f"{day:%Y-%m-%d}") for name, day in (("from", first), ("to", last)) if day]
    with client_for(url) as client:
        found = client.get(f"/v1/usage?{urlencode(query)}").document
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False))
        return 0
    rows = []
    if is_daily:
        for one in found["days"]:
            rows += [(one["day"], *row) for row in _rows(one["nodes"])]
    else:
        rows += _rows(found["nodes"])
    total = tr("all", "合计")
    blank = ("",) if is_daily else ()
    rows += [(*blank, total, name, f"{count:,}") for name, count in found["totals"].items()]
    click.echo(f"{found['from']} – {found['to']} ({found['time_zone']})", err=True)
    for line in _columns(rows):
        click.echo(line)
    if not rows:
        click.echo(tr("Nothing was counted.", "没有用量记录。"), err=True)
    return 0


def _rows(nodes: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    return [
        (printable(node), printable(name), f"{count:,}")
        for node, counts in nodes.items()
        for name, count in counts.items()
    ]


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows with their columns one below the other, numbers to the right."""
    sizes = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [*(pad(text, size) for text, size in zip(row[:-1], sizes, strict=False)),
             row[-1].rjust(sizes[-1])]
        )
        for row in rows
    ]  # fmt: skip
