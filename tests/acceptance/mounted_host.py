"""A host's own apps, which mount ours: started by the tests in processes of their own."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery
from flask import Flask

import async_nodes

celery = Celery("host", include=["async_nodes.execution.include"])
celery.conf.broker_url = celery.conf.result_backend = os.environ["BROKER_URL"]
celery.conf.broker_connection_retry_on_startup = True
celery.conf.broker_transport_options = {"visibility_timeout": 3}


@celery.task(name="host.add", acks_late=True)
def add(first: int, second: int, seconds: float = 0.0) -> int:
    """Be a task of the host's own."""
    time.sleep(seconds)
    return first + second


def web() -> Flask:
    """Return the host's web app."""
    app = Flask("host")
    app.register_blueprint(async_nodes.blueprint(url_prefix="/jobs"))

    @app.get("/")
    def index() -> Any:
        return {"host": True}

    @app.errorhandler(404)
    def missing(_error: Exception) -> Any:
        return {"host": "knows no such page"}, 404

    return app
