"""A process of its own for a suspect: a task that was there when two processes died.

The worker claims as usual and hands the claim to a child over a pipe. If the child dies, only this
task can have done it, and that counts; nobody else was in there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass

import msgspec

from async_nodes.core.ports import Claim, Ending
from async_nodes.execution import endings
from async_nodes.execution.plain_host import CANCEL_SIGNAL, PlainHost

POLL_SECONDS = 0.05
CANCEL_GRACE = 0.5
TIMEOUT_GRACE = 1.0


@dataclass(slots=True)
class Isolated:
    """Follow one child.

    Attributes:
        claim: the attempt it runs.
        cancelled: set by whoever hears of a cancel.

    """

    claim: Claim
    process: subprocess.Popen[bytes]
    cancelled: bool = False

    def cancel(self) -> None:
        """Ask the child to stop; it is killed if it does not."""
        self.cancelled = True

    def wait(self) -> Ending | None:
        """Return when the child is gone: None if it ended the task itself or died of it.

        Returns:
            The ending to write for a child that had to be killed.

        """
        seconds = self.claim.timeout_ms / 1000 + TIMEOUT_GRACE
        until = time.monotonic() + seconds
        asked_at: float | None = None
        while self.process.poll() is None:
            now = time.monotonic()
            if self.cancelled and asked_at is None:
                asked_at = now
                self.process.send_signal(CANCEL_SIGNAL)
            if asked_at is not None and now - asked_at > CANCEL_GRACE:
                self.kill()
                return endings.cancelled(endings.Side())
            if now > until:
                self.kill()
                return endings.timed_out(self.claim.timeout_ms / 1000, endings.Side())
            time.sleep(POLL_SECONDS)
        return None

    def kill(self) -> None:
        """End the child at once and collect it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def start(claim: Claim) -> Isolated:
    """Start a child for a claim."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "async_nodes.execution.isolated"],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101 - asked for
    process.stdin.write(msgspec.json.encode(asdict(claim)) + b"\n")
    process.stdin.flush()  # and left open: its end tells the child that its parent is gone
    return Isolated(claim, process)


def main() -> None:
    """Run the one claim that comes on stdin, in this process's main thread."""
    claim = msgspec.json.decode(sys.stdin.buffer.readline(), type=Claim)
    threading.Thread(target=_end_with_parent, daemon=True).start()

    from async_nodes.execution.attempt import run_attempt
    from async_nodes.execution.process import plain_executor

    executor, close = plain_executor("suspect", PlainHost())
    run_attempt(executor, claim)
    close()
    # At once: whatever threads the body has left behind are nothing to wait for.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent() -> None:
    # Not through `sys.stdin`, whose lock the interpreter wants when it ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
