"""The data directory of the embedded server: its files, its lock and its socket's short path.

Outside the way of a task. Knows files, not processes.

    <data_dir>/redis/           0700, ours
        redis.pid               the lock: held by the *server* process for as long as it lives;
                                two lines, its pid and its socket's path
        redis.conf              written anew at every start
        redis.log, redis.log.1  the server's log, bounded
        redis.sock              unless that path is too long for a socket address
        appendonlydir/          the data
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from async_nodes.core.errors import AsyncNodesError

#: Bytes of a socket's path: sun_path holds 104 on macOS (108 on Linux), the last one is NUL.
MAX_SOCKET_PATH = 103
#: A larger log is put aside at the next start; one old log is kept.
MAX_LOG_BYTES = 1 << 20
_TAIL_BYTES = 16384


@dataclass(frozen=True, slots=True)
class Owner:
    """The server that wrote the pid file last; it need not be alive."""

    pid: int
    socket: str


class DataDirectory:
    """Hold the paths below one data directory; nothing is created before `prepare`."""

    def __init__(self, data_dir: str | Path) -> None:
        self.path = Path(os.path.realpath(Path(data_dir).expanduser() / "redis"))
        self.pid_file = self.path / "redis.pid"
        self.config_file = self.path / "redis.conf"
        self.log_file = self.path / "redis.log"

    def prepare(self) -> str:
        """Create what is missing and return the path for the socket.

        Raises:
            AsyncNodesError: `data_dir_busy` when the directory belongs to another user.
            OSError: it cannot be made or written.

        """
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_private(self.path)
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(f"{self.path} is not writable")
        return str(self._socket_path())

    def try_lock(self) -> int | None:
        """Return a descriptor that holds the lock, or None when a living server has it."""
        descriptor = os.open(self.pid_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        return descriptor

    def write_owner(self, lock: int, owner: Owner) -> None:
        """Note in the locked file who holds it."""
        os.pwrite(lock, f"{owner.pid}\n{owner.socket}\n".encode("utf-8", "surrogateescape"), 0)

    def read_owner(self) -> Owner | None:
        """Return the noted server, or None when the note is missing or half written."""
        try:
            text = self.pid_file.read_bytes().decode("utf-8", "surrogateescape")
        except OSError:
            return None
        pid, _, rest = text.partition("\n")
        socket, newline, _ = rest.partition("\n")
        return Owner(int(pid), socket) if pid.isdigit() and newline else None

    def write_config(self, lines: str) -> None:
        """Write the server's configuration, readable by us only."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with open(os.open(self.config_file, flags, 0o600), "wb") as file:  # noqa: PTH123
            file.write(lines.encode("utf-8", "surrogateescape"))

    def rotate_log(self) -> int:
        """Put a large log aside and return the size of what is left, where new lines begin."""
        try:
            size = self.log_file.stat().st_size
        except FileNotFoundError:
            return 0
        if size <= MAX_LOG_BYTES:
            return size
        self.log_file.replace(self.log_file.with_name("redis.log.1"))
        return 0

    def log_tail(self, *, since: int = 0, lines: int = 12) -> str:
        """Return the last lines of the log written after byte `since`, indented."""
        try:
            with self.log_file.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                file.seek(max(since, end - _TAIL_BYTES))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join("    " + line for line in text.splitlines()[-lines:] if line.strip())

    def _socket_path(self) -> Path:
        socket = self.path / "redis.sock"
        if _fits(socket):
            return socket
        # The same data directory must give the same name in every process.
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        socket = Path(tempfile.gettempdir()) / f"async-nodes-{os.getuid()}-{name}" / "redis.sock"
        if not _fits(socket):
            socket = Path("/tmp", *socket.parts[-2:])  # noqa: S108 - made 0700 and checked
        _make_private(socket.parent)
        return socket


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= MAX_SOCKET_PATH


def _make_private(path: Path) -> None:
    """Create a 0700 directory, or check that the one there is a directory of ours."""
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(f"{path} is a link, not a directory")
    if found.st_uid != os.geteuid():
        message = f"{path} belongs to another user (uid {found.st_uid})."
        raise AsyncNodesError("data_dir_busy", message)
    if stat.S_IMODE(found.st_mode) != 0o700:  # noqa: PLR2004 - also what the umask took away
        path.chmod(0o700)
