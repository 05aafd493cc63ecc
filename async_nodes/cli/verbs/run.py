"""``async-nodes run NODE key=value``: submit one task."""

from __future__ import annotations

import sys
import uuid
from typing import Any

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.following import Follower, follow
from async_nodes.cli.inputs import parse
from async_nodes.cli.language import tr


@click.command(
    help=tr(
        "Submit a task. INPUTS are key=text or key:=json.",
        "提交任务。输入写成 键=文本 或 键:=JSON。",
    )
)
@click.argument("node")
@click.argument("inputs", nargs=-1)
@click.option("--follow", "mode", flag_value="follow", help=tr("Show it live.", "实时显示过程。"))
@click.option(
    "--wait", "mode", flag_value="wait", help=tr("Print its output at the end.", "结束后输出结果。")
)
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
    body: dict[str, Any] = {"node": node, "inputs": parse(inputs)}
    options = {"priority": priority, "timeout_ms": timeout_ms}
    body |= {name: value for name, value in options.items() if value is not None}
    with client_for(url) as client:
        # The key lets the request be sent again when the answer to it was lost.
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        answer = client.post("/v1/tasks", body, headers=headers)
        task_id = str(answer.document["task_id"])
        if mode is None:
            click.echo(task_id)
            return 0
        accepted = tr("accepted in", "已接受,用时")
        click.echo(f"{task_id}  {accepted} {answer.seconds * 1000:.0f} ms", err=True)
        try:
            follower = Follower(sys.stdout, sys.stderr, is_live=mode == "follow")
            return follow(client, task_id, follower)
        except KeyboardInterrupt:
            click.echo(
                tr(
                    f"\nThe task goes on. Stop it with: async-nodes cancel {task_id}",
                    f"\n任务仍在运行。停止它:async-nodes cancel {task_id}",
                ),
                err=True,
            )
            raise
