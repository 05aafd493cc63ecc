"""``async-nodes dead``: look after the tasks that nobody could do."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import is_chinese, tr
from async_nodes.cli.terminal import printable

_BULK = 200


def _path(task_id: str = "") -> str:
    return f"/v1/dead-letters/{quote(task_id, safe='')}" if task_id else "/v1/dead-letters"


@click.group(help=tr("Look after tasks that nobody could do.", "查看和处理死信(无法完成的任务)。"))
def command() -> None:
    """Hold what can be done with them."""


@command.command("list", help=tr("List them, newest first.", "列出死信,新的在前。"))
@click.option("--node", help=tr("Those of one node.", "仅某个节点。"))
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON, one a line.", "每行一个 JSON。"))
@url_option
def list_letters(node: str | None, limit: int, *, as_json: bool, url: str | None) -> int:
    """Print one line for each: when, id, node, reason."""
    query: dict[str, Any] = {"limit": limit} | ({"node": node} if node else {})
    with client_for(url) as client:
        document = client.get(f"{_path()}?{urlencode(query)}").document
    for letter in document["dead_letters"]:
        if as_json:
            click.echo(json.dumps(letter, ensure_ascii=False))
            continue
        said = (letter["buried_at"], letter["task_id"], letter["node"], letter["reason"])
        click.echo(printable("  ".join(map(str, said))))
    if not document["dead_letters"] and not as_json:
        click.echo(tr("There are no dead letters.", "没有死信。"), err=True)
    if document["next"]:
        click.echo(tr("There are more: use --limit.", "还有更多:请用 --limit。"), err=True)
    return 0


@command.command("show", help=tr("Show one with its record.", "查看一条死信及其任务记录。"))
@click.argument("task_id", metavar="ID")
@url_option
def show_letter(task_id: str, url: str | None) -> int:
    """Print why on stderr and the record as JSON on stdout."""
    with client_for(url) as client:
        letter = client.get(_path(task_id)).document
    why = letter["why"]["zh" if is_chinese() else "en"]
    click.echo(printable(f"{letter['buried_at']}  {letter['reason']}: {why}"), err=True)
    click.echo(json.dumps(letter["task"], ensure_ascii=False, indent=2))
    return 0


@command.command("requeue", help=tr("Send them again as new tasks.", "作为新任务重新入队。"))
@click.argument("task_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help=tr("All there are.", "全部死信。"))
@click.option("--node", help=tr("All of one node.", "某个节点的全部死信。"))
@url_option
def requeue_letters(
    task_ids: tuple[str, ...], *, is_all: bool, node: str | None, url: str | None
) -> int:
    """Print the new tasks' ids; 1 when some could not be sent again."""
    if bool(task_ids) == (is_all or node is not None):
        raise click.UsageError(tr("give IDs, or --all or --node", "请给出 ID,或 --all、--node"))
    with client_for(url) as client:
        for task_id in task_ids:
            click.echo(client.post(f"{_path(task_id)}/requeue").document["task_id"])
        if task_ids:
            return 0
        body = {"limit": _BULK} | ({"node": node} if node else {})
        refused: list[dict[str, Any]] = []
        while True:
            document = client.post(f"{_path()}/requeue", body).document
            for sent in document["requeued"]:
                click.echo(sent["task_id"])
            refused = document["refused"]
            if len(document["requeued"]) < _BULK:
                break
    for one in refused:
        error = one["error"]
        click.echo(printable(f"{one['task_id']}: {error['detail']} [{error['code']}]"), err=True)
    return 1 if refused else 0


@command.command("drop", help=tr("Drop them; the tasks' records stay.", "删除死信,任务记录保留。"))
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@url_option
def drop_letters(task_ids: tuple[str, ...], url: str | None) -> int:
    """Drop each."""
    with client_for(url) as client:
        for task_id in task_ids:
            client.delete(_path(task_id))
            click.echo(tr(f"dropped {task_id}", f"已删除 {task_id}"))
    return 0
