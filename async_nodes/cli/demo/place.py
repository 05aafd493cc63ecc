"""Where the demo runs: a store, a port and names of its own, so that it disturbs nothing."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from async_nodes.cli.address import free_port, refuse_busy_port
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from async_nodes.settings import Settings

NODES = "async_nodes.testing.nodes"
_ASK_SECONDS = 2.0


@contextlib.contextmanager
def private_store(settings: Settings) -> Iterator[Settings]:
    """Give the demo a store that nobody else uses, and leave nothing behind.

    Without a server chosen it is an embedded one over a temporary directory. On a chosen server it
    is a key prefix of its own, whose keys are deleted at the end; Celery's own, which expire, stay.
    """
    if settings.redis_url is not None:
        demo = replace(settings, key_prefix=f"an-demo-{secrets.token_hex(4)}")
        try:
            yield demo
        finally:
            delete_keys(demo)
        return
    chosen = os.environ.get("ASYNC_NODES_DATA_DIR")
    if chosen:
        Path(settings.data_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
    parent = settings.data_dir if chosen else None
    with tempfile.TemporaryDirectory(prefix="async-nodes-demo-", dir=parent) as directory:
        yield replace(settings, data_dir=directory)


def delete_keys(settings: Settings) -> None:
    """Delete every key below the settings' prefix; a server that has gone is left alone."""
    import redis

    from async_nodes.storage import redis_client

    prefix = settings.key_prefix
    client = redis_client.client(settings.store_url, timeout=_ASK_SECONDS)
    patterns = (f"{prefix}:*", f"{prefix}.*", f"_kombu.binding*.{prefix}.*")
    with contextlib.suppress(redis.RedisError, OSError), contextlib.closing(client):
        for pattern in patterns:
            for key in client.scan_iter(match=pattern, count=500):
                client.unlink(key)


def choose_port(host: str, settings: Settings, asked: int | None) -> int:
    """Return the port to listen on: the one asked for, else the usual one, else any free one.

    Raises:
        AsyncNodesError: ``port_busy`` when a port was asked for by name.

    """
    port = settings.port if asked is None else asked
    if port == 0:
        return free_port(host)
    try:
        refuse_busy_port(host, port)
    except AsyncNodesError as error:
        by_name = asked is not None or bool(os.environ.get("ASYNC_NODES_PORT"))
        if by_name or error.code != "port_busy":
            raise
        return free_port(host)
    return port


def environ_for(settings: Settings, model: str) -> dict[str, str]:
    """Return what the demo's processes are told beyond the settings.

    Args:
        settings: of the demo.
        model: ``host:port`` of the simulated model.

    """
    imports = [*settings.imports, *([] if NODES in settings.imports else [NODES])]
    return {
        "ASYNC_NODES_IMPORTS": ",".join(imports),
        "ASYNC_NODES_EGRESS_ALLOW": ",".join([*settings.egress_allow, model]),
        "ASYNC_NODES_KEY_PREFIX": settings.key_prefix,
    }
