"""One web process as the one that looks after it sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from async_nodes.access.serving.inherited import Inherited
from async_nodes.embedded import lifeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from async_nodes.settings import Settings


def command_line(settings: Settings, *, fast_lane: bool) -> list[str]:
    """Return the command of a web process with what was said on our command line or set."""
    # -P: the current directory may hold modules named like ours; main() puts it last.
    words = [sys.executable, "-P", "-m", "async_nodes.cli", "serve"]
    words += ["--host", settings.host, "--port", str(settings.port)]
    words += [] if fast_lane else ["--no-fast-lane"]
    for name, path in (("--tls-cert", settings.tls_cert), ("--tls-key", settings.tls_key)):
        words += [name, path] if path is not None else []
    return words


class Child:
    """A running web process. It ends when we end, even by SIGKILL.

    Args:
        argv: its command.
        number: which of the processes it is.
        processes: how many there are.
        listeners, seats, metrics: descriptors for it, see `Inherited`.
        ticket_key: for TLS, None without.

    Attributes:
        number: see above.
        started_at: on the monotonic clock.
        is_ready: whether it has said that it does its work.
        leave_by: when it must have ended after it was asked to, None before.

    Raises:
        OSError: it cannot be started.

    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        number: int,
        processes: int,
        listeners: tuple[int, ...],
        seats: int,
        metrics: int,
        ticket_key: bytes | None,
    ) -> None:
        self.number = number
        self.started_at = time.monotonic()
        self.is_ready = False
        self.leave_by: float | None = None
        self._ready, tell = os.pipe()
        tickets = -1 if ticket_key is None else _filled(ticket_key)
        given = Inherited(
            number=number,
            processes=processes,
            listeners=listeners,
            seats=seats,
            ready=tell,
            tickets=tickets,
            metrics=metrics,
        )
        try:
            self._process: subprocess.Popen[bytes] = lifeline.popen(
                [*argv, "--as-one-of-many", given.word()], pass_fds=given.descriptors
            )
        except BaseException:
            os.close(self._ready)
            raise
        finally:
            os.close(tell)
            if tickets >= 0:
                os.close(tickets)
        os.set_blocking(self._ready, False)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the descriptor that can be read once it is ready, or has ended."""
        return self._ready

    def hear(self) -> bool:
        """Read what it says of itself; return whether it may say more."""
        try:
            said = os.read(self._ready, 1)
        except BlockingIOError:
            return True
        self.is_ready = self.is_ready or said == b"+"
        return False

    def poll(self) -> int | None:
        """Return how it ended (negative: by that signal), None while it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send it a signal; one that has ended does not mind."""
        self._process.send_signal(number)

    def leave(self, number: int, *, within: float) -> None:
        """Ask it to end by a signal, and note when it must have ended."""
        self.send(number)
        until = time.monotonic() + within
        self.leave_by = until if self.leave_by is None else min(self.leave_by, until)

    def close(self) -> None:
        """Forget a process that has ended."""
        self._process.wait()
        os.close(self._ready)


def _filled(content: bytes) -> int:
    """Return the reading end of a pipe that holds so much and no more."""
    read, write = os.pipe()
    try:
        os.write(write, content)
    finally:
        os.close(write)
    return read
