"""Build the Celery app from our settings: for messages in the web node, for work in a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery import Celery
from kombu import Exchange, Queue

from async_nodes.storage.keys import Keys

if TYPE_CHECKING:
    from async_nodes.settings import Settings


def make_app(settings: Settings) -> Celery:
    """Return a Celery app with our queues, which owns no task yet.

    Every list is a queue with a direct exchange of the same name, so that kombu can put back a
    message that a worker did not get to.
    """
    app = Celery("async_nodes", set_as_current=False, fixups=[])
    app.conf.update(dict(settings.celery))
    keys = Keys(settings.key_prefix)
    names = keys.queues
    ledger, index, mutex = keys.ledger
    app.conf.broker_transport_options = {
        **app.conf.broker_transport_options,
        "unacked_key": ledger,
        "unacked_index_key": index,
        "unacked_mutex_key": mutex,
    }
    app.conf.task_queues = [
        Queue(name, Exchange(name, "direct"), routing_key=name) for name in names
    ]
    app.conf.task_default_queue = names[1]
    return app
