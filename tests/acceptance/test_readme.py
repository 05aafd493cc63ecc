"""The commands of the README and of the pages in docs/, run as they stand there.

A fence that begins with ``sh start`` holds the commands of processes that stay up, one a line;
those of the fence before are stopped first. ``sh run`` holds commands for a shell, with what they
must print after ``# → ``; runs of white space count as one space. ``python NAME.py`` is a file.
Ports 8000 and 8001 stand for free ones; ``./run`` is this interpreter's command line. What a
person would paste once, the variable TASK, goes from one fence to the next.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from async_nodes.embedded.lifeline import popen
from tests.acceptance.stack import answers, free_port

pytestmark = [pytest.mark.needs("redis", "curl", "bash"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
AREAS = sorted(path.name for path in (ROOT / "docs" / "api").glob("[!A-Z]*.md"))
PAGES = (
    "README.md",
    *(f"docs/api/{name}" for name in AREAS),
    "docs/nodes.md",
    "docs/configuration.md",
    "docs/mounting.md",
    "docs/operations.md",
)
TRANSLATION = "README.zh-CN.md"
ARROW = "# → "
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND_SECONDS = 60
READY_SECONDS = 40.0
STOP_SECONDS = 30.0
FIRST_WORDS_SECONDS = 3.0


class Fence(NamedTuple):
    """A piece of a page: the words behind its backticks, and its text."""

    words: list[str]
    text: str

    @property
    def kind(self) -> str:
        """Return how the piece is to be used."""
        return " ".join(self.words[:2]) if self.words[:1] == ["sh"] else "".join(self.words[:1])

    @property
    def commands(self) -> list[str]:
        """Return its lines of commands, continued ones joined."""
        joined = self.text.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line and not line.startswith("#")]

    @property
    def expected(self) -> list[str]:
        """Return what the commands must print."""
        lines = self.text.splitlines()
        return [line.removeprefix(ARROW) for line in lines if line.startswith(ARROW)]


def fences(page: str) -> list[Fence]:
    """Return the pieces of a page that are marked."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Fence(found[1].split(), found[2]) for found in FENCE.finditer(text)]


class Desk:
    """A directory, an environment and two free ports, as if they were a reader's own.

    Attributes:
        directory: stands for the checkout.

    """

    def __init__(self) -> None:
        # Short: a unix socket has to fit below it.
        self.directory = Path(tempfile.mkdtemp(prefix="an-docs-"))
        self._ports = {"8000": str(free_port()), "8001": str(free_port())}
        self._environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(ROOT),
            "ASYNC_NODES_PORT": self._ports["8000"],
            "ASYNC_NODES_DATA_DIR": str(self.directory / ".data"),
            "ASYNC_NODES_SHUTDOWN_SECONDS": "2",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._task = ""
        (self.directory / ".venv").symlink_to(sys.prefix)
        run = self.directory / "run"
        run.write_text(
            "#!/bin/sh\n[ $# -gt 0 ] || set -- demo\n"
            f'exec {shlex.quote(sys.executable)} -P -m async_nodes.cli "$@"\n'
        )
        run.chmod(0o755)

    def write(self, name: str, text: str) -> None:
        """Add a piece to a file."""
        with (self.directory / name).open("a", encoding="utf-8") as file:
            file.write(text + "\n\n")

    def start(self, fence: Fence) -> None:
        """Stop what runs, start these commands one after the other, wait until all is ready."""
        self.stop()
        exports = ""
        for command in fence.commands:
            if command.startswith("export "):
                exports += command + "\n"
                continue
            self._start(f"{exports}{self._with_ports(command)}")
        self._until_ready()

    def _start(self, script: str) -> None:
        log = self.directory / f"log{len(self._logs)}"
        self._logs.append(log)
        # The last word is what is started: signals must reach it and not a shell before it.
        before, _, last = script.rpartition("\n")
        names = re.match(r"(?:\w+=\S* )*", last)
        assert names is not None
        line = f"{before}\n{'export ' + names[0] if names[0] else ''}\nexec {last[names.end() :]}"
        with log.open("wb") as output:
            self._processes.append(
                popen(
                    ["bash", "-c", line],
                    env=self._environ,
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    death_signal=signal.SIGTERM,
                )
            )
        until = time.monotonic() + FIRST_WORDS_SECONDS
        while log.stat().st_size == 0 and time.monotonic() < until:
            time.sleep(0.05)

    def _until_ready(self) -> None:
        until = time.monotonic() + READY_SECONDS
        port = int(self._ports["8000"])
        while not (answers(port, "/readyz") or answers(port, "/jobs/readyz")):
            assert time.monotonic() < until, f"not ready\n{self.logs()}"
            ended = [process.args for process in self._processes if process.poll() is not None]
            assert not ended, f"{ended} ended\n{self.logs()}"
            time.sleep(0.1)

    def run(self, fence: Fence) -> str:
        """Give commands to a shell and return what they print."""
        script = f"set -euo pipefail\nTASK={self._task}\n{fence.text}\nprintf %s $TASK >&3\n"
        notes = self.directory / "task"
        done = subprocess.run(
            ["bash", "-c", f"exec 3>{shlex.quote(str(notes))}\n{self._with_ports(script)}"],
            env=self._environ,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{fence.text}\n{done.stdout}\n{self.logs()}"
        self._task = notes.read_text()
        return done.stdout

    def _with_ports(self, text: str) -> str:
        for written, real in self._ports.items():
            text = re.sub(rf"\b{written}\b", real, text)
        return text

    def logs(self) -> str:
        """Return the ends of what the processes wrote."""
        return "\n".join(
            f"--- {log.name}\n" + "\n".join(log.read_text("utf-8", "replace").splitlines()[-15:])
            for log in self._logs
        )

    def stop(self) -> None:
        """Stop the processes, the youngest first."""
        while self._processes:
            process = self._processes.pop()
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def clear(self) -> None:
        """Leave nothing behind."""
        self.stop()
        shutil.rmtree(self.directory)


def as_one_line(text: str) -> str:
    """Return a text with single spaces: records are padded, and streams have lines."""
    return " ".join(text.split())


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.clear()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work_as_pasted(desk: Desk, page: str) -> None:
    """Every marked command ends well and prints what the page says it prints."""
    pieces = fences(page)
    for piece in pieces:
        if piece.kind == "python" and len(piece.words) > 1:
            desk.write(piece.words[1], piece.text)
    used = 0
    for piece in pieces:
        if piece.kind == "sh start":
            desk.start(piece)
        elif piece.kind == "sh run":
            printed = as_one_line(desk.run(piece))
            missing = [words for words in piece.expected if as_one_line(words) not in printed]
            assert piece.expected, f"nothing is expected of\n{piece.text}"
            assert not missing, f"{piece.text}\nprinted\n{printed}\n{desk.logs()}"
            used += 1

    assert used > 0


def test_both_readmes_hold_the_same_commands() -> None:
    """The Chinese page has every marked piece of the English one, in its order."""
    english, chinese = (
        [piece for piece in fences(page) if piece.words] for page in (PAGES[0], TRANSLATION)
    )

    assert english
    assert chinese == english
