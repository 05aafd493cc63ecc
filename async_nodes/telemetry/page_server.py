"""Serve the metrics of a worker on a port of its own."""

from __future__ import annotations

import logging
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from async_nodes.telemetry.registry import page

_log = logging.getLogger(__name__)

_PATHS = ("/metrics", "/")
_SECONDS = 10.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS  # a client that says nothing holds a thread no longer

    def do_GET(self) -> None:
        """Answer with the metrics."""
        if self.path.partition("?")[0] not in _PATHS:
            self.send_error(404)
            return
        found = page(self.headers.get("Accept"))
        self.send_response(200)
        self.send_header("Content-Type", found.content_type)
        self.send_header("Content-Length", str(len(found.body)))
        self.end_headers()
        self.wfile.write(found.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing: a scrape is no event."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that leaves is no event."""


def expose(port: int | None, *, host: str = "127.0.0.1") -> int | None:
    """Serve this process's metrics, where a port is set and free.

    Args:
        port: 0 for any that is free; None for none.
        host: the address to listen on.

    Returns:
        The port, None where nothing is served.

    """
    if port is None:
        return None
    try:
        server = _Server((host, port), _Handler)
    except OSError as error:
        _log.warning(
            "No metrics from this process: port %d cannot be taken: %s",
            port,
            error,
            extra={"action": "metrics_port_busy"},
        )
        return None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.server_port
