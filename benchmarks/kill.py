"""The worker is killed in the middle: how many of 200 tasks are never done, side by side.

Each side gets 200 tasks of two seconds over HTTP and works on 50 at a time. In the middle of the
second fifty its worker gets SIGKILL, and another one is started at once; from then on a further
task comes every second, since some libraries look after old work only when there is new. What is
counted is what the tasks themselves wrote down.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks import _figures
from benchmarks._environments import NotInstalledError
from benchmarks._libraries import LIBRARIES
from benchmarks._load import RECEIVE, parse
from benchmarks._options import bare_parser, run, sides_of
from benchmarks._processes import BenchmarkError, Processes, answers, processes
from benchmarks._sides import OURS, STATE, TASK_ID
from benchmarks._stack import NAMES, prepare
from benchmarks.first_token import connect

TASKS: Final = 200
SLOTS: Final = 50
SECONDS: Final = 2.0
ONE_BY_ONE_SECONDS: Final = 0.05
"""What a task takes where a worker does one at a time."""

DONE_BEFORE: Final = 50
WAIT: Final = 120.0
"""Seconds after the kill; a time-out that a library can be told is an eighth of that."""

START_SECONDS: Final = 90.0
HEADS: Final = (
    "side",
    "at once",
    "done before",
    "lost",
    "done twice",
    "all done after",
    "shown as",
)
ACCEPTED: Final = 202
EVERY: Final = 1.0


@dataclass(slots=True)
class Kill:
    """Hold what became of one side's tasks.

    Attributes:
        side: its name.
        at_once: tasks that its worker does at a time.
        before: tasks done when the worker was killed.
        lost: tasks that were not done `WAIT` seconds later.
        twice: tasks done more than once.
        seconds: from the kill until the last task was done; None when some are lost.
        told: the state that a client reads of those lost, and how many.

    """

    side: str
    at_once: int = SLOTS
    before: int = 0
    lost: int = 0
    twice: int = 0
    seconds: float | None = None
    told: dict[str, int] = field(default_factory=dict)


class Running:
    """One side with its tasks, from the start to the count.

    Args:
        owned: what owns the processes.
        name: the side's.

    """

    def __init__(self, owned: Processes, name: str) -> None:
        self._owned = owned
        self._notes = owned.folder / f"{name}.notes"
        self._more = owned.folder / f"{name}.more"
        for path in (self._notes, self._more):
            path.touch()
        at_once = 1 if name != OURS and LIBRARIES[name].one_by_one else SLOTS
        self.kill = Kill(name, at_once)
        self._seconds = SECONDS if at_once > 1 else ONE_BY_ONE_SECONDS
        self._ids: list[str] = []
        self._killed_at = 0.0
        imports = {"ASYNC_NODES_IMPORTS": "benchmarks._nap"} if name == OURS else {}
        _, self._plan = prepare(owned, name, slots=SLOTS, extra=imports)
        owned.start(f"{name} web", self._plan.web, environment=self._plan.environment)
        self._worker = self._plan.start_worker(owned)
        owned.wait_for(name, lambda: answers(self._plan.port))

    def warm_up(self) -> None:
        """Run one task to its end, so that the worker is known to be up."""
        end = time.monotonic() + START_SECONDS
        while not self._more.stat().st_size:
            with contextlib.suppress(BenchmarkError):  # it is up before its store is
                self.one_more()
            time.sleep(0.5)
            self._owned.check()
            if time.monotonic() > end:
                raise BenchmarkError(f"{self.kill.side} ran no task in {START_SECONDS:.0f} s")
        time.sleep(0.5)

    def one_more(self) -> None:
        """Submit a task that is not counted."""
        with closing(connect(self._plan.port)) as link:
            self._submit(link, 0, 0.0, self._more)

    def strike(self) -> None:
        """Submit all tasks, kill the worker once some are done, and start another."""
        with closing(connect(self._plan.port)) as link:
            for number in range(TASKS):
                self._ids.append(self._submit(link, number, self._seconds, self._notes))
        end = time.monotonic() + START_SECONDS
        while len(self._done()) < DONE_BEFORE:
            time.sleep(0.01)
            if time.monotonic() > end:
                raise BenchmarkError(f"{self.kill.side} does not get on with its tasks")
        time.sleep(self._seconds / 2)
        self._owned.kill(self._worker)
        self._killed_at = time.time()
        self.kill.before = len(self._done())
        self._plan.start_worker(self._owned, "second worker")

    def settled(self) -> bool:
        """Count what is done; tell whether that is all, or the time for it is over."""
        numbers = self._done()
        self.kill.lost = TASKS - len(numbers)
        self.kill.twice = sum(1 for times in numbers.values() if times > 1)
        if not self.kill.lost and self.kill.seconds is None:
            self.kill.seconds = self._notes.stat().st_mtime - self._killed_at
        return not self.kill.lost or time.time() - self._killed_at > WAIT

    def ask(self) -> None:
        """Ask, as a client would, for the state of what is lost."""
        missing = sorted(set(range(TASKS)) - set(self._done())) if self.kill.lost else []
        with closing(connect(self._plan.port)) as link:
            states = [self._state(link, self._ids[number]) for number in missing]
        self.kill.told = dict(Counter(states))

    def _done(self) -> Counter[int]:
        return Counter(map(int, self._notes.read_text(encoding="ascii").split()))

    def _submit(self, link: socket.socket, number: int, seconds: float, path: Path) -> str:
        inputs = json.dumps({"seconds": seconds, "path": str(path), "n": number}).encode()
        request = self._plan.dialect.submit(self._plan.port, inputs, node="nap")
        status, body = _asked(link, request)
        found = TASK_ID.search(body)
        if status != ACCEPTED or found is None:
            raise BenchmarkError(f"a submit was answered {status}: {body[:300]!r}")
        return found[1].decode()

    def _state(self, link: socket.socket, task_id: str) -> str:
        _, body = _asked(link, self._plan.dialect.poll(self._plan.port, task_id.encode()))
        found = STATE.search(body)
        return found[1].decode() if found else "unknown"


def _asked(link: socket.socket, request: bytes) -> tuple[int, bytes]:
    link.sendall(request)
    data = b""
    while (reply := parse(data)) is None:
        piece = link.recv(RECEIVE)
        if not piece:
            raise BenchmarkError(f"a request was not answered: {data[:300]!r}")
        data += piece
    return reply


class Watch(threading.Thread):
    """Give the sides that were struck a task each second, and count until all have settled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.struck: list[Running] = []
        self.complete = threading.Event()

    def run(self) -> None:
        """Go on until all sides were struck and have settled."""
        while True:
            last = self.complete.is_set()
            waiting = [side for side in list(self.struck) if not side.settled()]
            if last and not waiting:
                return
            for side in waiting:
                with contextlib.suppress(OSError, BenchmarkError):
                    side.one_more()
            time.sleep(EVERY)


def killed(names: Sequence[str]) -> tuple[list[Kill], dict[str, str]]:
    """Kill the worker of each of these sides; return what was lost, and which could not be tried.

    The sides are struck one after the other and waited for together: a task only sleeps.
    """
    missing: dict[str, str] = {}
    with processes() as owned:
        watch = Watch()
        watch.start()
        for name in names:
            _figures.say(f"killing the worker of {name}")
            try:
                side = Running(owned, name)
            except NotInstalledError as error:
                missing[name] = str(error)
                continue
            side.warm_up()
            side.strike()
            watch.struck.append(side)
        watch.complete.set()
        _figures.say(f"waiting at most {WAIT:.0f} s for what is not done")
        watch.join(WAIT + START_SECONDS)
        for side in watch.struck:
            side.ask()
    return [side.kill for side in watch.struck], missing


def lost_of(kill: Kill) -> str:
    """Return the cell that says how many were lost."""
    return f"{kill.lost} of {TASKS}"


def rows(kills: Sequence[Kill], missing: dict[str, str]) -> list[list[object]]:
    """Return the table."""
    shown: list[list[object]] = []
    for kill in kills:
        after = "never" if kill.seconds is None else f"{kill.seconds:.1f} s"
        told = ", ".join(f"{count} {state}" for state, count in kill.told.items()) or "-"
        cells = (kill.at_once, kill.before, lost_of(kill), kill.twice, after, told)
        shown.append([kill.side, *cells])
    shown += [[name, "-", "-", why, "", "", ""] for name, why in missing.items()]
    return shown


def figures(kills: Sequence[Kill], missing: dict[str, str]) -> dict[str, Any]:
    """Return what goes into the JSON file."""
    return {"tasks": TASKS, "kills": [asdict(kill) for kill in kills], "missing": missing}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = bare_parser(__doc__)
    sides_of(made, NAMES, default=NAMES)
    given = made.parse_args(arguments)
    kills, missing = killed(given.sides)
    print(_figures.table(HEADS, rows(kills, missing)))
    found = figures(kills, missing)
    _figures.write_report(given.json, "kill", found)
    _figures.draw(given.plot, "kill", found)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
