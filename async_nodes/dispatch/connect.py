"""Open the store for a process: one place that knows which connection goes with which process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_nodes.dispatch.messages import templates
from async_nodes.storage.commit import DirectCommit
from async_nodes.storage.keys import Keys
from async_nodes.storage.layout import SCHEMA
from async_nodes.storage.redis_connection import BlockingConnection, PipelinedConnection
from async_nodes.storage.redis_store import (
    WEB_PATIENCE,
    WORKER_PATIENCE,
    RedisStore,
    scripts_for,
)

if TYPE_CHECKING:
    from celery import Celery

    from async_nodes.settings import Settings

OPENING_TIMEOUT = 5.0


def open_shared(settings: Settings, app: Celery, *, worker: bool, title: str) -> RedisStore:
    """Return the store of a gevent process: one pipelined connection, group commit.

    Args:
        settings: the process's settings.
        app: the Celery app whose messages are to be sent.
        worker: whether a row is sent until it is answered (a result is not thrown away), or for
            as long as a request may wait.
        title: the connection's name in CLIENT LIST.

    """
    from async_nodes.storage.gathered_reads import GatheredReads
    from async_nodes.storage.group_commit import GroupCommit

    keys = Keys(settings.key_prefix)
    link = PipelinedConnection(settings.store_url, client_name=title)
    schema = settings.write_schema or SCHEMA
    scripts = scripts_for(link, keys, templates(app, keys), schema=schema)
    return RedisStore(
        link=link,
        committer=GroupCommit(link, scripts, keys.base),
        keys=keys,
        scripts=scripts,
        lease_seconds=settings.lease_seconds,
        patience=WORKER_PATIENCE if worker else WEB_PATIENCE,
        reads=GatheredReads(link),
    )


def open_blocking(
    settings: Settings, app: Celery, *, title: str, patience: float = WORKER_PATIENCE
) -> RedisStore:
    """Return the store of a native thread, a forked child or a command: one plain connection."""
    keys = Keys(settings.key_prefix)
    link = BlockingConnection(settings.store_url, timeout=OPENING_TIMEOUT, client_name=title)
    schema = settings.write_schema or SCHEMA
    scripts = scripts_for(link, keys, templates(app, keys), schema=schema)
    return RedisStore(
        link=link,
        committer=DirectCommit(link, scripts, keys.base),
        keys=keys,
        scripts=scripts,
        lease_seconds=settings.lease_seconds,
        patience=patience,
    )
