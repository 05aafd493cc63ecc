"""``async-nodes doctor``: check the installation, the store, the workers and the server."""

from __future__ import annotations

import sys
import time

import click

from async_nodes.cli.client_options import url_option
from async_nodes.cli.doctor import dify, local, report, server, store, tls
from async_nodes.cli.doctor.check import Patient, examine, status_of
from async_nodes.cli.language import tr
from async_nodes.cli.terminal import Terminal

_SECONDS = 4.7
EXAMINATIONS = (
    local.versions,
    local.settings,
    local.celery,
    store.store,
    store.replication,
    store.eviction,
    store.persistence,
    local.transport,
    store.workers,
    store.pauses,
    tls.tls,
    server.web,
    server.echo,
    server.stream,
)


@click.command(
    help=tr(
        "Check this installation and a running server."
        " Exit status 0: well, 1: warnings, 2: failures.",
        "检查安装与运行中的服务。退出状态 0:正常,1:有注意项,2:有失败项。",
    )
)
@click.option("--json", "as_json", is_flag=True, help=tr("Print JSON.", "输出 JSON。"))
@click.option(
    "--dify",
    "for_dify",
    is_flag=True,
    help=tr("Check what Dify needs, too.", "同时检查 Dify 所需。"),
)
@url_option
def command(*, as_json: bool, for_dify: bool, url: str | None) -> int:
    """Make every check within five seconds and show what was seen."""
    patient = Patient(url, time.monotonic() + _SECONDS)
    checks = examine(patient, (*EXAMINATIONS, *(dify.EXAMINATIONS if for_dify else ())))
    shown = report.document(checks) if as_json else None
    click.echo(shown or "\n".join(report.lines(checks, Terminal.of(sys.stdout))))
    return status_of(checks)
