"""Step 5, expose: the metrics of one of several web processes, on a listener of its own.

On the port that they share, whichever process has the connection answers for itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

from gevent.pywsgi import WSGIServer

from async_nodes.telemetry.registry import Page


def serve_metrics(listener: socket.socket, page: Callable[[str | None], Page]) -> WSGIServer:
    """Answer ``/metrics`` on a listener; returns at once.

    Args:
        listener: reachable from this machine only.
        page: returns the metrics for what a request accepts.

    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", [("Content-Length", "0")])
            return [b""]
        found = page(environ.get("HTTP_ACCEPT"))
        length = ("Content-Length", str(len(found.body)))
        start_response("200 OK", [("Content-Type", found.content_type), length])
        return [found.body]

    server = WSGIServer(listener, app, log=None)
    server.start()
    return server
