"""The web process of the libraries without asyncio: Flask on gevent's WSGI server.

Import it before anything else: it patches. The same front as that of ``celery_flask_gevent``:
``POST /tasks {"node": NAME, "inputs": {…}}`` submits, ``GET /tasks/ID`` shows state and result.
"""
# ruff: noqa: E402 - gevent patches before anything else is imported

from gevent import monkey

monkey.patch_all()

import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import gevent
from flask import Flask, Response, jsonify, request
from gevent.pywsgi import WSGIServer

BACKLOG: Final = 1024

Submit = Callable[[dict[str, Any]], str]
"""Sends a task with these inputs and returns its id."""

Read = Callable[[str], tuple[str, Any]]
"""Returns a task's state (PENDING, SUCCESS, FAILURE) and its result."""


def create_app(submits: Mapping[str, Submit], read: Read) -> Flask:
    """Return the Flask app for these tasks by name."""
    app = Flask("baseline")

    @app.post("/tasks")
    def submit() -> tuple[Response, int]:
        body = request.get_json()
        send = submits.get(body["node"])
        if send is None:
            return jsonify(error="unknown node"), 422
        return jsonify(task_id=send(body["inputs"]), state="PENDING"), 202

    @app.get("/tasks/<task_id>")
    def show(task_id: str) -> Response:
        state, result = read(task_id)
        shown: dict[str, Any] = {"task_id": task_id, "state": state}
        if state != "PENDING":
            shown["result"] = result
        return jsonify(shown)

    return app


def serve(submits: Mapping[str, Submit], read: Read) -> None:
    """Serve on the port that the command line names, until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=BACKLOG)
    # pywsgi writes head and body apart; with Nagle's delay each keep-alive request takes 44 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = WSGIServer(listener, create_app(submits, read), log=None)
    gevent.signal_handler(signal.SIGTERM, server.stop)
    server.serve_forever()
