"""What leaves our processes leaves through `async_nodes.egress`, or is listed with a reason."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import async_nodes

ROOT = Path(async_nodes.__file__).parent
CLIENTS = frozenset(
    (
        "aiohttp",
        "ftplib",
        "grpc",
        "http.client",
        "httpx",
        "niquests",
        "openai",
        "opentelemetry.exporter",
        "poplib",
        "pycurl",
        "pyroscope",
        "requests",
        "smtplib",
        "telnetlib",
        "urllib.request",
        "urllib3",
        "websocket",
        "websockets",
        "xmlrpc.client",
    )
)
"""Modules that fetch: importing one is a way out."""

CALLS = frozenset(
    (
        "connect",
        "connect_ex",
        "create_connection",
        "open_connection",
        "open_unix_connection",
        "urlopen",
    )
)
"""Names that open a connection, whatever object they belong to."""

ELSEWHERE = {
    "egress": "the one client",
    "testing": "servers, proxies and faults for tests; runs no node of a user's task",
    "client": "talks to our own server, from a program of the user's",
    "cli": "talks to our own server, from the user's terminal",
}
"""Rooms that are not looked into."""

LISTED = {
    "access/streams/hub.py": "Redis",
    "access/streams/subscriber_link.py": "Redis",
    "execution/consumer.py": "the broker",
    "execution/intake.py": "Redis",
    "execution/tasks.py": "handlers of Celery's signals, no connection",
    "execution/worker.py": "handlers of Celery's signals, no connection",
    "storage/link_connector.py": "Redis",
    "storage/native_stream.py": "Redis",
    "storage/pooled.py": "Redis",
    "storage/redis_address.py": "Redis",
    "storage/snapshot.py": "Redis",
    "telemetry/beside.py": "metrics of the other processes of `dev`, on this machine",
    "telemetry/profiling.py": "the Pyroscope server that the operator names",
    "telemetry/tracing.py": "the OTLP receiver that the operator names",
}
"""Modules that may open connections, and to what: none to an address that a task names."""


def ways_out(source: str) -> set[str]:
    """Return what in a module opens connections."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        found |= {n for n in names if any(n == c or n.startswith(f"{c}.") for c in CLIENTS)}
        if isinstance(node, ast.Call):
            called = node.func
            name = getattr(called, "attr", None) or getattr(called, "id", "")
            if name in CALLS:
                found.add(name)
    return found


def test_nothing_else_opens_connections() -> None:
    """Modules with a way out are exactly those that are listed."""
    seen = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] not in ELSEWHERE and ways_out(path.read_text("utf-8"))
    }
    assert seen == set(LISTED)


@pytest.mark.parametrize(
    "source",
    [
        "import requests",
        "import urllib.request as u",
        "from urllib import request",
        "from http import client",
        "def f():\n    import httpx",
        "import urllib3.util",
        "sock.connect(address)",
        "create_connection(address)",
        "await asyncio.open_connection(host, 1)",
    ],
)
def test_each_way_out_is_seen(source: str) -> None:
    """A client is noticed however it is imported, a connection however it is opened."""
    assert ways_out(source)


@pytest.mark.parametrize("source", ["from urllib.parse import urlsplit", "import http", "connect"])
def test_what_opens_nothing_is_no_way_out(source: str) -> None:
    """Reading addresses is not calling them."""
    assert not ways_out(source)
