"""What the verbs pause, resume, drain and purge have in common: whom they mean, what they print."""

from __future__ import annotations

import sys
from typing import Any
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Terminal, printable
from async_nodes.core.priority import KINDS, LISTS

MOST_CALLS = 10_000
"""Requests of about a second after which a purge gives up: nobody waits three hours for it."""

_reason_option = click.option(
    "--reason",
    help=tr("Shown to whoever asks why.", "供查询原因的人查看。"),
)


def verb(action: str, summary: str) -> click.Command:
    """Return the command of an action on a queue or a node."""

    @click.command(name=action, help=summary)
    @click.argument("scope", metavar="QUEUE|NODE")
    @url_option
    def command(scope: str, *, url: str | None, reason: str | None = None) -> int:
        path = f"{path_of(scope)}/{action}"
        body = {"reason": reason} if reason else None
        with client_for(url) as client:
            document = client.post(path, body, timeout=30.0).document
            touched, calls = document["touched"], 1
            while action == "purge" and document["more"] and calls < MOST_CALLS:
                document = client.post(path, body, timeout=30.0).document
                touched, calls = touched + document["touched"], calls + 1
        terminal = Terminal.of(sys.stdout)
        for line in lines(action, {**document, "touched": touched}):
            click.echo(terminal.line([(line, "")]))
        return 0

    return _reason_option(command) if action in ("pause", "drain") else command


def word(state: str) -> str:
    """Return the word for what is in force."""
    words = {
        "open": tr("open", "正常"),
        "paused": tr("paused", "已暂停"),
        "draining": tr("draining", "排空中"),
    }
    return words.get(state, state)


def path_of(scope: str) -> str:
    """Return the address of what a person names: a queue, a kind of queues, or a node.

    ``queue:`` and ``node:`` say which is meant; else the queues' own names are queues.
    """
    kind, colon, name = scope.partition(":")
    if not colon:
        kind, name = "queue" if scope in (*LISTS, *KINDS) else "node", scope
    if kind not in ("queue", "node") or not name:
        raise click.BadParameter(
            tr(
                f"{scope!r} is neither a queue nor a node: say queue:NAME or node:NAME",
                f"{scope!r} 既不是队列也不是节点:请写 queue:名称 或 node:名称",
            ),
            param_hint="QUEUE|NODE",
        )
    return f"/v1/{kind}s/{quote(name, safe='')}"


def lines(action: str, document: dict[str, Any]) -> list[str]:
    """Return what to print: what is in force, and how many tasks were touched."""
    said = []
    for one in document["scopes"]:
        name = one["scope"].partition(":")[2]
        reason = f" ({printable(one['reason'])})" if one["reason"] else ""
        held = tr(f", {one['held']} held", f",暂停 {one['held']} 个") if one["held"] else ""
        said.append(f"{printable(name)}: {word(one['state'])}{reason}{held}")
    count = document["touched"]
    if action == "purge":
        said.append(tr(f"{count} cancelled", f"已取消 {count} 个任务"))
    elif action != "pause" and count:
        said.append(tr(f"{count} put back", f"已放回 {count} 个任务"))
    if document["more"]:
        more = ("the rest is put back by the workers", "其余任务由工作进程放回队列")
        said.append(tr("there are more", "还有更多任务") if action == "purge" else tr(*more))
    return said
