"""Celery messages as templates: built once by Celery's own functions, filled in by the scripts.

A message is a wake-up and carries no work: the task's id, the number of this dispatch and the
time. Everything else is in the record, which the claim hands to the worker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kombu import Connection, Exchange, Producer, Queue

from async_nodes.core.priority import LISTS
from async_nodes.storage.keys import Keys

if TYPE_CHECKING:
    from celery import Celery

TASK_NAME = "async_nodes.execute"
DISPATCH_HEADER, AT_HEADER = "an_dispatch", "an_at"
_NUMBERS = ("%DISPATCH%", "%AT%", "%HARD%")


def templates(app: Celery, keys: Keys) -> dict[str, str]:
    """Return one message template per list, as the text that is pushed into Redis.

    The message is published once through kombu's in-memory transport, so that whatever Celery and
    kombu put into a message of this version is in the template too.
    """
    return {name: _template(app, name, keys.queue(name)) for name in LISTS}


def _template(app: Celery, name: str, queue_name: str) -> str:
    hard_limit = "%HARD%" if name.startswith("cpu") else None
    task = app.amqp.as_task_v2(
        "%ID%",
        TASK_NAME,
        args=(),
        kwargs={},
        time_limit=hard_limit,
        soft_time_limit=hard_limit,  # or Celery's default would end a longer attempt early
        ignore_result=True,
        origin="async_nodes",
    )
    headers = {**task.headers, DISPATCH_HEADER: "%DISPATCH%", AT_HEADER: "%AT%"}
    raw = _as_stored(queue_name, task.body, headers, task.properties)
    text = json.dumps(raw, separators=(",", ":"), ensure_ascii=True)
    for number in _NUMBERS:
        text = text.replace(f'"{number}"', number)
    return text


def _as_stored(
    queue_name: str, body: object, headers: dict[str, object], properties: dict[str, object]
) -> dict[str, object]:
    exchange = Exchange(queue_name, "direct")
    queue = Queue(queue_name, exchange, routing_key=queue_name)
    with Connection("memory://") as connection:
        channel = connection.channel()
        bound = queue(channel)
        bound.declare()
        bound.purge()
        producer = Producer(channel, exchange, serializer="json")
        producer.publish(body, routing_key=queue_name, headers=headers, **properties)
        raw: dict[str, object] = channel._get(queue_name)  # noqa: SLF001 - the raw payload
    stored = raw["properties"]
    assert isinstance(stored, dict)  # noqa: S101 - kombu's own shape
    stored["delivery_tag"] = "%ID%:%DISPATCH%"
    return raw
