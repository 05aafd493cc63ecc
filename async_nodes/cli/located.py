"""Find the store that a command on its own is meant to use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from async_nodes.settings import Settings

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_ASK_SECONDS = 1.0


def load() -> Settings:
    """Return the settings, with the address of the embedded store where that is the one meant.

    Nobody chose a server and an embedded one runs on the data directory: then it is that one. The
    address is put into the environment as well, for the processes this one starts.
    """
    return locate(Settings.load(), os.environ)


def locate(settings: Settings, environ: MutableMapping[str, str]) -> Settings:
    """Return ``settings`` with the embedded store's address if it is needed and there."""
    if settings.redis_url is not None:
        return settings
    url = embedded_url(settings.data_dir)
    if url is None:
        return settings
    environ["ASYNC_NODES_REDIS_URL"] = url
    return settings.with_redis_url(url)


def embedded_url(data_dir: str) -> str | None:
    """Return the address of the store that runs on ``data_dir``, None when none answers."""
    from async_nodes.embedded.directory import DataDirectory

    owner = DataDirectory(data_dir).read_owner()
    if owner is None or not _answers(owner.socket, owner.pid):
        return None
    return f"unix://{quote(owner.socket)}?db=0"


def _answers(socket: str, pid: int) -> bool:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client = redis.Redis(
        unix_socket_path=socket, socket_timeout=_ASK_SECONDS, retry=Retry(NoBackoff(), 0)
    )
    try:
        return bool(client.info("server")["process_id"] == pid)
    except (redis.RedisError, OSError, KeyError):
        return False
    finally:
        client.close()
