"""Node ``http.request`` with files: a file goes out in pieces, an answer is kept as one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from async_nodes import AsyncNodesError
from async_nodes.testing import MemoryFiles, run_node

LARGE = b"".join(number.to_bytes(4, "big") for number in range(300_000))


class Handler(BaseHTTPRequestHandler):
    """Echo what comes, redirect, or send something large."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Send the body back, or say where it is to go."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/moved":
            self._send(307, b"", {"Location": "/echo"})
        else:
            kind = self.headers["Content-Type"]
            self._send(200, body, {"Content-Type": kind, "X-Coding": str(self.headers["TE"])})

    def do_GET(self) -> None:
        """Send something large under a name."""
        name = "attachment; filename*=UTF-8''%E8%8C%B6.bin"
        named = {"Content-Disposition": name} if self.path == "/named" else {}
        self._send(404 if self.path == "/missing" else 200, LARGE, named)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    """Return where the server listens."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def request(address: str, path: str, files: MemoryFiles, **inputs: Any) -> Any:
    """Return the output of the node."""
    inputs = {"url": f"http://{address}{path}", **inputs}
    allow = frozenset({address})
    return run_node("http.request", inputs, allow=allow, files=files).output


@pytest.mark.parametrize("path", ["/echo", "/moved"])
def test_a_file_goes_out(address: str, path: str) -> None:
    """With its length and type, and once more where a redirect asks for it."""
    files = MemoryFiles()
    file_id = files.add("a.bin", LARGE, media_type="image/png")
    output = request(address, path, files, method="POST", body_file=file_id, save=True)

    assert output["status"] == 200
    assert files.content(output["file"]) == LARGE
    assert output["file"].media_type == "image/png"


@pytest.mark.parametrize(
    ("path", "name"), [("/named", "茶.bin"), ("/x/report%20a.pdf", "report a.pdf"), ("/", "file")]
)
def test_an_answer_is_kept(address: str, path: str, name: str) -> None:
    """Under the name that the server gives, or else the one in the address."""
    files = MemoryFiles()
    output = request(address, path, files, save=True)

    assert output["file"].name == name
    assert files.content(output["file"]) == LARGE


def test_an_answer_that_is_no_success_is_kept_too(address: str) -> None:
    """It is for the workflow to judge, as without files."""
    output = request(address, "/missing", MemoryFiles(), save=True)

    assert output["status"] == 404
    assert output["file"].size == len(LARGE)


def test_two_bodies_are_refused(address: str) -> None:
    """A request has one."""
    files = MemoryFiles()
    with pytest.raises(AsyncNodesError, match="give one of") as refused:
        request(address, "/echo", files, method="POST", body="x", body_file=files.add("a", b"y"))
    assert refused.value.code == "invalid_inputs"
