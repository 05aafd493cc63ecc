"""One process that the supervisor keeps running: a program of ours, or the embedded store."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from async_nodes.embedded import lifeline
from async_nodes.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Lines kept of each process, to be shown when it gives up.
TAIL_LINES = 12
_LONGEST_LINE = 16_384
_READ = 65_536
#: A store that another process owns is asked for a sign of life this often.
_ASK_EVERY = 1.0
_REDIS_SECONDS = 10.0


class Service(Protocol):
    """What the supervisor needs of a process.

    Attributes:
        name: what people call it.
        stage: lower stages are stopped, and over, before higher ones.
        patience: seconds it may take to stop.
        pid: its process id while it runs.

    """

    name: str
    stage: int
    patience: float

    @property
    def pid(self) -> int | None:
        """Return the process id, None while it does not run."""

    def start(self) -> None:
        """Start it."""

    def poll(self) -> int | None:
        """Return how it ended (negative: by that signal), None while it runs."""

    def terminate(self) -> None:
        """Ask it to end what it is doing and stop."""

    def kill(self) -> None:
        """End it at once."""

    def output(self) -> int | None:
        """Return the descriptor of what it writes, None when there is none to read."""

    def lines(self) -> list[str]:
        """Return the lines it has written since the last call."""

    def tail(self) -> list[str]:
        """Return the last lines it wrote."""


class ProgramService:
    """A program whose output is ours to read and which ends when we end, even by SIGKILL.

    Args:
        name, stage, patience: see `Service`.
        argv: the program and its arguments.
        environ: called at each start, because the store's address is not known before.

    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        stage: int,
        environ: Callable[[], Mapping[str, str]],
        patience: float = 5.0,
    ) -> None:
        self.name = name
        self.stage = stage
        self.patience = patience
        self._argv = list(argv)
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @property
    def pid(self) -> int | None:
        """Return the process id."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start it with an output of its own.

        Raises:
            OSError: it cannot be started.

        """
        self.close()
        self._process = lifeline.popen(
            self._argv,
            env=self._environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        descriptor = self.output()
        if descriptor is not None:
            os.set_blocking(descriptor, False)

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        return 0 if self._process is None else self._process.poll()

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL and take the status."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def output(self) -> int | None:
        """Return the read end of its stdout and stderr."""
        stdout = self._process.stdout if self._process is not None else None
        return stdout.fileno() if stdout is not None and not stdout.closed else None

    def lines(self) -> list[str]:
        """Read what is there, without waiting; an unfinished line stays for the next call."""
        descriptor = self.output()
        if descriptor is None:
            return []
        try:
            piece = os.read(descriptor, _READ)
        except BlockingIOError:
            return []
        if not piece:
            self.close()
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if self._rest and (not piece or len(self._rest) > _LONGEST_LINE):
            whole.append(self._rest)
            self._rest = b""
        found = [line.decode("utf-8", "replace").rstrip("\r") for line in whole]
        self._tail.extend(line for line in found if line.strip())
        return found

    def tail(self) -> list[str]:
        """Return the last lines that were not blank."""
        return list(self._tail)

    def close(self) -> None:
        """Close our end of its output."""
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()


class StoreService:
    """The embedded store, owned by us or shared with the process that started it."""

    name = "redis"
    patience = _REDIS_SECONDS

    def __init__(self, data_dir: str, *, stage: int) -> None:
        self.stage = stage
        self._server = EmbeddedServer(data_dir)
        self._asked_at = 0.0
        self._runs = False
        self._killed = False

    @property
    def url(self) -> str:
        """Return the address, which stays the same over restarts."""
        return self._server.url

    @property
    def pid(self) -> int | None:
        """Return the server's process id."""
        return self._server.pid

    @property
    def is_shared(self) -> bool:
        """Tell whether another process started the server and will end it."""
        return self._server.pid is not None and not self._server.is_owner

    def start(self) -> None:
        """Make it answer; raises what `EmbeddedServer.start` raises."""
        self._server.start()
        self._runs = True
        self._asked_at = time.monotonic()

    def poll(self) -> int | None:
        """Return None while it runs; the status of a server is not ours to know, so SIGKILL."""
        if self._runs and (self._server.is_owner or self._is_due()):
            self._runs = self._server.is_running()
        return None if self._runs else -signal.SIGKILL

    def terminate(self) -> None:
        """Stop a server of ours and wait for it; let a shared one go."""
        self._server.stop(timeout=self.patience)
        self._runs = False

    def kill(self) -> None:
        """Stop it with little patience: its data is safe either way."""
        self._server.stop(timeout=1.0)
        self._runs = False

    def output(self) -> None:
        """Return nothing: the server has a log file of its own."""

    def lines(self) -> list[str]:
        """Return nothing, see `output`."""
        return []

    def tail(self) -> list[str]:
        """Return nothing: what goes wrong at its start is in the error."""
        return []

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._asked_at < _ASK_EVERY:
            return False
        self._asked_at = now
        return True
