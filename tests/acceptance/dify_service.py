"""A service that answers Dify's plugin as a test says: badly, late, or not at all."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TASK = "t_06H2ZWKJMG00GSX0P48F6Q5T5S"
CREATED = "2026-12-01T09:00:00.000Z"
Give = Callable[[BaseHTTPRequestHandler], None]


def record(state: str = "Succeeded", **more: Any) -> dict[str, Any]:
    """Return a task's record."""
    return {"task_id": TASK, "state": state, "created_at": CREATED, "attempt": 1, **more}


def answer(status: int, body: Any, **headers: str) -> Give:
    """Return what gives an answer: JSON, or bytes as they are."""

    def give(request: BaseHTTPRequestHandler) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        request.send_response(status)
        sent = {"Content-Type": "application/json", **headers}
        for name, value in {**sent, "Content-Length": str(len(content))}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return give


def events(*pieces: bytes | float, whole: bool = True) -> Give:
    """Return what gives a stream: its bytes, waiting so many seconds where a number stands."""

    def give(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        if not whole:
            request.send_header("Content-Length", "100000000")
        request.end_headers()
        for piece in pieces:
            if isinstance(piece, bytes):
                request.wfile.write(piece)
                request.wfile.flush()
            else:
                time.sleep(piece)
        request.close_connection = True

    return give


def event(name: str, said: Any, place: str = "1-1") -> bytes:
    """Return an event as it is sent."""
    return f"id: {place}\nevent: {name}\ndata: {json.dumps(said)}\n\n".encode()


DONE = event("done", record(output="good"))


class Service:
    """Answer by method and path; where several answers stand, the last one stays.

    Attributes:
        asked: method, path and headers of each request.
        bodies: the content of each.

    """

    def __init__(self, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.answers: dict[str, list[Give]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.ended = threading.Event()
        self._server = _Server((host, 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://{shown}:{self._server.server_address[1]}"
        self.on("POST /v1/tasks", answer(201, {"task_id": TASK, "state": "Pending"}))
        self.on(f"GET /v1/tasks/{TASK}", answer(200, record("Running")))

    def on(self, what: str, *answers: Give) -> None:
        """Answer a request so."""
        self.answers[what] = list(answers)

    def count(self, what: str) -> int:
        """Return how often something was asked for."""
        return sum(f"{method} {path}" == what for method, path, _ in self.asked)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _take(self) -> None:
                path = self.path.partition("?")[0]
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                service.asked.append((self.command, path, dict(self.headers)))
                service.bodies.append(body)
                answers = service.answers.get(f"{self.command} {path}")
                if not answers:
                    answer(404, {"code": "not_found", "detail": "there is none"})(self)
                    return
                give = answers.pop(0) if len(answers) > 1 else answers[0]
                try:
                    give(self)
                except OSError:
                    service.ended.set()
                    self.close_connection = True

            do_GET = do_POST = _take  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    @contextlib.contextmanager
    def running(self) -> Iterator[Service]:
        """Serve as long as this holds."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        import socket

        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, *_: Any) -> None:
        """Say nothing: those who go away are the purpose."""
