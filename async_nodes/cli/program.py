"""The command line as click sees it: the verbs, their help, and how a command ends."""

from __future__ import annotations

import difflib
import importlib
import io
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from async_nodes.cli.failures import Failure, report
from async_nodes.cli.language import tr
from async_nodes.cli.main import INTERRUPTED
from async_nodes.core.errors import AsyncNodesError
from async_nodes.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

USAGE = 2

# Verb, its module below `verbs`, what it does. In the order in which a person meets them.
VERBS: Final[Mapping[str, tuple[str, str, str]]] = {
    "demo": ("demo", "See the main job run, here and now.", "立即在终端中运行主要功能演示。"),
    "dev": (
        "dev",
        "Run everything on this machine: store, web and workers.",
        "在本机启动全部进程:存储、Web 与工作进程。",
    ),
    "serve": ("serve", "Run the web process.", "启动 Web 进程。"),
    "worker": ("worker", "Run a worker process.", "启动工作进程。"),
    "redis": ("redis", "Run the embedded store in the foreground.", "在前台运行内置存储。"),
    "run": (
        "run",
        "Submit a task: run NODE key=value key:=json key=@path.",
        "提交任务:run 节点 键=值 键:=JSON 键=@路径。",
    ),
    "watch": ("watch", "Follow a task to its end.", "跟踪任务直到结束。"),
    "cancel": ("cancel", "Cancel a task.", "取消任务。"),
    "list": ("listing", "List tasks, newest first.", "列出任务,新任务在前。"),
    "result": ("result", "Print a task's output.", "输出任务结果。"),
    "retry": ("retry", "Run an ended task again.", "再次运行已结束的任务。"),
    "delete": ("delete", "Delete tasks that have ended.", "删除已结束的任务。"),
    "logs": ("logs", "Show what a task has logged.", "显示任务的日志。"),
    "dead": ("dead", "Look after tasks that nobody could do.", "查看和处理死信。"),
    "usage": ("usage", "Show what nodes have used.", "显示节点的用量。"),
    "profile": ("profile", "Draw where a process spends its time.", "绘制进程耗时的火焰图。"),
    "queues": ("queues", "Show what waits in the queues.", "显示队列状况。"),
    "workers": ("workers", "Show the live workers.", "显示存活的工作进程。"),
    "breakers": ("breakers", "Show the breakers, or force one.", "显示熔断器,或强制其状态。"),
    "pause": ("pause", "Hold the waiting tasks of a queue or a node.", "暂停队列或节点。"),
    "resume": ("resume", "End a pause or a drain.", "解除暂停或排空。"),
    "drain": (
        "drain",
        "Refuse new tasks of a queue or a node, work off the rest.",
        "队列或节点不再接受新任务,处理完已有任务。",
    ),
    "purge": ("purge", "Cancel the waiting tasks of a queue or a node.", "取消等待的任务。"),
    "schedule": (
        "schedule",
        "Submit a task again and again: by cron or at a steady pace.",
        "定时提交任务:按 cron 或固定间隔。",
    ),
    "files": ("files", "Upload, download, list and remove files.", "上传、下载、列出和删除文件。"),
    "keys": (
        "keys",
        "Make, list and revoke API keys, with tenants and scopes.",
        "创建、列出和吊销 API 密钥(租户与权限)。",
    ),
    "doctor": (
        "doctor",
        "Check this installation and a running server.",
        "检查安装与运行中的服务。",
    ),
    "model-server": (
        "model_server",
        "Run the simulated OpenAI-compatible model.",
        "启动模拟的 OpenAI 兼容模型服务。",
    ),
    "backup": ("backup", "Write a backup of the store to a file.", "将存储备份到文件。"),
    "restore": (
        "restore",
        "Load a backup into an empty data directory.",
        "将备份载入空的数据目录。",
    ),
    "chaos": (
        "chaos",
        "Break an installation on purpose and check that nothing is lost.",
        "主动制造故障,检查任务是否丢失。",
    ),
    "dify": (
        "dify",
        "Check, pack, sign and verify plugins for Dify.",
        "检查、打包、签名、验证 Dify 插件。",
    ),
    "bench": ("bench", "Run a benchmark of the checkout.", "运行源码目录中的基准测试。"),
    "test": ("test", "Run the tests of the checkout.", "运行源码目录中的测试。"),
}


class Verbs(click.Group):
    """The group of all verbs; a verb's module is imported when it is used, and not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of `VERBS`."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb's command."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"async_nodes.cli.verbs.{VERBS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or say which one may have been meant."""
        if args[0] == "help":
            click.echo(ctx.get_help())
            ctx.exit()
        if args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = tr(f"; did you mean {near[0]!r}?", f";是否想用 {near[0]!r}?") if near else ""
            ctx.fail(tr(f"there is no verb {args[0]!r}", f"没有命令 {args[0]!r}") + hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing them."""
        with formatter.section(tr("Verbs", "命令")):
            formatter.write_dl([(verb, tr(row[1], row[2])) for verb, row in VERBS.items()])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=tr(
        "Run the slow nodes of an LLM workflow outside the request that asked for them.",
        "在请求之外运行 LLM 工作流中的慢节点。",
    ),
)
@click.version_option(__version__, prog_name="async-nodes")
@click.option("--debug", is_flag=True, help=tr("Show tracebacks.", "显示错误堆栈。"))
@click.pass_context
def program(ctx: click.Context, *, debug: bool) -> None:
    """Hold the options that every verb shares."""
    ctx.obj = {"debug": debug}


def run(arguments: Sequence[str]) -> int:
    """Run the verb and return the exit status, every failure explained."""
    debug = "--debug" in arguments[:1]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows ? and not a traceback
    try:
        status = program.main(list(arguments), prog_name="async-nodes", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return silent()
    except Exception as error:  # a person gets a sentence, whatever it is
        if debug:
            raise
        return ended_by(error)
    return status if isinstance(status, int) else 0


def ended_by(error: Exception) -> int:
    """Explain an error and return the exit status that it stands for."""
    if isinstance(error, click.ClickException):
        error.show()
        return error.exit_code
    if isinstance(error, (AsyncNodesError, Failure)):
        report(error)
        return 1
    what = f"{type(error).__name__}: {error}"
    hint = tr(
        "This is a fault of async_nodes; `async-nodes --debug VERB ...` shows where.",
        "这是 async_nodes 的缺陷;`async-nodes --debug 命令 ...` 可显示位置。",
    )
    report(Failure(tr(f"unexpected {what}", f"意外错误 {what}"), hint))
    return 1


def silent() -> int:
    """End quietly after whoever read the output has gone, as `| head` does."""
    # Python flushes stdout once more at exit, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1
