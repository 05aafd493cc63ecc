"""``async-nodes chaos``: break an installation on purpose and check what it promises."""

from __future__ import annotations

import json
import secrets
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from async_nodes.cli.address import free_port, url_of
from async_nodes.cli.chaos import sentinel
from async_nodes.cli.chaos.kill_loop import KillLoop
from async_nodes.cli.chaos.plan import Plan
from async_nodes.cli.console import Console
from async_nodes.cli.demo.place import environ_for, private_store
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.cli.readiness import wait_until_ready
from async_nodes.cli.restart import RestartPolicy
from async_nodes.cli.stack import Stack
from async_nodes.cli.supervisor import Supervisor
from async_nodes.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.cli.chaos.kill_loop import Progress
    from async_nodes.cli.chaos.verdict import Verdict

# Workers have the work, and die twice as often.
TARGETS = ("worker io", "worker io", "worker cpu", "worker cpu", "web")
_LOOPBACK = "127.0.0.1"
_SETTLE = 30.0
_BAR = 30
_LINE_EVERY = 5.0


@click.group(
    help=tr(
        "Break an installation of its own on purpose and check that nothing is lost.",
        "在独立的环境中制造故障,检查任务是否丢失。",
    )
)
def command() -> None:
    """Hold the experiments."""


command.add_command(sentinel.command)


@command.command(
    "kill-loop",
    help=tr(
        "SIGKILL a random process every 2 to 5 seconds while tasks come in.",
        "任务提交期间,每 2 至 5 秒随机强制终止一个进程。",
    ),
)
@click.option("--seconds", type=click.FloatRange(5, 86_400), default=60, show_default=True)
@click.option("--tasks", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True)
@click.option("--seed", type=int, help=tr("Repeat a run.", "重复某次运行。"))
@click.option(
    "--lease",
    type=click.FloatRange(1, 600),
    default=3,
    show_default=True,
    help=tr("Seconds a worker's silence is believed.", "工作进程静默多少秒后视为失效。"),
)
@click.option(
    "--json",
    "report",
    type=click.Path(dir_okay=False, path_type=Path),
    help=tr("Write the report to a file.", "将报告写入文件。"),
)
def kill_loop(
    *, seconds: float, tasks: int, seed: int | None, lease: float, report: Path | None
) -> int:
    """Run the kill loop; the exit status is 0 when nothing was lost or done twice."""
    seed = secrets.randbelow(1_000_000) if seed is None else seed
    plan = Plan(tasks, seconds, seed, TARGETS)
    with private_store(Settings.load()) as settings, tempfile.TemporaryDirectory() as folder:
        stack = Stack(
            settings=settings,
            host=_LOOPBACK,
            port=free_port(_LOOPBACK),
            environ={
                **environ_for(settings, ""),
                "ASYNC_NODES_EGRESS_ALLOW": "",
                "ASYNC_NODES_LEASE_SECONDS": f"{lease:g}",
            },
            patience=1.0,
        )
        console = Console(is_quiet=True)
        # What is killed comes back at once, however often.
        policy = RestartPolicy(first=0.2, longest=0.2, patience=1_000_000)
        supervisor = Supervisor(stack.services(), console, policy=policy)

        def director() -> int | None:
            if not _ready(console, supervisor, stack):
                return None
            loop = KillLoop(
                plan,
                connect=lambda: Client(url_of(stack.host, stack.port), settings.api_key),
                pid_of=supervisor.pid_of,
                ending=supervisor.ending,
                counted=Path(folder) / "starts",
            )
            verdict = loop.run(
                _shown(console, plan),
                patience=lease + _SETTLE,
            )
            _tell(console, plan, loop.progress, verdict)
            if report is not None:
                found = {"seed": seed, "tasks": tasks, "seconds": seconds, "lease": lease}
                kills = [{"at": at, "process": name} for at, name in loop.progress.kills]
                text = json.dumps({**found, "kills": kills, **verdict.to_json()}, indent=1)
                report.write_text(text + "\n", encoding="utf-8")
            return 0 if verdict.passed else 1

        return supervisor.run(director)


def _ready(console: Console, supervisor: Supervisor, stack: Stack) -> bool:
    with Client(url_of(stack.host, stack.port), stack.settings.api_key) as client:
        took = wait_until_ready(
            client,
            ending=supervisor.ending,
            progress=console.status,
            web_pid=lambda: supervisor.pid_of("web"),
        )
    if took is None:
        return False
    supervisor.mark_ready()
    return True


def _shown(console: Console, plan: Plan) -> Callable[[Progress, float], None]:
    """Return what shows the progress: drawn anew where that can be, else a line now and then."""
    due = 0.0

    def show(progress: Progress, at: float) -> None:
        nonlocal due
        if console.terminal.live or at >= due:
            due = at + _LINE_EVERY
            console.status(_status(plan, progress, at))

    return show


def _status(plan: Plan, progress: Progress, at: float) -> str:
    share = min(at / plan.seconds, 1.0)
    bar = ("█" * round(share * _BAR)).ljust(_BAR, "░")
    counts = tr(
        f"{len(progress.accepted):,} accepted · {progress.ended:,} ended · "
        f"{len(progress.kills)} kills",
        f"已接受 {len(progress.accepted):,} · 已结束 {progress.ended:,} · "
        f"已终止 {len(progress.kills)} 次",
    )
    return f"{bar} {at:5.1f} s  {counts}"


def _tell(console: Console, plan: Plan, progress: Progress, verdict: Verdict) -> None:
    terminal = console.terminal
    console.status("")
    said = verdict.to_json()
    by_process = ", ".join(
        f"{name} {sum(1 for _, killed in progress.kills if killed == name)}"
        for name in dict.fromkeys(plan.targets)
    )
    times = said["recovery_seconds"]
    recovery = (
        "–" if times["most"] is None else f"{times['median']} / {times['p95']} / {times['most']} s"
    )
    rows = [
        (tr("seed", "种子"), str(plan.seed)),
        (tr("kills", "终止次数"), f"{len(progress.kills)} ({by_process})"),
        (tr("accepted", "已接受"), f"{verdict.accepted:,}"),
        (tr("lost", "丢失"), f"{len(verdict.lost):,}"),
        (tr("failed", "失败"), f"{len(verdict.failed):,}"),
        (tr("done twice", "重复完成"), f"{len(verdict.doubled):,}"),
        (tr("run again", "重新执行"), f"{verdict.repeats:,}"),
        (tr("kill to restart, median / p95 / most", "终止到重新执行:中位 / p95 / 最长"), recovery),
    ]
    console.lines([f"  {name:<38} {value}" for name, value in rows])
    good = tr("nothing was lost", "没有任务丢失")
    bad = tr("a promise was broken", "有承诺被打破")
    passed = verdict.passed
    console.line(terminal.paint(good if passed else bad, "bold green" if passed else "bold red"))
