"""The options that every verb shares which speaks to a running server."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from async_nodes.cli.address import url_of
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError
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
    """Return a client of the server at ``url``, or of the one the settings name.

    Raises:
        AsyncNodesError: ``bad_request`` for a URL that is none; ``invalid_setting``.

    """
    settings = Settings.load()
    if url is not None:
        return Client(url, settings.api_key)
    own = url_of(settings.host, settings.port, secure=settings.tls_cert is not None)
    return Client(own, settings.api_key, tls=_pinned(settings))


def _pinned(settings: Settings) -> ssl.SSLContext | None:
    """Return a context that trusts our server's very certificate: its name is not our address."""
    if settings.tls_cert is None:
        return None
    from async_nodes.access.serving.certificate import first_of

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=first_of(Path(settings.tls_cert).read_text("utf-8")))
    except (OSError, ValueError) as error:
        detail = f"ASYNC_NODES_TLS_CERT: {settings.tls_cert}: {error}"
        raise AsyncNodesError("invalid_setting", detail) from error
    return context
