"""Open the store for a process: one place that knows which connection goes with which process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_nodes.dispatch.messages import templates
from async_nodes.storage.commit import Committer, DirectCommit
from async_nodes.storage.keys import Keys
from async_nodes.storage.layout import SCHEMA
from async_nodes.storage.redis_connection import (
    BlockingConnection,
    PipelinedConnection,
    StoreUnavailable,
)
from async_nodes.storage.redis_store import (
    WEB_PATIENCE,
    WORKER_PATIENCE,
    RedisStore,
    scripts_for,
)

if TYPE_CHECKING:
    from celery import Celery

    from async_nodes.settings import Settings
    from async_nodes.storage.commit import Link
    from async_nodes.storage.gathered_reads import GatheredReads
    from async_nodes.storage.pooled import PooledConnection
    from async_nodes.storage.replicated import ReplicatedLink

OPENING_TIMEOUT = 5.0


def open_shared(settings: Settings, app: Celery, *, worker: bool, title: str) -> RedisStore:
    """Return the store of a gevent process, with group commit.

    Args:
        settings: the process's settings.
        app: the Celery app whose messages are to be sent.
        worker: whether a row is sent until it is answered (a result is not thrown away), or for
            as long as a request may wait.
        title: the connection's name in CLIENT LIST.

    """
    from async_nodes.storage.group_commit import GroupCommit
    from async_nodes.storage.pooled import WAIT
    from async_nodes.storage.replicated import SubmitsApart

    keys = Keys(settings.key_prefix)
    link, reads, patience = _shared_link(settings, title)
    schema = settings.write_schema or SCHEMA
    scripts = scripts_for(link, keys, templates(app, keys), schema=schema)
    # Where connections are few, a row waits for its turn no longer than for a connection.
    least_left = 0.0 if settings.redis_max_connections is None else patience - WAIT
    committer: Committer = GroupCommit(link, scripts, keys.base, least_left=least_left)
    if settings.redis_wait_replicas is not None:
        held = _replicated_link(settings, link, title, mark=keys.mark)
        committer = SubmitsApart(GroupCommit(held, scripts, keys.base), committer)
    return RedisStore(
        link=link,
        committer=committer,
        keys=keys,
        scripts=scripts,
        lease_seconds=settings.lease_seconds,
        patience=WORKER_PATIENCE if worker else patience,
        reads=reads,
    )


def _shared_link(
    settings: Settings, title: str
) -> tuple[PipelinedConnection | PooledConnection, GatheredReads, float]:
    """Return what greenlets send their commands by, what reads for them, and a request's patience.

    One connection that all share; or, where the setting bounds them, a few that each command has
    to itself.
    """
    from async_nodes.storage.gathered_reads import GatheredReads
    from async_nodes.storage.paced_reads import PacedReads
    from async_nodes.storage.pooled import TIMEOUT, PooledConnection

    size = settings.redis_max_connections
    if size is None:
        link = PipelinedConnection(settings.store_url, client_name=title)
        return link, GatheredReads(link), WEB_PATIENCE
    pool = PooledConnection(settings.store_url, size=size, client_name=title)
    try:
        # To connect takes more round trips than a request may wait for.
        pool.call("PING", timeout=OPENING_TIMEOUT)
    except StoreUnavailable:
        pool.close()
        raise
    # Where there are several, one is left to what is written.
    return pool, PacedReads(pool, max(size - 1, 1)), TIMEOUT


def _replicated_link(settings: Settings, beside: Link, title: str, *, mark: str) -> ReplicatedLink:
    from async_nodes.storage.pooled import PooledConnection
    from async_nodes.storage.replicated import ReplicatedLink

    alone = PooledConnection(
        settings.store_url, size=1, timeout=WEB_PATIENCE, client_name=f"{title}-submits"
    )
    return ReplicatedLink(
        alone,
        replicas=settings.redis_wait_replicas or 0,
        seconds=settings.redis_wait_seconds,
        beside=beside,
        mark=mark,
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
