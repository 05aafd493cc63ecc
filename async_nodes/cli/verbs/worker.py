"""``async-nodes worker``: one worker process of either pool."""

from __future__ import annotations

import click

from async_nodes.cli.language import tr


@click.command(help=tr("Run a worker process.", "启动工作进程。"))
@click.option(
    "--pool",
    type=click.Choice(["io", "cpu"]),
    required=True,
    help=tr("io: hundreds of waits at once; cpu: processes.", "io:大量并发等待;cpu:多进程计算。"),
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 100_000),
    help=tr("Tasks at once.", "并发任务数。"),
)
def command(pool: str, concurrency: int | None) -> int:
    """Run tasks until SIGTERM; for the I/O pool gevent was patched by `main`."""
    from async_nodes.cli.located import load
    from async_nodes.execution.worker import main

    return main(load(), pool, concurrency=concurrency)
