"""A Celery app that knows nothing of async_nodes: it takes our messages and says what it saw.

Started by test_celery_messages.py as ``celery -A tests.contract.stock_celery_app worker``.
"""

import json
import os
from typing import Any

from celery import Celery
from kombu import Queue

BROKER = os.environ["TEST_BROKER"]
app = Celery("stock", broker=BROKER, backend=BROKER)
app.conf.task_queues = [Queue("an.io.default"), Queue("an.cpu.high"), Queue("stock")]
app.conf.task_default_queue = "stock"
app.conf.worker_hijack_root_logger = False


@app.task(bind=True, name="async_nodes.execute")
def execute(self: Any) -> None:
    """Write down what Celery shows a task of its message."""
    seen = {
        "id": self.request.id,
        "task": self.name,
        "args": self.request.args,
        "kwargs": self.request.kwargs,
        "headers": self.request.headers,
        "an_dispatch": self.request.an_dispatch,
        "an_at": self.request.an_at,
        "timelimit": self.request.timelimit,
        "ignore_result": self.request.ignore_result,
        "reply_to": self.request.reply_to,
        "delivery_info": self.request.delivery_info,
        "root_id": self.request.root_id,
    }
    self.app.backend.client.rpush("seen", json.dumps(seen, default=str))


@app.task(name="stock.add")
def add(x: int, y: int) -> int:
    """Add: an ordinary task beside ours."""
    return x + y


@app.task(name="stock.fail")
def fail() -> None:
    """Fail: an ordinary failing task."""
    raise ValueError("stock failure")
