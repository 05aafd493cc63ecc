"""``async-nodes demo``: the main job, run in the terminal."""

from __future__ import annotations

import time

import click

from async_nodes.cli.address import curl, free_port, url_of, welcome
from async_nodes.cli.console import Console
from async_nodes.cli.demo.director import Director, first_token
from async_nodes.cli.demo.place import choose_port, environ_for, private_store
from async_nodes.cli.elapsed import process_age
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.cli.main import STARTED_AT
from async_nodes.cli.readiness import wait_until_ready
from async_nodes.cli.stack import Stack
from async_nodes.cli.supervisor import Supervisor
from async_nodes.cli.terminal import pad
from async_nodes.settings import Settings

_LOOPBACK = "127.0.0.1"
#: When the demo ends its tasks have ended, and its data goes with it: nothing needs to be drained.
_STOP_SECONDS = 1.0


@click.command(help=tr("See the main job run, here and now.", "立即在终端中运行主要功能演示。"))
@click.option(
    "--once",
    is_flag=True,
    help=tr("End by itself; the exit status tells how it went.", "自动结束,退出状态表示结果。"),
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), help=tr("Port; 0 for any.", "端口;0 表示任意。")
)
def command(*, once: bool, port: int | None) -> int:
    """Start everything, run four tasks side by side, and stay up unless ``--once``."""
    settings = Settings.load()
    host = settings.host
    with private_store(settings) as demo:
        model_port = free_port(_LOOPBACK)
        stack = Stack(
            settings=demo,
            host=host,
            port=choose_port(host, demo, port),
            environ=environ_for(demo, f"{_LOOPBACK}:{model_port}"),
            model_port=model_port,
            patience=_STOP_SECONDS if demo.redis_url is None else None,
        )
        console = Console(is_quiet=True)
        supervisor = Supervisor(stack.services(), console)
        return supervisor.run(lambda: _show(console, supervisor, stack, once=once))


def _show(console: Console, supervisor: Supervisor, stack: Stack, *, once: bool) -> int | None:
    """Tell the person all of it; return the exit status, None to stay up."""
    terminal = console.terminal
    url, key = url_of(stack.host, stack.port), stack.settings.api_key
    title = tr(
        "four tasks side by side: store, web, workers and a simulated model, on this machine",
        "四个任务并行:存储、Web、工作进程与模拟模型,均在本机",
    )
    console.line(f"{terminal.paint('async_nodes', 'bold cyan')}  {terminal.paint(title, 'dim')}")
    with Client(url, key) as client:
        took = wait_until_ready(
            client,
            ending=supervisor.ending,
            progress=console.status,
            web_pid=lambda: supervisor.pid_of("web"),
        )
    if took is None:
        return None
    supervisor.mark_ready()
    ready = tr(f"ready in {_clock():.1f} s", f"{_clock():.1f} 秒就绪")
    console.line(terminal.paint(ready, "dim"))
    director = Director(
        console=console,
        url=url,
        api_key=key,
        model_url=url_of(_LOOPBACK, stack.model_port or 0),
        clock=_clock,
        ending=supervisor.ending,
    )
    went_well = director.run()
    if supervisor.ending.is_set():
        return None
    if director.first_token_at is not None:
        console.line(first_token(director.first_token_at, _set_up()))
    if once:
        return 0 if went_well else 1
    console.lines(_farewell(console, stack, url))
    return None


def _farewell(console: Console, stack: Stack, url: str) -> list[str]:
    terminal = console.terminal
    stays = tr(
        "It stays up until Ctrl-C, with data that ends with it; `./run dev` keeps them.",
        "服务将运行至 Ctrl-C,数据随之清除;`./run dev` 会保留数据。",
    )
    return [
        "",
        *(f"  {pad(name, 8)} {terminal.paint(at, 'cyan')}" for name, at in welcome(url)),
        "",
        f"  {curl(stack.settings, url)}",
        "",
        terminal.paint(stays, "dim"),
    ]


def _clock() -> float:
    return time.monotonic() - STARTED_AT


def _set_up() -> float:
    """Return the seconds that ``./run`` worked before this program began."""
    age = process_age()
    return 0.0 if age is None else max(0.0, age - _clock())
