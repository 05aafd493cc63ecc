"""Start what is measured, count its CPU, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

ROOT: Final = Path(__file__).resolve().parents[1]
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 10.0
LOG_LINES: Final = 30
TICKS: Final = os.sysconf("SC_CLK_TCK")


class BenchmarkError(Exception):
    """Say in one sentence why a benchmark cannot go on."""


class Processes:
    """Own the child processes of one benchmark and the folder they write to.

    Args:
        folder: for logs and data; the caller removes it.

    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in the checkout, with its output in ``NAME.log``.

        Args:
            name: how messages call it.
            argv: the program and its arguments.
            environment: variables besides those of this process; ours and Celery's names are
                taken out of those first, so that a developer's own settings steer nothing.

        """
        with self._log(name).open("wb") as log:
            process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env={**clean_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._running.append((name, process))
        return process

    def wait_for(self, what: str, is_ready: Callable[[], bool]) -> None:
        """Return as soon as ``is_ready()``.

        Raises:
            BenchmarkError: a process ended, or `READY_SECONDS` passed; with the end of the logs.

        """
        end = time.monotonic() + READY_SECONDS
        while not is_ready():
            self.check()
            if time.monotonic() > end:
                logs = "".join(self._tail(name) for name, _ in self._running)
                raise BenchmarkError(f"{what} was not ready in {READY_SECONDS:.0f} s{logs}")
            time.sleep(0.05)

    def check(self) -> None:
        """Do nothing while every process lives.

        Raises:
            BenchmarkError: one ended.

        """
        for name, process in self._running:
            if process.poll() is not None:
                raise BenchmarkError(f"{name} ended: {process.returncode}{self._tail(name)}")

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process and its descendants by SIGKILL, at once, and own it no more."""
        for pid in reversed(_family(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self._running = [each for each in self._running if each[1] is not process]

    def stop(self) -> None:
        """End every process, the last started first: SIGTERM, and SIGKILL for who stays."""
        for _, process in reversed(self._running):
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()

    def _log(self, name: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}.log"

    def _tail(self, name: str) -> str:
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "".join(f"\n  {name}: {line}" for line in lines[-LOG_LINES:])


@contextmanager
def processes() -> Iterator[Processes]:
    """Yield `Processes`, and stop them however the block is left, SIGTERM included."""
    before = signal.signal(signal.SIGTERM, _leave)
    folder = Path(tempfile.mkdtemp(prefix="an-bench-"))
    owned = Processes(folder)
    try:
        yield owned
    finally:
        owned.stop()
        shutil.rmtree(folder, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


def clean_environment() -> dict[str, str]:
    """Return the environment without what would steer a side."""
    ours = ("ASYNC_NODES_", "CELERY_", "BASELINE_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Tell whether something listens on this port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def redis_program() -> str:
    """Return the server both sides use: ``redis-server`` of PATH, else the embedded one.

    Raises:
        BenchmarkError: there is none.

    """
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        from async_nodes.embedded.binary import find_binary

        found = str(find_binary().path)
    return found


def start_redis(owned: Processes, name: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start a Redis of its own with an append-only file synced each second.

    Returns:
        The process and its port.

    """
    port, folder = free_port(), owned.folder / name.replace(" ", "-")
    folder.mkdir()
    argv = [redis_program(), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    argv += ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
    process = owned.start(name, argv)
    owned.wait_for(name, lambda: answers(port))
    return process, port


# -- CPU -------------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """Return user + system time of a process and of all its descendants, living or waited for.

    Read from ``/proc/PID/stat``; the resolution is that of the kernel's clock ticks (10 ms).
    """
    return sum(_own_seconds(each) for each in _family(pid))


def _own_seconds(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:  # it ended meanwhile: its parent has its time
        return 0.0
    # The name in parentheses may hold anything; utime stime cutime cstime are fields 14 to 17.
    fields = text.rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


def _family(pid: int) -> list[int]:
    family = [pid]
    for each in family:  # grows while it is walked
        for listing in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                family += [int(child) for child in listing.read_text(encoding="utf-8").split()]
            except OSError:
                continue
    return family
