"""Connections that rest: the server ends them in time, and no other."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

IDLE, SWEEP = 0.6, 0.1
MAIN = f"""
from gevent import monkey; monkey.patch_all()
from async_nodes.access.serving import http
http.IDLE_SECONDS, http.SWEEP_SECONDS = {IDLE}, {SWEEP}

def app(environ, start):
    start("200 OK", [("Content-Length", "2")])
    return [b"ok"]

def lane(reader):
    found = reader.peek()
    if not found.startswith(b"GET /lane HTTP/1.1\\r\\n\\r\\n"):
        return None
    reader.take(len(found))
    return http.Answer("HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n", b"lane")

server = http.Server(("127.0.0.1", 0), app, lane=lane)
server.start()
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server that is impatient."""
    command = [sys.executable, "-c", MAIN]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def seconds_until_closed(connection: socket.socket) -> float:
    started = time.monotonic()
    assert connection.recv(100) == b""
    return time.monotonic() - started


@pytest.mark.parametrize("path", [None, b"lane", b"app"])
def test_a_connection_that_rests_is_closed(port: int, path: bytes | None) -> None:
    """Whether it has sent nothing yet, or was answered by the lane or by the app."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        if path is not None:
            connection.sendall(b"GET /" + path + b" HTTP/1.1\r\n\r\n")
            assert connection.recv(500).startswith(b"HTTP/1.1 200 OK")
        assert IDLE - 0.1 < seconds_until_closed(connection) < IDLE + 10 * SWEEP


def test_a_connection_that_is_used_stays(port: int) -> None:
    """Its time begins anew with each request."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        for number in range(6):
            time.sleep(IDLE / 2)
            path = b"lane" if number % 2 else b"app"
            connection.sendall(b"GET /" + path + b" HTTP/1.1\r\n\r\n")
            assert connection.recv(500).startswith(b"HTTP/1.1 200 OK")


def test_a_request_line_that_never_ends_is_no_activity(port: int) -> None:
    """Half a line is waited for as long as a whole one."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /la")
        assert IDLE - 0.1 < seconds_until_closed(connection) < IDLE + 10 * SWEEP
