"""The web process for tests, a real one, and the worker's side by hand."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from async_nodes.core.ports import Claim, Ending
from async_nodes.core.states import EventType
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.settings import Settings
from async_nodes.storage.redis_store import RedisStore
from tests.servers import RedisServer

ROOT = Path(__file__).parents[2]
WORKER = "io-1-deadbeef"
MAIN = """
from gevent import monkey; monkey.patch_all()
import os, sys
from async_nodes.access.serving.server import serve
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings
try:
    sys.exit(serve(Settings.load(os.environ), on_ready=lambda _, port: print(port, flush=True)))
except AsyncNodesError as error:
    sys.exit(f"{error.code}: {error.detail}")
"""
_fences = count(1)


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers by lower-case name, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body as strict JSON."""
        return json.loads(self.body, parse_constant=lambda word: 1 / 0 if word else None)

    @property
    def code(self) -> str:
        """Return a problem's code, after checking that it is one."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status
        assert problem["type"] == f"/problems/{problem['code']}"
        return str(problem["code"])


class Web:
    """A web process and a client for it.

    Args:
        url: where Redis is, or will be.
        environ: further settings.

    """

    def __init__(self, url: str, log: Path, **environ: str) -> None:
        self._log = log
        base = {k: v for k, v in os.environ.items() if not k.startswith(("ASYNC_NODES", "CELERY"))}
        self._environ = {
            **base, "ASYNC_NODES_REDIS_URL": url, "ASYNC_NODES_PORT": "0",
            "ASYNC_NODES_SHUTDOWN_SECONDS": "5", "PYTHONPATH": str(ROOT), **environ,
        }  # fmt: skip
        self.process: subprocess.Popen[str] | None = None
        self.port = 0

    def start(self) -> None:
        """Start and wait until it listens."""
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", MAIN], env=self._environ, stdout=subprocess.PIPE,
                stderr=log, text=True, cwd=ROOT,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log
        self.port = int(line)

    def run(self) -> tuple[int, str]:
        """Return exit status and error text of a process that is expected to end by itself."""
        done = subprocess.run(
            [sys.executable, "-c", MAIN], env=self._environ, capture_output=True, text=True,
            timeout=20, cwd=ROOT, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the process and return its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(20)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    @property
    def log(self) -> str:
        """Return what the process has logged."""
        return self._log.read_text(encoding="utf-8")

    def connect(self, timeout: float = 15) -> http.client.HTTPConnection:
        """Return a connection of one's own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request on a new connection; ``_`` in a header's name is ``-``."""
        connection = self.connect()
        try:
            return ask(connection, method, path, body, **headers)
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Send a GET."""
        return self.ask("GET", path, None, **headers)

    def submit(self, members: Any = None, query: str = "", **headers: str) -> Answer:
        """Send a POST /v1/tasks."""
        raw = json.dumps({"node": "echo"} if members is None else members).encode()
        return self.ask(
            "POST", f"/v1/tasks{query}", raw, content_type="application/json", **headers
        )

    def task(self, **members: Any) -> str:
        """Submit a task and return its id."""
        answer = self.submit({"node": "echo", **members})
        assert answer.status == 202, answer
        return str(answer.json["task_id"])

    def cancel(self, task_id: str, query: str = "", **headers: str) -> Answer:
        """Send a POST …/cancel."""
        return self.ask("POST", f"/v1/tasks/{task_id}/cancel{query}", None, **headers)


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None = None,
    **headers: str,
) -> Answer:
    """Send one request and read its answer."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, sent)
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, found, response.read())


class Hand:
    """The worker's side, by hand: claims and ends tasks."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        store.register(WORKER)

    def claim(self, task_id: str) -> Claim:
        """Start a task."""
        document = self.store.read(task_id)
        assert document is not None
        fence = f"{next(_fences):016d}"
        claim = self.store.claim(task_id, document.dispatch, worker=WORKER, fence=fence)
        assert isinstance(claim, Claim), claim
        return claim

    def finish(
        self, claim: Claim, event: EventType = EventType.COMPLETE, output: bytes = b'{"ok":1}'
    ) -> None:
        """End an attempt."""
        error = b'{"code":"node_failed","type":"E","message":"m","retryable":false}'
        failed = event is not EventType.COMPLETE
        ending = Ending(event=event, error=error) if failed else Ending(event=event, output=output)
        assert self.store.finish(claim.task_id, claim.fence, ending).applied

    def done(self, task_id: str) -> None:
        """Start and end a task."""
        self.finish(self.claim(task_id))


@pytest.fixture
def hand(one_server: RedisServer) -> Iterator[Hand]:
    """Return the worker's side of the shared server."""
    settings = Settings(redis_url=one_server.url)
    store = open_blocking(settings, make_app(settings), title="hand")
    yield Hand(store)
    store.link.close()


@pytest.fixture(scope="module")
def _web_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web") / "log"


@pytest.fixture(scope="module")
def _web_process() -> Iterator[dict[str, Web]]:
    kept: dict[str, Web] = {}
    yield kept
    for web in kept.values():
        assert web.stop() == 0, web.log


@pytest.fixture
def web(one_server: RedisServer, _web_process: dict[str, Web], _web_log: Path) -> Web:
    """Return a web process over the shared, emptied server; one per test module."""
    if one_server.url not in _web_process:
        started = Web(one_server.url, _web_log)
        started.start()
        _web_process[one_server.url] = started
    found = _web_process[one_server.url]
    wait_until(lambda: found.get("/readyz").json["checks"]["store"]["ok"])
    return found


def wait_until(test: Any, seconds: float = 10) -> None:
    """Wait until a test holds."""
    until = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.02)
