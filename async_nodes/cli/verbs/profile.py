"""``async-nodes profile``: a flame graph of a process, made by py-spy from outside of it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from async_nodes.cli.client_options import client_for, url_option
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE = 60.0
"""Seconds beyond the recording that py-spy may take to draw."""


@click.command(
    help=tr(
        "Record where a process spends its time and draw a flame graph (SVG). PID is a process of"
        " this machine; --node takes the worker here that runs the node.",
        "记录进程的耗时并绘制火焰图(SVG)。PID 为本机进程;--node 选择本机运行该节点的 worker。",
    )
)
@click.argument("pid", type=click.IntRange(1), required=False)
@click.option("--node", help=tr("The worker that runs this node.", "运行该节点的 worker。"))
@click.option(
    "--seconds",
    type=click.IntRange(1, 3600),
    default=10,
    show_default=True,
    help=tr("How long to record.", "记录多少秒。"),
)
@click.option(
    "--rate",
    type=click.IntRange(1, 1000),
    default=99,
    show_default=True,
    help=tr("Samples a second.", "每秒采样数。"),
)
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("profile.svg"),
    show_default=True,
    help=tr("Where to write.", "输出文件。"),
)
@url_option
def command(
    pid: int | None, node: str | None, *, seconds: int, rate: int, output: Path, url: str | None
) -> int:
    """Record and say where the picture is."""
    if (pid is None) == (node is None):
        raise click.UsageError(tr("Give a PID or --node.", "请给出 PID 或 --node。"))
    if node is not None:
        pid = _pid_of(node, url)
    record(int(pid or 0), seconds=seconds, rate=rate, output=output)
    click.echo(tr(f"Process {pid}: {output}", f"进程 {pid}:{output}"))
    return 0


def record(pid: int, *, seconds: int, rate: int, output: Path) -> None:
    """Draw a process and its children.

    Raises:
        Failure: py-spy is not installed, or may not look into the process.

    """
    argv = [
        _py_spy(), "record", "--pid", str(pid), "--duration", str(seconds), "--rate", str(rate),
        "--output", str(output), "--format", "flamegraph", "--subprocesses", "--nonblocking",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=seconds + _PATIENCE
        )
    except subprocess.TimeoutExpired as late:
        raise Failure(tr("py-spy did not come to an end.", "py-spy 未能结束。")) from late
    if done.returncode or not output.exists():
        said = " ".join(done.stderr.split())[-300:]
        raise Failure(
            tr(f"py-spy could not record process {pid}: {said}", f"py-spy 无法记录 {pid}:{said}"),
            tr(
                "The process must run, and be yours or you root (or allow ptrace).",
                "该进程须在运行,且属于您,或以 root 运行(或允许 ptrace)。",
            ),
        )


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise Failure(
            tr("py-spy is not installed.", "未安装 py-spy。"),
            "pip install 'async_nodes[profiling]'",
        )
    return found


def _pid_of(node: str, url: str | None) -> int:
    """Return the worker of this machine that runs a node: the one with most to do."""
    with client_for(url) as client:
        kind = client.get(f"/v1/nodes/{node}").document["kind"]
        workers: Sequence[dict[str, Any]] = client.get("/v1/workers").document["workers"]
    here = [one for one in workers if one["kind"] == kind and one["host"] == socket.gethostname()]
    if not here:
        raise Failure(
            tr(
                f"No {kind} worker, which {node} needs, lives on this machine.",
                f"本机没有 {node} 所需的 {kind} worker。",
            )
        )
    busiest = max(here, key=lambda one: int(one.get("running") or 0))
    return int(busiest["pid"])
