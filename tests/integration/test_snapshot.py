"""A snapshot over the network: whole, whichever way the server sends it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from async_nodes.embedded.restore import restore
from async_nodes.storage.snapshot import take
from tests.servers import RedisServer, on_servers


@pytest.mark.parametrize("redis_server", on_servers(), indirect=True)
def test_a_snapshot_is_whole_while_writes_go_on(redis_server: RedisServer, tmp_path: Path) -> None:
    """With the length said beforehand or not; what is written meanwhile is not in it."""
    with redis_server.client() as client:
        client.config_set("repl-diskless-sync-delay", 0)
        for number in range(2_000):
            client.set(f"key:{number}", json.dumps([number] * 50))
        sizes = {}
        for diskless in ("yes", "no"):
            client.config_set("repl-diskless-sync", diskless)
            seen: list[tuple[int, int | None]] = []
            path = tmp_path / f"{diskless}.rdb"
            sizes[diskless] = take(
                redis_server.url, path, lambda done, whole, seen=seen: seen.append((done, whole))
            )
            assert path.stat().st_size == sizes[diskless] == seen[-1][0]
            # Valkey sends a small snapshot without its length either way.
            known = diskless == "no" and redis_server.name == "redis-server"
            assert seen[-1][1] == (sizes[diskless] if known else None)
            client.set("later", diskless)
    assert restore(tmp_path / "no.rdb", tmp_path / diskless) == 2_001
    assert not list(tmp_path.glob(".*"))
