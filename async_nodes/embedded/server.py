"""Run one server over one data directory, and end it with this process.

Outside the way of a task. Knows the server as a process and a URL, never what is stored in it.

    start:  lock free   → launch, own it          lock taken, answers   → share it
            lock taken, silent → data_dir_busy    ends before ready     → redis_failed + its log
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded import lifeline
from async_nodes.embedded.binary import ServerBinary, find_binary
from async_nodes.embedded.directory import DataDirectory, Owner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Self

_ASK_SECONDS = 1.0
#: How long the holder of the lock may stay silent: it may be between its start and its socket.
_SILENCE_SECONDS = 5.0
#: Any of these in the log of a server that ended: it had begun to read its data.
_DATA_TROUBLE = ("append only file", "AOF MANIFEST", "RDB")
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1

_CONFIG: Final[Mapping[str, str]] = {
    # Reached through the socket only; the directory around it is 0700 as well.
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "no",
    "supervised": "no",
    # A write is acked after it reached the kernel, so it survives SIGKILL; a power cut may cost
    # the last second.
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",
    "save": "",
    # The records are the truth: a full server refuses writes, it never forgets.
    "maxmemory-policy": "noeviction",
    "proc-title-template": "async-nodes redis",
    "loglevel": "notice",
}
#: Shorter than the title, which replaces them: a server marks a shorter title with a full stop.
#: "-" reads the configuration from stdin. As an argument its path would be a pattern: one with
#: "?" in it matches nothing, and the server would run with its defaults, on a TCP port.
_ARGV = ("redis", "-")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a server says about itself."""

    pid: int
    is_loading: bool


class EmbeddedServer:
    """Own, or share, the server of one data directory.

    Not thread-safe: one thread starts and stops it. In a forked child the object stays usable
    for `url`, and `stop` there does nothing.

    Args:
        data_dir: the product's data directory; the server uses `redis/` below it.
        binary: the program to run; found by `find_binary` when None.
        config: more configuration directives, e.g. {"maxmemory": "64mb"}; they win.
        ready_timeout: seconds until `start` gives up, loading of the data included.

    """

    def __init__(
        self,
        data_dir: str | Path,
        *,
        binary: ServerBinary | None = None,
        config: Mapping[str, str] | None = None,
        ready_timeout: float = 30.0,
    ) -> None:
        self._directory = DataDirectory(data_dir)
        self._binary = binary
        self._config = {**_CONFIG, **(config or {})}
        self._ready_timeout = ready_timeout
        self._socket: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._starter: int | None = None
        self._shared_pid: int | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def url(self) -> str:
        """Return `unix://<socket>?db=0` as redis-py reads it, special characters escaped.

        Raises:
            RuntimeError: the server was never started.

        """
        return f"unix://{quote(self.socket_path)}?db=0"

    @property
    def socket_path(self) -> str:
        """Return the socket's path, unescaped.

        Raises:
            RuntimeError: the server was never started.

        """
        if self._socket is None:
            message = "the embedded server has not been started"
            raise RuntimeError(message)
        return self._socket

    @property
    def pid(self) -> int | None:
        """Return the server's process id, or None before `start` and after `stop`."""
        return self._process.pid if self._process is not None else self._shared_pid

    @property
    def is_owner(self) -> bool:
        """Tell whether this process started the server, so that it ends with this process."""
        return self._process is not None and self._starter == os.getpid()

    def is_running(self) -> bool:
        """Tell whether the server process lives (owned) or answers (shared, or after a fork)."""
        if self.is_owner:
            return cast("subprocess.Popen[bytes]", self._process).poll() is None
        if self._socket is None or self.pid is None:
            return False
        answer = _ask(self._socket)
        return answer is not None and answer.pid == self.pid

    def start(self) -> None:
        """Make the server answer: start it, or share the one already running.

        Raises:
            AsyncNodesError: `no_redis`, `redis_too_old`, `redis_failed` (with the server's last
                log lines) or `data_dir_busy`.

        """
        if self.is_running():
            return
        self._forget()
        began = time.monotonic()
        try:
            socket = self._directory.prepare()
            while not self._launch_or_share(socket, began):
                time.sleep(_LONGEST_PAUSE)
        except OSError as error:
            message = (
                f"The data directory {self._directory.path} cannot be used: {error}. "
                "Set ASYNC_NODES_DATA_DIR to another one."
            )
            raise AsyncNodesError("redis_failed", message) from error

    def stop(self, *, timeout: float = 10.0) -> None:
        """End the server if this process owns it; a shared one is only let go.

        Args:
            timeout: seconds it may take to write its data before it is killed.

        """
        if self.is_owner:
            process = cast("subprocess.Popen[bytes]", self._process)
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._forget()

    def kill(self) -> None:
        """End the server by SIGKILL, as a crash would; `start` brings it back with its data.

        Raises:
            RuntimeError: this process does not own the server.

        """
        if not self.is_owner:
            message = "only the process that started the server may kill it"
            raise RuntimeError(message)
        process = cast("subprocess.Popen[bytes]", self._process)
        process.kill()
        process.wait()
        self._forget()

    def restart(self) -> None:
        """Kill the server and start it again on the same data and URL."""
        self.kill()
        self.start()

    def _forget(self) -> None:
        self._process = None
        self._starter = None
        self._shared_pid = None

    def _launch_or_share(self, socket: str, began: float) -> bool:
        """Try once each way; False means that the lock's holder needs more time."""
        lock = self._directory.try_lock()
        if lock is not None:
            self._launch(lock, socket, deadline=began + self._ready_timeout)
            return True
        owner = self._directory.read_owner()
        answer = _ask(owner.socket) if owner is not None else None
        if owner is None or answer is None or answer.pid != owner.pid:
            self._give_up_after(min(_SILENCE_SECONDS, self._ready_timeout), began, owner)
            return False
        if answer.is_loading:
            self._give_up_after(self._ready_timeout, began, owner)
            return False
        self._socket = owner.socket
        self._shared_pid = owner.pid
        return True

    def _give_up_after(self, seconds: float, began: float, owner: Owner | None) -> None:
        if time.monotonic() - began < seconds:
            return
        who = f"process {owner.pid}" if owner is not None else "another process"
        message = (
            f"{self._directory.path} is in use by {who}, which did not become ready within "
            f"{seconds:g} s. End that process, or set ASYNC_NODES_DATA_DIR to another directory."
        )
        raise AsyncNodesError("data_dir_busy", message)

    def _launch(self, lock: int, socket: str, *, deadline: float) -> None:
        try:
            binary = self._binary or find_binary()
            log_start = self._directory.rotate_log()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(socket)  # noqa: PTH108 - the lock is ours, so the file is stale
            self._directory.write_config(self._config_text(socket))
            process = self._spawn(binary, lock)
            self._directory.write_owner(lock, Owner(process.pid, socket))
        finally:
            # From here on only the server holds the lock, so it lasts exactly as long as it does.
            os.close(lock)
        try:
            self._wait_until_ready(process, socket, log_start, deadline)
        except BaseException:
            process.kill()
            process.wait()
            raise
        self._process = process
        self._starter = os.getpid()
        self._socket = socket

    def _spawn(self, binary: ServerBinary, lock: int) -> subprocess.Popen[bytes]:
        # The server needs none of our settings, and an unknown locale would stop it.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("ASYNC_NODES_")}
        environ["LC_ALL"] = "C"
        try:
            with (
                self._directory.config_file.open("rb") as configuration,
                self._directory.log_file.open("ab") as log,
            ):
                return lifeline.popen(
                    list(_ARGV),
                    executable=binary.path,
                    env=environ,
                    cwd=self._directory.path,
                    stdin=configuration,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock,),
                    # Not SIGKILL: the server writes what it holds before it goes.
                    death_signal=signal.SIGTERM,
                )
        except OSError as error:
            message = f"{binary.path} could not be started: {error}."
            raise AsyncNodesError("redis_failed", message) from error

    def _config_text(self, socket: str) -> str:
        directives = {
            **self._config,
            "dir": str(self._directory.path),
            "logfile": str(self._directory.log_file),
            "unixsocket": socket,
        }
        return "".join(f"{name} {_quote(value)}\n" for name, value in directives.items())

    def _wait_until_ready(
        self, process: subprocess.Popen[bytes], socket: str, log_start: int, deadline: float
    ) -> None:
        pause = _FIRST_PAUSE
        while True:
            if process.poll() is not None:
                what = f"ended with status {process.returncode} before it was ready"
                raise self._failure(what, log_start, ended=True)
            answer = _ask(socket)
            if answer is not None and answer.pid == process.pid and not answer.is_loading:
                # Routine lines would make the log grow for as long as the server lives.
                _lower_log_level(socket)
                return
            if time.monotonic() > deadline:
                what = f"was not ready within {self._ready_timeout:g} s"
                raise self._failure(what, log_start, ended=False)
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _failure(self, what: str, log_start: int, *, ended: bool) -> AsyncNodesError:
        log = self._directory.log_tail(since=log_start)
        advice = ""
        if ended and any(words in log for words in _DATA_TROUBLE):
            advice = (
                f" It could not read its data: move {self._directory.path / 'appendonlydir'} away "
                "to start empty, or repair a copy of it with redis-check-aof --fix (Valkey: "
                "valkey-check-aof)."
            )
        message = f"The embedded server {what}.{advice} The end of its log:\n{log or '    (empty)'}"
        return AsyncNodesError("redis_failed", message)


def _client(socket: str) -> redis.Redis:
    return redis.Redis(
        unix_socket_path=socket,
        socket_timeout=_ASK_SECONDS,
        socket_connect_timeout=_ASK_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _ask(socket: str) -> _Answer | None:
    """Return the server's answer, or None when nothing that speaks its protocol answers."""
    client = _client(socket)
    try:
        info = client.info()
        return _Answer(int(info["process_id"]), bool(info["loading"]))
    except (redis.RedisError, OSError, KeyError, ValueError):
        return None
    finally:
        client.close()


def _lower_log_level(socket: str) -> None:
    client = _client(socket)
    try:
        client.config_set("loglevel", "warning")
    except redis.RedisError:
        # A server renamed or guarded by `config` still works; its log is bounded at each start.
        return
    finally:
        client.close()


def _quote(value: str) -> str:
    """Return a value as the configuration file's own syntax wants it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
