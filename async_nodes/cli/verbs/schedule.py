"""``async-nodes schedule``: tasks that come again and again."""

from __future__ import annotations

import json
import sys
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.failures import Failure
from async_nodes.cli.inputs import Upload, parse
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Terminal, pad, printable, width

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = "/v1/schedules"
_PAGE = 200
_GAP = "  "


@click.group(
    help=tr(
        "Submit a task again and again: by cron or at a steady pace.",
        "定时提交任务:按 cron 或固定间隔。",
    )
)
def command() -> None:
    """Hold what can be done with schedules."""


@command.command(
    help=tr(
        "Create a schedule of NODE. INPUTS are key=text or key:=json.",
        "为 NODE 创建定时计划。输入写成 键=文本 或 键:=JSON。",
    )
)
@click.argument("name")
@click.argument("node")
@click.argument("inputs", nargs=-1)
@click.option(
    "--cron", help=tr('Such as "30 2 * * *" or @hourly.', '例如 "30 2 * * *" 或 @hourly。')
)
@click.option("--every", type=float, metavar="SECONDS", help=tr("A steady pace.", "固定间隔(秒)。"))
@click.option("--timezone", help=tr("Whose wall clocks cron goes by.", "cron 所依据的时区。"))
@click.option(
    "--missed",
    type=click.Choice(["skip", "once", "all"]),
    help=tr("What becomes of ticks that were missed.", "错过的时刻如何处理。"),
)
@click.option(
    "--overlap",
    type=click.Choice(["allow", "skip"]),
    help=tr("skip: not while its last task runs.", "skip:上一个任务未结束时跳过。"),
)
@click.option("--starts-at", metavar="TIME", help=tr("With zone.", "须带时区。"))
@click.option("--ends-at", metavar="TIME", help=tr("With zone.", "须带时区。"))
@click.option("--jitter", type=float, metavar="SECONDS", help=tr("Late at most.", "最多延后(秒)。"))
@click.option("--paused", is_flag=True, help=tr("Begin paused.", "创建后先暂停。"))
@click.option(
    "--replace", is_flag=True, help=tr("Replace the one of that name.", "替换同名的定时计划。")
)
@url_option
def add(
    name: str, node: str, inputs: tuple[str, ...], *, replace: bool, url: str | None, **options: Any
) -> int:
    """Create or replace; print when it fires next."""
    task_inputs = parse(inputs)
    if any(isinstance(value, Upload) for value in task_inputs.values()):
        raise Failure(
            tr("a schedule's file must outlive its tasks", "定时计划的文件必须比其任务保留得更久"),
            tr(
                "Upload it with `files put PATH --ttl SECONDS` and give key=ID.",
                "请先用 `files put 路径 --ttl 秒数` 上传,再写成 键=ID。",
            ),
        )
    given = {
        option: value
        for option, value in options.items()
        if value is not None and value is not False
    }
    body = {**given, "task": {"node": node, "inputs": task_inputs}}
    with client_for(url) as client:
        if replace:
            made = client.put(_address(name), body).document
        else:
            made = client.post(_ROOT, {"name": name, **body}).document
    click.echo(f"{made['name']}{_GAP}{_next(made)}")
    return 0


@command.command("list", help=tr("List the schedules.", "列出定时计划。"))
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON, one a line.", "每行一个 JSON。"))
@url_option
def list_(*, as_json: bool, url: str | None) -> int:
    """List all, one a line."""
    found: list[dict[str, Any]] = []
    cursor = ""
    with client_for(url) as client:
        while True:
            page = client.get(f"{_ROOT}?limit={_PAGE}{cursor}").document
            found += page["schedules"]
            if page["next"] is None:
                break
            cursor = f"&cursor={quote(page['next'])}"
    if as_json:
        for one in found:
            click.echo(json.dumps(one, ensure_ascii=False))
        return 0
    if not found:
        click.echo(tr("There are no schedules.", "没有定时计划。"), err=True)
        return 0
    heads = (
        tr("NAME", "名称"), tr("NODE", "节点"), tr("WHEN", "时间"), tr("NEXT", "下次"),
        tr("FIRED", "已触发"), tr("MISSED", "错过"),
    )  # fmt: skip
    rows = [
        (
            one["name"],
            str(one["task"]["node"]),
            _when(one),
            _next(one),
            f"{one['counts']['fired']}",
            f"{one['counts']['missed']}",
        )
        for one in found
    ]
    for line in _table([heads, *rows]):
        click.echo(line)
    return 0


@command.command(help=tr("Show a schedule.", "查看定时计划。"))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help=tr("As JSON.", "以 JSON 输出。"))
@url_option
def show(name: str, *, as_json: bool, url: str | None) -> int:
    """Show one with its ticks to come."""
    with client_for(url) as client:
        found = client.get(_address(name)).document
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return 0
    for label, text in _facts(found):
        click.echo(printable(f"{pad(label, 12)}{_GAP}{text}"))
    return 0


@command.command(help=tr("Stop a schedule until it is resumed.", "暂停定时计划。"))
@click.argument("name")
@url_option
def pause(name: str, url: str | None) -> int:
    """Pause."""
    return _ask(name, "pause", url)


@command.command(help=tr("Let a paused schedule go on.", "恢复定时计划。"))
@click.argument("name")
@url_option
def resume(name: str, url: str | None) -> int:
    """Resume."""
    return _ask(name, "resume", url)


@command.command(
    help=tr("Send its task now; print the task's id.", "立即提交其任务,输出任务编号。")
)
@click.argument("name")
@url_option
def trigger(name: str, url: str | None) -> int:
    """Trigger."""
    # The key lets the request be sent again when the answer to it was lost.
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    with client_for(url) as client:
        answer = client.post(f"{_address(name)}/trigger", headers=headers)
    click.echo(str(answer.document["task_id"]))
    return 0


@command.command(help=tr("Delete a schedule; its tasks stay.", "删除定时计划,其任务保留。"))
@click.argument("name")
@url_option
def rm(name: str, url: str | None) -> int:
    """Delete."""
    with client_for(url) as client:
        client.delete(_address(name))
    return 0


def _ask(name: str, what: str, url: str | None) -> int:
    with client_for(url) as client:
        found = client.post(f"{_address(name)}/{what}").document
    click.echo(f"{found['name']}{_GAP}{_next(found)}")
    return 0


def _address(name: str) -> str:
    return f"{_ROOT}/{quote(name, safe='')}"


def _when(one: dict[str, Any]) -> str:
    if one["cron"] is not None:
        return f"{one['cron']} ({one['timezone']})"
    return tr(f"every {one['every']:g} s", f"每 {one['every']:g} 秒")


def _next(one: dict[str, Any]) -> str:
    if one["paused"]:
        paused = tr("paused", "已暂停")
        return f"{paused}: {one['reason']['detail']}" if one["reason"] else paused
    return str(one["next_at"] or tr("ended", "已结束"))


def _facts(one: dict[str, Any]) -> list[tuple[str, str]]:
    counts = one["counts"]
    return [
        (tr("name", "名称"), one["name"]),
        (tr("when", "时间"), _when(one)),
        (tr("task", "任务"), json.dumps(one["task"], ensure_ascii=False)),
        (tr("missed", "错过时"), one["missed"]),
        (tr("overlap", "重叠时"), one["overlap"]),
        (tr("next", "下次"), _next(one)),
        *((tr("then", "之后"), at) for at in one["preview"][1:]),
        (tr("last", "上次"), f"{one['last_at'] or '-'}{_GAP}{one['last_task_id'] or ''}".rstrip()),
        (
            tr("counts", "计数"),
            tr(
                f"{counts['fired']} fired, {counts['missed']} missed, {counts['skipped']} skipped",
                f"触发 {counts['fired']},错过 {counts['missed']},跳过 {counts['skipped']}",
            ),
        ),
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with columns of one width each, cut to the terminal."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    terminal = Terminal.of(sys.stdout)
    lines = [
        _GAP.join(pad(cell, size) for cell, size in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
    styles = ["bold", *[""] * (len(lines) - 1)]
    return [terminal.line([(line, style)]) for line, style in zip(lines, styles, strict=True)]
