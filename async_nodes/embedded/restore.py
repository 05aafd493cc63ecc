"""Put a backup into the data directory of an embedded server.

A server with an append-only file does not look at a snapshot. So it is started once without one,
reads the snapshot, and then writes its append-only file from what it holds.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Final

import redis

from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded.directory import DataDirectory
from async_nodes.embedded.server import EmbeddedServer

READY_SECONDS: Final = 600.0
_LOOK: Final = 0.05
_SNAPSHOT: Final = "restore.rdb"


def restore(snapshot: Path, data_dir: str | Path) -> int:
    """Load a snapshot into a directory without data and return how many keys it has.

    Args:
        snapshot: a file that `storage.snapshot.take` has written.
        data_dir: the product's data directory, of no running server.

    Raises:
        AsyncNodesError: ``data_dir_busy``: a server runs there, or there is data already;
            ``redis_failed``: the snapshot cannot be read.

    """
    directory = DataDirectory(data_dir)
    data = directory.path / "appendonlydir"
    if data.exists():
        raise AsyncNodesError(
            "data_dir_busy",
            f"there is data in {data}: move it away, or set ASYNC_NODES_DATA_DIR to another place",
        )
    directory.prepare()
    copy = directory.path / _SNAPSHOT
    config = {"appendonly": "no", "dbfilename": _SNAPSHOT}
    server = EmbeddedServer(data_dir, config=config, ready_timeout=READY_SECONDS)
    try:
        shutil.copyfile(snapshot, copy)
        server.start()
        _refuse_shared(server, directory.path)
        with redis.Redis.from_url(server.url) as client:
            _write_append_only_file(client)
            return int(client.dbsize())
    except BaseException:
        server.stop()
        shutil.rmtree(data, ignore_errors=True)  # half of a backup must not be taken for all of it
        raise
    finally:
        server.stop()
        copy.unlink(missing_ok=True)


def _refuse_shared(server: EmbeddedServer, path: Path) -> None:
    if not server.is_owner:
        raise AsyncNodesError("data_dir_busy", f"a server runs on {path}")


def _write_append_only_file(client: redis.Redis) -> None:
    client.config_set("appendonly", "yes")
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until:
        info = client.info("persistence")
        if info["aof_last_bgrewrite_status"] != "ok":
            break
        if not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"]):
            return
        time.sleep(_LOOK)
    raise AsyncNodesError("redis_failed", "the append-only file could not be written")
