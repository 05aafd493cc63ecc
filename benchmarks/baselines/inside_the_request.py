"""An answer made inside the request; run as a module, with its own port and the model's.

``POST /answer {inputs of rag.answer}`` runs the very same node in the handler of the request and
answers when it is done. So many handlers run at once as a pool of threads would have; each is a
greenlet, which costs less.
"""
# ruff: noqa: E402 - gevent patches before anything else is imported

from gevent import monkey

monkey.patch_all()

import signal
import socket
import sys
from typing import Final

import gevent
from flask import Flask, Response, jsonify, request
from gevent.lock import BoundedSemaphore
from gevent.pywsgi import WSGIServer

from async_nodes.core.errors import AsyncNodesError
from async_nodes.testing import run_node

HANDLERS: Final = 19
"""What the specification's 24 requests/s at 790 ms each keep in flight."""

BACKLOG: Final = 1024


def create_app(model: str) -> Flask:
    """Return the Flask app; ``model`` is the model's ``host:port``."""
    app = Flask("inside_the_request")
    handlers = BoundedSemaphore(HANDLERS)

    @app.post("/answer")
    def answer() -> tuple[Response, int]:
        inputs = request.get_json()
        try:
            with handlers:
                done = run_node("rag.answer", inputs, allow=frozenset({model}))
        except AsyncNodesError as error:
            return jsonify(error=error.code), 502
        return jsonify(done.output), 200

    return app


def main(port: int, model: int) -> None:
    """Serve until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = WSGIServer(listener, create_app(f"127.0.0.1:{model}"), log=None)
    gevent.signal_handler(signal.SIGTERM, server.stop)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
