"""``async-nodes dev``: a whole installation in one terminal."""

from __future__ import annotations

import click

from async_nodes.cli.address import curl, free_port, refuse_busy_port, url_of, welcome
from async_nodes.cli.console import Console
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.cli.readiness import wait_until_ready
from async_nodes.cli.stack import Stack
from async_nodes.cli.supervisor import Supervisor
from async_nodes.cli.terminal import pad
from async_nodes.settings import Settings


@click.command(
    help=tr("Run everything on this machine: store, web and workers.", "在本机启动全部进程。")
)
@click.option("--host", help=tr("Address to listen on.", "监听地址。"))
@click.option(
    "--port", type=click.IntRange(0, 65_535), help=tr("Port; 0 for any.", "端口;0 表示任意。")
)
@click.option(
    "--io-concurrency",
    type=click.IntRange(1, 100_000),
    help=tr("Tasks at once in the I/O worker.", "I/O 工作进程的并发任务数。"),
)
@click.option(
    "--cpu-concurrency",
    type=click.IntRange(1, 1_000),
    help=tr("Tasks at once in the CPU worker.", "CPU 工作进程的并发任务数。"),
)
def command(
    host: str | None, port: int | None, io_concurrency: int | None, cpu_concurrency: int | None
) -> int:
    """Start, watch and restart the processes until a signal comes."""
    settings = Settings.load()
    host = settings.host if host is None else host
    port = settings.port if port is None else port
    if port == 0:
        port = free_port(host)
    refuse_busy_port(host, port)
    stack = Stack(
        settings=settings,
        host=host,
        port=port,
        io_concurrency=io_concurrency,
        cpu_concurrency=cpu_concurrency,
    )
    console = Console()
    supervisor = Supervisor(stack.services(), console)
    url = url_of(host, port)

    def director() -> None:
        with Client(url, settings.api_key) as client:
            took = wait_until_ready(
                client,
                ending=supervisor.ending,
                progress=console.status,
                web_pid=lambda: supervisor.pid_of("web"),
            )
        if took is not None:
            supervisor.mark_ready()
            console.lines(greeting(console, stack, url, took))

    return supervisor.run(director)


def greeting(console: Console, stack: Stack, url: str, took: float) -> list[str]:
    """Return the lines that tell a person what runs and what to try."""
    terminal = console.terminal
    ready = tr(f"async_nodes is ready ({took:.1f} s)", f"async_nodes 已就绪({took:.1f} 秒)")
    lines = ["", terminal.paint(ready, "bold green")]
    lines += [f"  {pad(name, 8)} {terminal.paint(at, 'cyan')}" for name, at in welcome(url)]
    if stack.shared_store is not None:
        lines.append(
            tr(
                f"  The store is shared: process {stack.shared_store} started it.",
                f"  存储为共享:由进程 {stack.shared_store} 启动。",
            )
        )
    try_it = tr("Try it:", "试一试:")
    return [*lines, "", f"  {try_it}", f"  {curl(stack.settings, url)}", ""]
