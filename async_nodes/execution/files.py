"""Step 3, execute: the files of a worker's bodies, from whichever thread they are asked for.

The shared connection of an I/O worker serves the greenlets of one thread. Bodies of ``async def``
nodes, and what they hand to `asyncio.to_thread`, run in others: they get a connection that native
threads take turns on, made when it is first needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gevent.monkey import get_original

from async_nodes.core.files import FileInfo
from async_nodes.storage.files import Files
from async_nodes.storage.redis_connection import BlockingConnection

if TYPE_CHECKING:
    from async_nodes.settings import Settings
    from async_nodes.storage.redis_store import RedisStore

PATIENCE: float = 10.0
"""Seconds for which a body waits while the store is away, before its attempt fails."""

TIMEOUT = 5.0
_thread_id = get_original("_thread", "get_ident")


class WorkerFiles:
    """Give the files of a tenant.

    Args:
        settings: the limits, and where the store is.
        store: the process's.

    """

    def __init__(self, settings: Settings, store: RedisStore) -> None:
        self._settings = settings
        self._store = store
        self._shared = not isinstance(store.link, BlockingConnection)  # else it is of greenlets
        self._home = (os.getpid(), _thread_id())
        self._beside: RedisStore | None = None

    def __call__(self, tenant: str) -> TenantFiles:
        """Return a tenant's files."""
        return TenantFiles(self, tenant)

    def here(self, tenant: str) -> Files:
        """Return a tenant's files as the calling thread may use them."""
        store = self._store
        if self._shared and (os.getpid(), _thread_id()) != self._home:
            store = self._other()
        return Files(store, tenant, self._settings.file_limits, patience=PATIENCE)

    def _other(self) -> RedisStore:
        if self._beside is None:
            # Two threads at once make two connections, of which one is forgotten: no harm.
            link = BlockingConnection(
                self._settings.store_url, timeout=TIMEOUT, client_name="async-nodes:files"
            )
            self._beside = self._store.beside(link)
        return self._beside


class TenantFiles:
    """Be a tenant's `core.files.Files`, in any thread.

    Args:
        worker: whose connections are used.
        tenant: whose files they are.

    """

    def __init__(self, worker: WorkerFiles, tenant: str) -> None:
        self._worker = worker
        self._tenant = tenant

    def known(self, ids: Sequence[str], *, seconds: float) -> list[FileInfo | None]:
        """Return what the files are, each kept for at least so many seconds from now."""
        return self._worker.here(self._tenant).known(ids, seconds=seconds)

    def chunk(self, info: FileInfo, number: int) -> bytes:
        """Return a chunk of a file, whole."""
        return self._worker.here(self._tenant).chunk(info, number)

    def write(
        self, pieces: Iterable[bytes], *, name: str, media_type: str, seconds: float
    ) -> FileInfo:
        """Keep a new file."""
        files = self._worker.here(self._tenant)
        return files.write(pieces, name=name, media_type=media_type, seconds=seconds)
