"""Where a server of ours is reached: ports, URLs, and the command that works as pasted."""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from async_nodes.cli.language import tr
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from async_nodes.settings import Settings

_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - only read
_LOOK_SECONDS = 0.5


def url_of(host: str, port: int, *, secure: bool = False) -> str:
    """Return the URL under which this machine reaches a server that listens there."""
    shown = _ANYWHERE.get(host, host)
    scheme = "https" if secure else "http"
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"


def free_port(host: str) -> int:
    """Return a port that nobody listens on at the moment."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def refuse_busy_port(host: str, port: int) -> None:
    """Return when a server may listen there.

    Raises:
        AsyncNodesError: ``port_busy``, and whether the one there is one of ours;
            ``invalid_setting`` for a host that is not of this machine.

    """
    try:
        with socket.socket(_family(host)) as probe:
            # Connections of a server that has just stopped do not count, nor will they for ours.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        if isinstance(error, (socket.gaierror, OverflowError)) or error.errno in _NOT_HERE:
            detail = f"cannot listen on {host}: {error.strerror or error}"
            raise AsyncNodesError("invalid_setting", detail) from error
        if isinstance(error, PermissionError):
            detail = f"may not listen on port {port}: {error.strerror}"
            raise AsyncNodesError("invalid_setting", detail) from error
        raise AsyncNodesError("port_busy", _busy(host, port)) from error


def curl(settings: Settings, url: str) -> str:
    """Return a command that submits a task, waits and prints its record, key included by name."""
    body = json.dumps({"node": "echo", "inputs": {"text": tr("hello", "你好")}}, ensure_ascii=False)
    words = ["curl", "-sS", f"{url}/v1/tasks?wait=10", "-H", "Content-Type: application/json"]
    words += ["-d", body.replace("'", "")]
    command = " ".join(shlex.quote(word) for word in words)
    if settings.api_key is None:
        return command
    return f'{command} -H "Authorization: Bearer $ASYNC_NODES_API_KEY"'


def welcome(url: str) -> list[tuple[str, str]]:
    """Return what a person may open, names and their URLs."""
    return [
        (tr("Tasks", "任务"), f"{url}/v1/tasks"),
        (tr("Nodes", "节点"), f"{url}/v1/nodes"),
        (tr("API", "接口"), f"{url}/docs"),
        (tr("Metrics", "指标"), f"{url}/metrics"),
    ]


_NOT_HERE = frozenset({99, 49})  # EADDRNOTAVAIL on Linux and on macOS


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _busy(host: str, port: int) -> str:
    url = url_of(host, port)
    if _is_ours(host, port):
        return tr(
            f"async_nodes already runs at {url}; use it, or stop it first",
            f"async_nodes 已在 {url} 运行;请直接使用,或先停止它",
        )
    return tr(f"another program listens at {url}", f"{url} 已被其他程序占用")


def _is_ours(host: str, port: int) -> bool:
    connection = HTTPConnection(_ANYWHERE.get(host, host), port, timeout=_LOOK_SECONDS)
    with contextlib.suppress(OSError, HTTPException), contextlib.closing(connection):
        connection.request("GET", "/openapi.json")
        return b"async_nodes" in connection.getresponse().read(4096)
    return False
