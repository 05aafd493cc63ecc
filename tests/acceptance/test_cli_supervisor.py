from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).with_name("cli_supervised.py")
POLITE = "import os,time; print('pid', os.getpid()); time.sleep(60)"
#: Says when it is told to stop, and takes its time.
SLOW = """
import os, signal, sys, time
def stop(*_):
    print("stopping", flush=True); time.sleep(0.3); print("stopped", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("pid", os.getpid()); time.sleep(60)
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: print("not yet"))
print("pid", os.getpid())
while True: time.sleep(1)
"""
FLOOD = """
import sys, time
print("x" * 10_000); print("y\\n" * 5000); sys.stdout.write("end"); time.sleep(0.5); sys.exit(1)
"""
LIAR = "import sys; print('cannot read the configuration'); sys.exit(3)"


class Run:
    """A supervised program whose lines are read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    def wait_for(self, pattern: str, count: int = 1, seconds: float = 10.0) -> list[re.Match[str]]:
        """Return the matches of a pattern once there are so many."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [m for line in self.lines if (m := re.search(pattern, line))]
                if len(found) >= count:
                    return found
                left = deadline - time.monotonic()
                assert left > 0, f"{pattern!r} not {count} times in {self.lines}"
                self._changed.wait(left)

    def pid(self, name: str, number: int = 1) -> int:
        """Return what the number-th life of a process said is its pid."""
        found = self.wait_for(rf"^{name} +│ pid (\d+)", number)
        return int(found[number - 1][1])

    def end(self, seconds: float = 10.0) -> int:
        """Wait for the end and return the status."""
        status = self.process.wait(seconds)
        self._reader.join(seconds)
        return status


@contextmanager
def supervised(web: str, worker: str, action: str) -> Iterator[Run]:
    process = subprocess.Popen(
        [sys.executable, "-u", str(PROGRAM), web, worker, action],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    run = Run(process)
    try:
        yield run
    finally:
        process.kill()
        run.end()
        assert process.stdout is not None
        process.stdout.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pids: list[int], seconds: float = 3.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(is_alive, pids))


def test_the_directors_number_ends_everything() -> None:
    """When the director is done, all processes are stopped and its status is the program's."""
    with supervised(POLITE, POLITE, "7") as run:
        assert run.end() == 7


def test_a_director_that_breaks_ends_everything() -> None:
    """An error of the director is raised after the stop."""
    with supervised(POLITE, POLITE, "broken") as run:
        assert run.end() == 1
        assert "error: the director says no" in run.lines


def test_a_killed_process_comes_back() -> None:
    """SIGKILL of a process is told in one line and answered by a new one; others are untouched."""
    with supervised(POLITE, POLITE, "ready") as run:
        web, first = run.pid("web"), run.pid("worker")
        os.kill(first, signal.SIGKILL)
        second = run.pid("worker", 2)
        assert second != first
        run.wait_for(rf"was ended by SIGKILL \(process {first}\); starting it again in 0.05 s")
        run.wait_for(rf"worker .*runs again \(process {second}\)")
        assert is_alive(web)


def test_a_crash_loop_gives_up_with_the_last_lines() -> None:
    """A process that cannot live ends the whole with what it said."""
    with supervised(POLITE, LIAR, "ready") as run:
        web = run.pid("web")
        assert run.end() == 1
        said = "\n".join(run.lines)
        assert "error: worker ended with status 3, 4 times in a row; its last lines:" in said
        assert said.rstrip().endswith("    cannot read the configuration")
        assert gone([web])


def test_while_starting_the_first_complaint_is_enough() -> None:
    """Before the whole was ready, a process that ends by itself is not started again."""
    with supervised(POLITE, LIAR, "stay") as run:
        assert run.end() == 1
        assert sum("worker" in line and "cannot read" in line for line in run.lines) == 1


def test_the_stop_goes_stage_by_stage() -> None:
    """SIGTERM stops the web before the workers are told; the status of a server is then 0."""
    with supervised(SLOW, SLOW, "ready") as run:
        pids = [run.pid("web"), run.pid("worker")]
        run.wait_for("directing")
        time.sleep(0.1)
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
        order = [" ".join(line.split(" │ ")).split() for line in run.lines if "stop" in line]
        assert order == [
            ["web", "stopping"],
            ["web", "stopped"],
            ["worker", "stopping"],
            ["worker", "stopped"],
        ]
        assert gone(pids)


def test_ctrl_c_is_130() -> None:
    """SIGINT stops in the same order and ends with 130."""
    with supervised(POLITE, POLITE, "ready") as run:
        run.wait_for("directing")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130


def test_a_process_that_will_not_stop_is_killed() -> None:
    """The stop is bounded by the process's patience."""
    with supervised(STUBBORN, POLITE, "ready") as run:
        web = run.pid("web")
        began = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 0
        assert 2.5 < time.monotonic() - began < 5
        assert gone([web])


def test_a_second_signal_hurries() -> None:
    """A second Ctrl-C does not wait for who will not stop."""
    with supervised(STUBBORN, STUBBORN, "ready") as run:
        pids = [run.pid("web"), run.pid("worker")]
        began = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        run.wait_for("not yet")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 130
        assert time.monotonic() - began < 2.5
        assert gone(pids)


def test_nothing_outlives_a_killed_supervisor() -> None:
    """SIGKILL of the supervisor ends its processes too."""
    with supervised(POLITE, SLOW, "ready") as run:
        pids = [run.pid("web"), run.pid("worker")]
        run.process.kill()
        run.process.wait()
        assert gone(pids)


def test_a_flood_of_output_is_passed_on_whole() -> None:
    """Lines longer than a pipe's buffer and without an end at the end arrive."""
    with supervised(FLOOD, POLITE, "stay") as run:
        assert run.end() == 1
        lines = [line for line in run.lines if line.startswith("web ")]
        assert sum(line.endswith("│ y") for line in lines) == 5000
        assert any(line.endswith("x" * 10_000) for line in lines)
        assert lines[-1].endswith("│ end")
