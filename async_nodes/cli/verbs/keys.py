"""``async-nodes keys``: the API keys in the store, for whoever runs the service.

It asks the store and not the server: without a key the server would let nobody make the first one.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr
from async_nodes.cli.located import load
from async_nodes.cli.tables import table
from async_nodes.cli.terminal import Terminal, printable
from async_nodes.core.api_keys import DEFAULT_TENANT, Scope

if TYPE_CHECKING:
    from async_nodes.settings import Settings
    from async_nodes.storage.redis_store import RedisStore

_PATIENCE = 5.0
_COLUMNS = tuple(
    (title, "left")
    for title in (
        tr("id", "标识"),
        tr("name", "名称"),
        tr("tenant", "租户"),
        tr("scopes", "权限"),
        tr("created", "创建时间"),
    )
)


@click.group(
    help=tr(
        "Make, list and revoke API keys. They count where ASYNC_NODES_API_KEYS is true.",
        "创建、列出和吊销 API 密钥。服务端须设置 ASYNC_NODES_API_KEYS=true。",
    )
)
def command() -> None:
    """Hold what can be done with them."""


@command.command(
    help=tr(
        "Make a key and print it, this once.",
        "创建密钥并显示(仅此一次)。",
    )
)
@click.argument("name")
@click.option(
    "--tenant",
    default=DEFAULT_TENANT,
    show_default=True,
    help=tr("Whose tasks it sees and makes.", "可见与可提交的任务所属的租户。"),
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([scope.value for scope in Scope]),
    default=(Scope.READ.value, Scope.RUN.value),
    show_default=True,
    help=tr("What it may do; may be repeated.", "权限,可重复指定。"),
)
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON.", "以 JSON 输出。"))
def create(name: str, tenant: str, scopes: tuple[str, ...], *, as_json: bool) -> int:
    """Make a key; the key alone goes to standard output."""
    from async_nodes.storage.api_keys import ApiKeys

    settings = load()
    with closing(_store(settings)) as store:
        new = ApiKeys(store).create(name, tenant=tenant, scopes={Scope(one) for one in scopes})
    if as_json:
        shown = {"id": new.key_id, "key": new.text, "tenant": tenant, "scopes": sorted(scopes)}
        click.echo(json.dumps(shown))
    else:
        click.echo(new.text)
    said = tr(
        "Keep it now: it cannot be shown again. Send it as Authorization: Bearer <key>.",
        "请立即保存:此密钥不会再次显示。请求时发送 Authorization: Bearer <密钥>。",
    )
    click.echo(said, err=True)
    if not settings.api_keys:
        click.echo(
            tr(
                "It opens nothing until the server runs with ASYNC_NODES_API_KEYS=true.",
                "服务端设置 ASYNC_NODES_API_KEYS=true 之前,此密钥不起作用。",
            ),
            err=True,
        )
    return 0


@command.command("list", help=tr("List the keys, the oldest first.", "列出密钥,旧的在前。"))
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON, one a line.", "每行一个 JSON。"))
def list_keys(*, as_json: bool) -> int:
    """Print one line for each; never the key."""
    from async_nodes.storage.api_keys import ApiKeys

    with closing(_store(load())) as store:
        kept = ApiKeys(store).all()
    rows = []
    for one in kept:
        caller = one.caller
        created = datetime.fromtimestamp(one.created_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if as_json:
            shown = {
                "id": caller.key_id,
                "name": one.name,
                "tenant": caller.tenant,
                "scopes": sorted(caller.scopes),
                "created_at": created,
            }
            click.echo(json.dumps(shown, ensure_ascii=False))
        rows.append(
            [
                (caller.key_id, "bold"),
                (printable(one.name), ""),
                (caller.tenant, ""),
                (" ".join(sorted(caller.scopes)), ""),
                (created, "dim"),
            ]
        )
    if rows and not as_json:
        for line in table(_COLUMNS, rows, Terminal.of(sys.stdout)):
            click.echo(line)
    if not rows:
        click.echo(tr("There are no keys.", "没有密钥。"), err=True)
    return 0


@command.command(help=tr("Revoke a key by its id.", "按标识吊销密钥。"))
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> int:
    """Revoke a key; servers refuse it within a second."""
    from async_nodes.storage.api_keys import ApiKeys

    with closing(_store(load())) as store:
        if not ApiKeys(store).revoke(key_id):
            raise Failure(tr(f"there is no key {key_id!r}", f"没有密钥 {key_id!r}"))
    click.echo(tr(f"{key_id} is revoked", f"{key_id} 已吊销"))
    return 0


def _store(settings: Settings) -> RedisStore:
    from async_nodes.dispatch.celery_factory import make_app
    from async_nodes.dispatch.connect import open_blocking

    return open_blocking(settings, make_app(settings), title="async-nodes:keys", patience=_PATIENCE)
