"""The baseline's Celery app and its task. README.md beside it gives the reason of each setting."""

from __future__ import annotations

import os
from typing import Any, Final

from celery import Celery

from benchmarks.baselines import jobs

REDIS: Final = os.environ["BASELINE_REDIS_URL"]
"""``redis://HOST:PORT``: broker in database 0, results in database 1."""

CONCURRENCY: Final = int(os.environ.get("BASELINE_CONCURRENCY", "300"))
CONNECTIONS: Final = CONCURRENCY + 20

app = Celery("baseline", broker=f"{REDIS}/0", backend=f"{REDIS}/1")
app.conf.update(
    task_serializer="json",
    result_serializer="json",
    accept_content=["json"],
    # One backend per process instead of one, with a connection, per greenlet.
    result_backend_thread_safe=True,
    redis_max_connections=CONNECTIONS,
    broker_transport_options={"max_connections": CONNECTIONS},
    # Web side: as many pooled producers as there are requests at once.
    broker_pool_limit=CONNECTIONS,
    broker_connection_retry_on_startup=True,
    worker_prefetch_multiplier=4,
    worker_send_task_events=False,
    task_send_sent_event=False,
    task_track_started=False,
    # Celery's default, and the cheaper way: a message is done with when it was received.
    task_acks_late=False,
    result_expires=3600,
)


@app.task(name="echo")  # type: ignore[untyped-decorator] # Celery ships no annotations
def echo(**inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return inputs


@app.task(name="nap")  # type: ignore[untyped-decorator]
def nap(seconds: float, path: str, n: int) -> dict[str, Any]:
    """Sleep, and note the number in a file: what a kill did to a task shows there."""
    return jobs.nap(seconds=seconds, path=path, n=n)
