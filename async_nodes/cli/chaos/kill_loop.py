"""The kill loop: tasks come in, workers and the web process die, everything accepted must end.

Three things at once, each on a thread of its own: one submits, one kills, and the director shows
how it goes. The killed processes come back by the supervisor, as under any init system.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from async_nodes.cli.chaos.plan import Plan
from async_nodes.cli.chaos.verdict import TERMINAL, Verdict, judge
from async_nodes.cli.http import Client
from async_nodes.core.errors import AsyncNodesError

PAGE: Final = 100
_RESEND_PAUSE: Final = 0.1
_LOOK: Final = 0.25


@dataclass(slots=True)
class Progress:
    """How far a run is; written by its threads, read by whoever shows it."""

    accepted: list[str] = field(default_factory=list)
    ended: int = 0
    refused: int = 0
    kills: list[tuple[float, str]] = field(default_factory=list)


class KillLoop:
    """Run a plan against an installation.

    Args:
        plan: what and when.
        connect: gives a client for one thread.
        pid_of: the process id of a target, None while it does not run.
        ending: set when the run is to end early.
        counted: the file that counted tasks write to.

    """

    def __init__(
        self,
        plan: Plan,
        *,
        connect: Callable[[], Client],
        pid_of: Callable[[str], int | None],
        ending: threading.Event,
        counted: Path,
    ) -> None:
        self._plan = plan
        self._connect = connect
        self._pid_of = pid_of
        self._ending = ending
        self._counted = counted
        self._began = 0.0
        self.progress = Progress()

    def run(self, show: Callable[[Progress, float], None], *, patience: float) -> Verdict:
        """Return the verdict once every accepted task has ended, or patience has.

        Args:
            show: told of the progress and the seconds so far, four times a second.
            patience: seconds after the last submit for everything to end.

        """
        self._began = time.monotonic()
        threads = [
            threading.Thread(target=step, daemon=True) for step in (self._submit, self._kill)
        ]
        for thread in threads:
            thread.start()
        records: dict[str, Mapping[str, Any] | None] = {}
        with self._connect() as client:
            until = self._plan.seconds + patience
            while self._elapsed() < until and not self._ending.is_set():
                self._look(client, records)
                self.progress.ended = sum(map(_ended, records.values()))
                show(self.progress, self._elapsed())
                busy = any(thread.is_alive() for thread in threads)
                if not busy and self.progress.ended == len(self.progress.accepted):
                    break
                self._ending.wait(_LOOK)
        for thread in threads:
            thread.join(1.0)
        for task_id in self.progress.accepted:
            records.setdefault(task_id, None)
        kills = [at for at, _ in self.progress.kills]
        return judge(records, self._starts(), kills)

    def _submit(self) -> None:
        with self._connect() as client:
            for number, (at, body) in enumerate(self._plan.requests(str(self._counted))):
                self._ending.wait(max(at - self._elapsed(), 0.0))
                key = f"kill-loop-{self._plan.seed}-{number}"
                while not self._ending.is_set():
                    try:
                        answer = client.post("/v1/tasks", body, headers={"Idempotency-Key": key})
                    except AsyncNodesError:
                        self.progress.refused += 1
                        self._ending.wait(_RESEND_PAUSE)
                        continue
                    self.progress.accepted.append(answer.document["task_id"])
                    break

    def _kill(self) -> None:
        for kill in self._plan.kills():
            if self._ending.wait(max(kill.at - self._elapsed(), 0.0)):
                return
            pid = self._pid_of(kill.target)
            if pid is None:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.progress.kills.append((time.time(), kill.target))

    def _look(self, client: Client, records: dict[str, Mapping[str, Any] | None]) -> None:
        """Read the records of tasks that had not ended when last looked at."""
        open_ids = [one for one in self.progress.accepted if not _ended(records.get(one))]
        for task_id in open_ids[:PAGE]:
            with contextlib.suppress(AsyncNodesError):  # the web process is away, or just killed
                records[task_id] = client.get(f"/v1/tasks/{task_id}").document

    def _starts(self) -> Iterator[str]:
        if self._counted.exists():
            yield from self._counted.read_text("ascii").splitlines()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


def _ended(record: Mapping[str, Any] | None) -> bool:
    return record is not None and record["state"] in TERMINAL
