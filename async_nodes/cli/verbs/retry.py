"""``async-nodes retry ID [key=value]``: run an ended task again, with changed inputs if wanted."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click

from async_nodes.cli.client_options import client_for, follow_option, url_option, wait_option
from async_nodes.cli.console import Console
from async_nodes.cli.following import accepted
from async_nodes.cli.http import path_of
from async_nodes.cli.inputs import parse
from async_nodes.cli.language import tr
from async_nodes.cli.transfer import with_files


@click.command(
    help=tr(
        "Run an ended task again. INPUTS that change are key=text, key:=json or key=@path.",
        "再次运行已结束的任务。要修改的输入写成 键=文本、键:=JSON 或 键=@路径。",
    )
)
@click.argument("task_id", metavar="ID")
@click.argument("inputs", nargs=-1)
@follow_option
@wait_option
@url_option
def command(task_id: str, inputs: tuple[str, ...], mode: str | None, url: str | None) -> int:
    """Retry; print the new task's id, or follow it, or wait for its output."""
    path = path_of(task_id)
    changed = parse(inputs)
    with client_for(url) as client:
        body: dict[str, Any] = {}
        if changed:
            changed = with_files(client, changed, Console(sys.stderr))
            # What the record shows as [redacted] goes back like that, and the server knows.
            body["inputs"] = {**client.get(path).document["inputs"], **changed}
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return accepted(client, client.post(f"{path}/retry", body, headers=headers), mode)
