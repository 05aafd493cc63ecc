"""``async-nodes serve``: the web process, or several of them on one port."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from async_nodes.cli.language import tr
from async_nodes.cli.main import is_patched

if TYPE_CHECKING:
    from async_nodes.settings import Settings


@click.command(
    help=tr(
        "Run the web process, or several of them on one port.",
        "启动 Web 进程,或在同一端口上启动多个。",
    )
)
@click.option("--host", help=tr("Address to listen on.", "监听地址。"))
@click.option(
    "--port", type=click.IntRange(0, 65_535), help=tr("Port; 0 for any.", "端口;0 表示任意。")
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help=tr(
        "Web processes on the port, and one that looks after them: SIGHUP replaces them one by "
        "one, and no request is lost.",
        "同一端口上的 Web 进程数,另有一个进程负责看护:SIGHUP 逐个替换它们,不丢失请求。",
    ),
)
@click.option(
    "--tls-cert",
    metavar="FILE",
    help=tr("Speak TLS with this certificate and its chain (PEM).", "以此证书链(PEM)启用 TLS。"),
)
@click.option(
    "--tls-key",
    metavar="FILE",
    help=tr(
        "The certificate's key (PEM), unless it is in the same file.",
        "证书的私钥(PEM);与证书同一文件时可省略。",
    ),
)
@click.option(
    "--fast-lane/--no-fast-lane",
    default=True,
    help=tr("Answer ordinary requests before Flask sees them.", "常见请求在到达 Flask 之前应答。"),
)
@click.option("--plain", is_flag=True, hidden=True)  # for `dev`, whatever is set
@click.option("--as-one-of-many", "inherited", hidden=True)
def command(
    host: str | None,
    port: int | None,
    processes: int | None,
    tls_cert: str | None,
    tls_key: str | None,
    inherited: str | None,
    *,
    fast_lane: bool,
    plain: bool,
) -> int:
    """Serve HTTP until SIGTERM."""
    from async_nodes.cli.located import load

    settings = load()
    given = {"host": host, "port": port, "processes": processes}
    given |= {"tls_cert": tls_cert, "tls_key": tls_key}
    settings = replace(settings, **{name: v for name, v in given.items() if v is not None})  # type: ignore[arg-type]
    if plain:
        settings = replace(settings, processes=None, tls_cert=None, tls_key=None)
    if inherited is None and settings.processes is not None:
        return _several(settings, fast_lane=fast_lane)
    from async_nodes.access.serving.inherited import Inherited
    from async_nodes.access.serving.server import serve

    mine = Inherited.read(inherited) if inherited is not None else None
    return serve(settings, fast_lane=fast_lane, inherited=mine)


def _several(settings: Settings, *, fast_lane: bool) -> int:
    """Look after several web processes."""
    from async_nodes.cli.web.child import command_line
    from async_nodes.cli.web.keeper import keep

    own = command_line(settings, fast_lane=fast_lane)
    if is_patched():
        # A process that only starts others and waits is better off without gevent. Settings told
        # it only now that this is one.
        os.execv(sys.executable, [*own, "--processes", str(settings.processes)])  # noqa: S606
    return keep(settings, own)
