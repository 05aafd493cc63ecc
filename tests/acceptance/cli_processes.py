"""Start the command line as its users do, and look at the processes it leaves in the system."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CLI = (sys.executable, "-m", "async_nodes.cli")
TITLES = ("async-nodes web", "async-nodes worker io", "async-nodes worker cpu", "async-nodes redis")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def environ(**more: str) -> dict[str, str]:
    """Return an environment without anybody's settings."""
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "LANG": "C.UTF-8"}
    return {**kept, **more}


class Program:
    """A command line that runs, with the lines it has written.

    Attributes:
        process: the process.
        lines: what it wrote so far.

    """

    def __init__(self, *arguments: str, env: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [*CLI, *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in iter(self.process.stdout.readline, ""))

    @property
    def text(self) -> str:
        """Return what it wrote."""
        return "\n".join(self.lines)

    def wait_for(self, words: str, seconds: float = 30.0) -> None:
        """Wait until it has written something."""
        until(lambda: words in self.text, seconds, lambda: self.text)

    def children(self) -> dict[int, str]:
        """Return its descendants by pid, each with its title."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            pid = int(folder.name)
            if self.process.pid in ancestors(pid):
                found[pid] = title(pid)
        return found

    def child(self, wanted: str) -> int:
        """Return the pid of the one descendant with a title."""
        return next(pid for pid, shown in self.children().items() if shown == wanted)

    def stop(self, number: int = signal.SIGINT, seconds: float = 20.0) -> int:
        """Send a signal and return the status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.end(seconds)

    def end(self, seconds: float = 30.0) -> int:
        """Wait for its end and return the status."""
        status = self.process.wait(seconds)
        self._reader.join(seconds)
        return status

    def close(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.end()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def program(*arguments: str, env: Mapping[str, str]) -> Iterator[Program]:
    """Run a command line for as long as the block, and nothing of it beyond."""
    running = Program(*arguments, env=env)
    try:
        yield running
    finally:
        children = list(running.children())
        running.close()
        until(lambda: not any(map(is_alive, children)), 15.0, lambda: f"left: {children}")


def command(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command line to its end."""
    return subprocess.run(
        [*CLI, *arguments],
        env=dict(env),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def until(
    holds: Callable[[], bool], seconds: float, otherwise: Callable[[], str] = lambda: ""
) -> float:
    """Wait until something holds and return how long that took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < seconds, otherwise()
        time.sleep(0.02)
    return time.monotonic() - began


def get(url: str) -> tuple[int, Any]:
    """Return the status and the JSON of an answer, 0 when there is none."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - ours
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None
    except OSError:
        return 0, None


def is_ready(port: int) -> bool:
    return get(f"http://127.0.0.1:{port}/readyz")[0] == 200


def title(pid: int) -> str:
    """Return what ps shows of a process, empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def ancestors(pid: int) -> set[int]:
    """Return the pids a process descends from."""
    found: set[int] = set()
    while pid > 1:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return found
        pid = int(fields[1])
        found.add(pid)
    return found


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
