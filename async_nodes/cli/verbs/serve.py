"""``async-nodes serve``: the web process."""

from __future__ import annotations

from dataclasses import replace

import click

from async_nodes.cli.language import tr


@click.command(help=tr("Run the web process.", "启动 Web 进程。"))
@click.option("--host", help=tr("Address to listen on.", "监听地址。"))
@click.option(
    "--port", type=click.IntRange(0, 65_535), help=tr("Port; 0 for any.", "端口;0 表示任意。")
)
@click.option(
    "--fast-lane/--no-fast-lane",
    default=True,
    help=tr("Answer ordinary requests before Flask sees them.", "常见请求在到达 Flask 之前应答。"),
)
def command(host: str | None, port: int | None, *, fast_lane: bool) -> int:
    """Serve HTTP until SIGTERM; gevent was patched by `main`."""
    from async_nodes.access.server import serve
    from async_nodes.cli.located import load

    settings = load()
    settings = replace(
        settings,
        host=settings.host if host is None else host,
        port=settings.port if port is None else port,
    )
    return serve(settings, fast_lane=fast_lane)
