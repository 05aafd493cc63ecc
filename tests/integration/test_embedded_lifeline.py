"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import async_nodes
from async_nodes.embedded import lifeline

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(async_nodes.__file__).parents[1]
SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
#: A parent that starts argv[1:] in the way named by STYLE, prints its pid and waits.
PARENT = """
import os, sys, threading, time
if os.environ["STYLE"] == "gevent":
    from gevent import monkey; monkey.patch_all()
from async_nodes.embedded import lifeline
def start():
    print(lifeline.popen(sys.argv[1:], start_new_session=True).pid, flush=True)
if os.environ["STYLE"] == "thread":
    thread = threading.Thread(target=start); thread.start(); thread.join()
else:
    start()
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that only waits to be reaped does not."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False
    ).stdout.strip()
    return bool(state) and not state.startswith(b"Z")


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def pids_like(pattern: str) -> list[int]:
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, check=False)
    return [int(line) for line in found.stdout.split()]


@pytest.fixture
def parents() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start_parent(
    style: str, command: list[str], parents: list[subprocess.Popen[bytes]]
) -> tuple[subprocess.Popen[bytes], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *command],
        cwd=ROOT,
        env={**os.environ, "STYLE": style},
        stdout=subprocess.PIPE,
    )
    parents.append(parent)
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


@pytest.mark.parametrize("style", ["plain", "gevent", "thread"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_with_its_parent(
    style: str, number: int, parents: list[subprocess.Popen[bytes]]
) -> None:
    """However the parent was built and however it dies, its child is gone within two seconds."""
    parent, child = start_parent(style, SLEEPER, parents)
    # The thread that started the child may have ended; the child must not end for that.
    time.sleep(0.3)
    assert is_alive(child)
    parent.send_signal(number)
    assert ends_within(child, 2.0)


def test_a_grandchild_follows(tmp_path: Path, parents: list[subprocess.Popen[bytes]]) -> None:
    """A chain of ties lets the whole tree end when its root is killed."""
    code = (
        "import pathlib, sys, time; from async_nodes.embedded import lifeline;"
        "p = lifeline.popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "new = pathlib.Path(sys.argv[1]); half = new.with_suffix('.half');"
        "half.write_text(str(p.pid)); half.rename(new); time.sleep(60)"
    )
    note = tmp_path / "grandchild"
    parent, child = start_parent("plain", [sys.executable, "-c", code, str(note)], parents)
    deadline = time.monotonic() + 10
    while not note.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    grandchild = int(note.read_text())
    parent.kill()
    assert ends_within(child, 2.0)
    assert ends_within(grandchild, 2.0)


def test_the_process_is_the_program_itself() -> None:
    """Pid, streams, environment, directory and exit status are the program's own."""
    process = lifeline.popen(
        ["/bin/sh", "-c", 'echo "$$ $WORD $PWD"; exit 7'],
        env={"WORD": "hello", "PATH": os.environ["PATH"]},
        cwd="/",
        stdout=subprocess.PIPE,
    )
    out, _ = process.communicate(timeout=10)
    assert out.split() == [str(process.pid).encode(), b"hello", b"/"]
    assert process.returncode == 7


def test_signals_reach_the_program() -> None:
    """A signal sent to the process is the program's to handle, and its status tells."""
    process = lifeline.popen(SLEEPER)
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM


def test_python_leaves_no_ignored_signal_behind() -> None:
    """The program starts with SIGPIPE at its default, as if no Python had been in between."""
    # A shell that inherits an ignored SIGPIPE reports a write error instead of dying of it.
    process = lifeline.popen(
        ["/bin/sh", "-c", "exec 3>&1; { sleep 0.2; echo a; echo lives >&3; } | true"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.communicate(timeout=10)[0] == b""


def test_a_title_may_differ_from_the_program() -> None:
    """`executable` is what runs, argv[0] is what it is told its name is."""
    process = lifeline.popen(
        ["my-title", "-c", "echo $0"], executable="/bin/sh", stdout=subprocess.PIPE
    )
    assert process.communicate(timeout=10)[0].strip() == b"my-title"


def test_passed_descriptors_arrive() -> None:
    """A descriptor given by `pass_fds` is open in the program, under the same number."""
    receive, send = os.pipe()
    code = f"import os; os.write({send}, b'here')"
    process = lifeline.popen([sys.executable, "-c", code], pass_fds=(send,))
    os.close(send)
    assert os.read(receive, 10) == b"here"
    os.close(receive)
    assert process.wait(10) == 0


def test_a_missing_program_is_the_callers_error() -> None:
    """A name that is not on PATH raises here instead of failing in a child."""
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        lifeline.popen(["no-such-program"])


def test_a_program_that_cannot_be_executed_says_so(tmp_path: Path) -> None:
    """A file of no known format ends with status 126 and a sentence."""
    file = tmp_path / "data"
    file.write_bytes(b"\x7fnot a program")
    file.chmod(0o755)
    process = lifeline.popen([str(file)], stderr=subprocess.PIPE)
    _, error = process.communicate(timeout=10)
    assert process.returncode == 126
    assert error.startswith(b"cannot start ")
    assert b"Traceback" not in error


def test_an_untied_process_outlives_its_parent(parents: list[subprocess.Popen[bytes]]) -> None:
    """`die_with_parent=False` is an ordinary process."""
    command = [
        sys.executable,
        "-c",
        PARENT.replace("start_new", "die_with_parent=False, start_new"),
    ]
    parent = subprocess.Popen(
        [*command, *SLEEPER], cwd=ROOT, env={**os.environ, "STYLE": "plain"}, stdout=subprocess.PIPE
    )
    parents.append(parent)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        time.sleep(0.3)
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_parent_that_is_already_dead_ends_the_child_at_once() -> None:
    """A parent lost before the tie was made counts as a parent that ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    code = (
        f"from async_nodes.embedded import lifeline; lifeline.tie_to_parent({ended.pid}); print(1)"
    )
    child = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert child.returncode == -signal.SIGTERM
    assert child.stdout == b""


def test_a_threads_child_is_watched_by_a_process_that_ends_with_it() -> None:
    """The watcher leaves when its target ends: nothing stays behind."""
    started: list[subprocess.Popen[bytes]] = []
    seen = threading.Event()

    def start() -> None:
        started.append(lifeline.popen(SLEEPER))
        # Once its thread has ended, the kernel counts a child as the main thread's.
        seen.wait(10)

    thread = threading.Thread(target=start)
    thread.start()
    watchers: list[int] = []
    deadline = time.monotonic() + 10
    while not watchers and time.monotonic() < deadline:
        time.sleep(0.02)
        if started:
            watchers = pids_like(f"lifeline.py watch {os.getpid()} {started[0].pid} ")
    seen.set()
    thread.join()
    started[0].kill()
    started[0].wait()
    assert len(watchers) == 1
    assert ends_within(watchers[0], 2.0)


def test_a_watcher_kills_what_ignores_its_signal() -> None:
    """After the grace a watcher uses SIGKILL."""
    parent = subprocess.Popen(SLEEPER)
    deaf = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True);"
        "time.sleep(60)"
    )
    target = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
    assert target.stdout is not None
    target.stdout.readline()
    code = (
        "from async_nodes.embedded import lifeline; lifeline.GRACE_SECONDS = 0.2;"
        f"lifeline._watch({parent.pid}, {target.pid}, 15)"
    )
    watcher = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert watcher.stdout is not None
    assert watcher.stdout.read(1) == b"+"
    parent.kill()
    parent.wait()
    assert target.wait(10) == -signal.SIGKILL
    assert watcher.wait(10) == 0
    for process in (target, watcher):
        process.communicate()


@pytest.mark.parametrize("kind", [lifeline._SystemExits, lifeline._PollingExits])
def test_exits_are_told_apart(kind: type[lifeline._SystemExits]) -> None:
    """Each way to watch reports who ended, once, and nobody before."""
    stays, ends = subprocess.Popen(SLEEPER), subprocess.Popen(SLEEPER)
    exits = kind((stays.pid, ends.pid))
    assert exits.wait(0.05) == set()
    ends.kill()
    ends.wait()
    assert exits.wait(5) == {ends.pid}
    assert exits.wait(0.05) == set()
    stays.kill()
    stays.wait()
    assert exits.wait(None) == {stays.pid}
