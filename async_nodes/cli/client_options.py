"""The options that every verb shares which speaks to a running server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from async_nodes.cli.address import url_of
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.settings import Settings

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

url_option: Option = click.option(
    "--url",
    metavar="URL",
    help=tr(
        "The server; by default the one ASYNC_NODES_HOST and ASYNC_NODES_PORT name.",
        "服务地址;默认由 ASYNC_NODES_HOST 与 ASYNC_NODES_PORT 决定。",
    ),
)

follow_option: Option = click.option(
    "--follow", "mode", flag_value="follow", help=tr("Show it live.", "实时显示过程。")
)
wait_option: Option = click.option(
    "--wait", "mode", flag_value="wait", help=tr("Print its output at the end.", "结束后输出结果。")
)


def client_for(url: str | None) -> Client:
    """Return a client of the server at ``url``, or of the one the settings name."""
    settings = Settings.load()
    return Client(url or url_of(settings.host, settings.port), settings.api_key)
