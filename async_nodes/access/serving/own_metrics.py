"""Step 5, expose: the metrics of one of several web processes, on a listener of its own.

On the port that they share, whichever process has the connection answers for itself.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

from gevent.pywsgi import WSGIServer

from async_nodes.telemetry import metrics


def serve_metrics(listener: socket.socket, exposition: Callable[[], bytes]) -> WSGIServer:
    """Answer ``/metrics`` on a listener; returns at once.

    Args:
        listener: reachable from this machine only.
        exposition: the metrics as text.

    """

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != "/metrics":
            start_response("404 Not Found", [("Content-Length", "0")])
            return [b""]
        text = exposition()
        length = ("Content-Length", str(len(text)))
        start_response("200 OK", [("Content-Type", metrics.CONTENT_TYPE), length])
        return [text]

    server = WSGIServer(listener, app, log=None)
    server.start()
    return server
