"""Processes that end when the process that started them ends, even by SIGKILL.

Outside the way of a task. Knows processes and signals only, and imports nothing but the standard
library, because `popen` runs this very file as a script, without the package around it:

    popen(argv)  ─spawns→  lifeline.py exec …  ─tie_to_parent, then execv→  argv (same pid)

Two ways to tie a process to its parent, chosen by the process itself:

* Linux: PR_SET_PDEATHSIG, nothing to run and nothing to lose. The kernel counts the *thread* that
  forked as the parent, so this way is taken only when that was the parent's main thread.
* otherwise: a small watcher process that waits for either of the two to end
  (pidfd, kqueue, or looking every 0.2 s where the system has neither).

There is no preexec_fn: Python code between fork and exec may deadlock in a process with threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Seconds between a watcher's death signal and its SIGKILL.
GRACE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_PR_SET_PDEATHSIG = 1
_CANNOT_EXECUTE = 126
#: Isolated and without site-packages: starts in about 15 ms and reads no PYTHON* variable.
_SELF = ("-I", "-S", str(Path(__file__).resolve()))


def popen(  # noqa: PLR0913, D417 - subprocess.Popen's own parameters, described there
    argv: Sequence[str],
    *,
    executable: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    start_new_session: bool = True,
    die_with_parent: bool = True,
    death_signal: int = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a process that gets `death_signal` when the calling process ends in any way.

    The result's pid, return code and signals are the started program's own. Works from any
    thread, and in a process patched by gevent (from its main thread, as gevent asks). Streams
    carry bytes; the other parameters are those of subprocess.Popen.

    Args:
        argv: program and arguments.
        executable: the program when argv[0] is only its title; looked up on the PATH of `env`.
        start_new_session: keep the terminal's Ctrl-C away, so that the caller decides the order
            in which its processes stop.
        die_with_parent: False starts an ordinary process.
        death_signal: SIGTERM lets the program finish what it holds; SIGKILL cannot be ignored.

    Raises:
        FileNotFoundError: there is no such program.
        OSError: the process could not be started.

    """
    program = _find_program(argv[0] if executable is None else str(executable), env)
    command = list(argv)
    if die_with_parent:
        tie = ["exec", str(os.getpid()), str(int(death_signal)), program]
        program, command = sys.executable, [sys.executable, *_SELF, *tie, *argv]
    return subprocess.Popen(
        command,
        executable=program,
        env=env,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=tuple(pass_fds),
        start_new_session=start_new_session,
    )


def tie_to_parent(parent_pid: int, *, death_signal: int = signal.SIGTERM) -> None:
    """Make the calling process get `death_signal` when its parent ends; at once if it has ended.

    Call it in the child's main thread, early. `popen` does so already for what it starts.

    Args:
        parent_pid: the pid of the parent, as the parent itself read it before starting this one;
            os.getppid() taken here could already be the pid of init.
        death_signal: a handler installed later receives it like any other signal.

    Raises:
        OSError: the system offers no way to watch the parent.

    """
    if _forked_by_main_thread(parent_pid):
        _set_parent_death_signal(death_signal)
    else:
        _start_watcher(parent_pid, death_signal)
    # The parent may have died before it was watched: then this process has another one by now.
    if os.getppid() != parent_pid:
        signal.raise_signal(death_signal)


def _find_program(name: str, env: Mapping[str, str] | None) -> str:
    # Looked up here, because the caller should get the error and not a process that fails.
    path = (os.environ if env is None else env).get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return str(Path(found).absolute())


def _forked_by_main_thread(parent_pid: int) -> bool:
    """Tell whether PR_SET_PDEATHSIG would mean the whole parent and not one of its threads."""
    if sys.platform != "linux":
        return False
    try:
        children = Path(f"/proc/{parent_pid}/task/{parent_pid}/children").read_text("ascii")
    except OSError:
        return False
    return str(os.getpid()) in children.split()


def _set_parent_death_signal(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


# The watcher: a process of its own, child of the process that it ends.


def _start_watcher(parent_pid: int, death_signal: int) -> None:
    """Start a watcher and return once it watches, so that no death can be missed."""
    armed, tell = os.pipe()
    try:
        numbers = (str(parent_pid), str(os.getpid()), str(int(death_signal)))
        os.posix_spawn(
            sys.executable,
            [sys.executable, *_SELF, "watch", *numbers],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, tell, 1),
            ],
        )
        os.close(tell)
        tell = -1
        is_armed = os.read(armed, 1) == b"+"
    finally:
        os.close(armed)
        if tell != -1:
            os.close(tell)
    if not is_armed and os.getppid() == parent_pid:
        raise OSError(errno.EIO, "the watcher of the parent process did not start")


def _watch(parent_pid: int, target_pid: int, death_signal: int) -> None:
    """Wait for either process to end; when it is the parent, end the target."""
    os.setsid()
    # Inherited descriptors would keep other people's pipes open and locks held.
    os.closerange(3, os.sysconf("SC_OPEN_MAX") if sys.platform == "linux" else 256)
    exits = _open_exits((parent_pid, target_pid))
    os.write(1, b"+")
    for descriptor in (1, 2):
        os.dup2(0, descriptor)
    if target_pid in exits.wait(None):
        return
    try:
        os.kill(target_pid, death_signal)
        if target_pid not in exits.wait(GRACE_SECONDS):
            os.kill(target_pid, signal.SIGKILL)
    except ProcessLookupError:
        return


class _Exits(Protocol):
    """Wait for processes that need not be children."""

    def wait(self, timeout: float | None) -> set[int]:
        """Return the pids that ended since the last call; empty after `timeout` seconds."""


if sys.platform == "linux":

    class _SystemExits:
        """A pidfd for each process, from Linux 5.3 on."""

        def __init__(self, pids: Sequence[int]) -> None:
            self._poll = select.poll()
            self._pids = {os.pidfd_open(pid): pid for pid in pids}
            for descriptor in self._pids:
                self._poll.register(descriptor, select.POLLIN)

        def wait(self, timeout: float | None) -> set[int]:
            ready = self._poll.poll(None if timeout is None else timeout * 1000)
            for descriptor, _ in ready:
                self._poll.unregister(descriptor)
            return {self._pids[descriptor] for descriptor, _ in ready}

else:

    class _SystemExits:
        """A kqueue, on macOS and the BSDs."""

        def __init__(self, pids: Sequence[int]) -> None:
            self._queue = select.kqueue()
            for pid in pids:
                event = select.kevent(
                    pid,
                    filter=select.KQ_FILTER_PROC,
                    flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,
                    fflags=select.KQ_NOTE_EXIT,
                )
                self._queue.control([event], 0)

        def wait(self, timeout: float | None) -> set[int]:
            return {event.ident for event in self._queue.control(None, 2, timeout)}


def _open_exits(pids: Sequence[int]) -> _Exits:
    try:
        return _SystemExits(pids)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return _PollingExits(pids)


class _PollingExits:
    """Any other POSIX system; a process nobody has waited for counts as running."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._running = set(pids)

    def wait(self, timeout: float | None) -> set[int]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = {pid for pid in self._running if not _exists(pid)}
            self._running -= ended
            if ended or (deadline is not None and time.monotonic() >= deadline):
                return ended
            time.sleep(_POLL_SECONDS)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# The script.


def _exec(parent_pid: int, death_signal: int, executable: str, argv: Sequence[str]) -> None:
    """Tie this process to its parent and become the program."""
    # Python ignores these, and an ignored signal stays ignored across exec.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    tie_to_parent(parent_pid, death_signal=death_signal)
    os.execv(executable, list(argv))  # noqa: S606 - the caller's own program


def _main(arguments: Sequence[str]) -> None:
    # A Ctrl-C in these few milliseconds should end the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    verb, *rest = arguments
    try:
        if verb == "watch":
            parent, target, number = map(int, rest)
            _watch(parent, target, number)
        else:
            _exec(int(rest[0]), int(rest[1]), rest[2], rest[3:])
    except OSError as error:
        sys.stderr.write(f"cannot start {' '.join(rest[3:])}: {error}\n")
        raise SystemExit(_CANNOT_EXECUTE) from None


if __name__ == "__main__":
    _main(sys.argv[1:])
