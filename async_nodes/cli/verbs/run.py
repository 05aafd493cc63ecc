"""``async-nodes run NODE key=value``: submit one task."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click

from async_nodes.cli.client_options import client_for, follow_option, url_option, wait_option
from async_nodes.cli.console import Console
from async_nodes.cli.following import accepted
from async_nodes.cli.inputs import advised, parse
from async_nodes.cli.language import tr
from async_nodes.cli.transfer import with_files
from async_nodes.core.errors import AsyncNodesError


@click.command(
    help=tr(
        "Submit a task. INPUTS are key=text, key:=json, or key=@path for a file.",
        "提交任务。输入写成 键=文本、键:=JSON,文件写成 键=@路径。",
    )
)
@click.argument("node")
@click.argument("inputs", nargs=-1)
@follow_option
@wait_option
@click.option(
    "--priority", type=click.IntRange(0, 9), help=tr("0 is the most urgent.", "0 最紧急。")
)
@click.option(
    "--timeout-ms", type=click.IntRange(1), help=tr("Bounds one attempt.", "单次执行的时限。")
)
@url_option
def command(
    node: str,
    inputs: tuple[str, ...],
    mode: str | None,
    priority: int | None,
    timeout_ms: int | None,
    url: str | None,
) -> int:
    """Submit; print the task's id, or follow it, or wait for its output."""
    given = parse(inputs)
    body: dict[str, Any] = {"node": node}
    options = {"priority": priority, "timeout_ms": timeout_ms}
    body |= {name: value for name, value in options.items() if value is not None}
    with client_for(url) as client:
        body["inputs"] = with_files(client, given, Console(sys.stderr))
        # The key lets the request be sent again when the answer to it was lost.
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        try:
            answer = client.post("/v1/tasks", body, headers=headers)
        except AsyncNodesError as error:
            raise advised(error, given) from error
        return accepted(client, answer, mode)
