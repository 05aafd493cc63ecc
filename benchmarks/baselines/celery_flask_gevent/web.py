"""The baseline's web process: ``python -m benchmarks.baselines.celery_flask_gevent.web PORT``.

``POST /tasks {"node": NAME, "inputs": {…}}`` sends the task, ``GET /tasks/ID`` shows state and
result. The Flask app itself is `web:create_app`, for any other WSGI server.
"""
# ruff: noqa: E402 - gevent patches before anything else is imported

from gevent import monkey

monkey.patch_all()

import signal
import socket
import sys
from typing import Any

import gevent
from celery.result import AsyncResult
from celery.states import READY_STATES, SUCCESS
from flask import Flask, Response, jsonify, request
from gevent.pywsgi import WSGIServer

from benchmarks.baselines.celery_flask_gevent.tasks import app as celery

BACKLOG = 1024


def create_app() -> Flask:
    """Return the Flask app."""
    app = Flask("baseline")

    @app.post("/tasks")
    def submit() -> tuple[Response, int]:
        body = request.get_json()
        task = celery.tasks.get(body["node"])
        if task is None:
            return jsonify(error="unknown node"), 422
        # apply_async takes its producer from the app's pool (broker_pool_limit).
        sent = task.apply_async(kwargs=body["inputs"])
        return jsonify(task_id=sent.id, state="PENDING"), 202

    @app.get("/tasks/<task_id>")
    def read(task_id: str) -> Response:
        result = AsyncResult(task_id, app=celery)
        state = result.state  # one GET; what is ready is kept, so `result` costs no second one
        shown: dict[str, Any] = {"task_id": task_id, "state": state}
        if state in READY_STATES:
            shown["result"] = result.result if state == SUCCESS else str(result.result)
        return jsonify(shown)

    return app


def main(port: int) -> None:
    """Serve until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    # pywsgi writes head and body apart and leaves Nagle on: 44 ms per keep-alive request.
    # Accepted sockets inherit this on Linux.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = WSGIServer(listener, create_app(), log=None)
    gevent.signal_handler(signal.SIGTERM, server.stop)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
