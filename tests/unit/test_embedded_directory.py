"""The files of the embedded server's data directory."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded import directory
from async_nodes.embedded.directory import MAX_SOCKET_PATH, DataDirectory, Owner
from async_nodes.embedded.server import _quote

if TYPE_CHECKING:
    from pathlib import Path


def mode(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - takes both


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the system's temporary directory by one that is short and empty."""
    path = tmp_path_factory.mktemp("t")
    monkeypatch.setattr(directory.tempfile, "gettempdir", lambda: str(path))
    return path


def test_the_directory_is_private_whatever_the_umask(tmp_path: Path) -> None:
    """Nobody else may reach the socket: the directory around it is 0700."""
    before = os.umask(0)
    try:
        socket = DataDirectory(tmp_path / "new" / "data").prepare()
    finally:
        os.umask(before)
    assert socket == str(tmp_path / "new" / "data" / "redis" / "redis.sock")
    assert mode(tmp_path / "new" / "data" / "redis") == 0o700


def test_an_open_directory_is_closed(tmp_path: Path) -> None:
    """A directory of ours that others could enter is made private."""
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis").chmod(0o777)
    DataDirectory(tmp_path).prepare()
    assert mode(tmp_path / "redis") == 0o700


def test_a_long_path_gets_a_short_socket(tmp_path: Path, short: Path) -> None:
    """A socket's address has about 100 bytes; a longer path moves the socket, not the data."""
    long = tmp_path / ("x" * 60) / ("y" * 60)
    socket = DataDirectory(long).prepare()
    assert len(socket) <= MAX_SOCKET_PATH
    assert socket.startswith(f"{short}/async-nodes-{os.getuid()}-")
    assert mode(os.path.dirname(socket)) == 0o700  # noqa: PTH120 - a string from the interface
    assert (long / "redis").is_dir()


def test_each_long_path_has_its_own_socket(tmp_path: Path, short: Path) -> None:
    """The short name follows from the data directory: same in, same out, never shared."""
    one, two = tmp_path / ("x" * 100), tmp_path / ("y" * 100)
    first = DataDirectory(one).prepare()
    assert DataDirectory(one).prepare() == first
    assert DataDirectory(two).prepare() != first
    assert len(list(short.iterdir())) == 2


def test_a_length_in_bytes_decides(tmp_path: Path, short: Path) -> None:
    """A path of few characters may still have too many bytes."""
    socket = DataDirectory(tmp_path / ("节" * 40)).prepare()
    assert socket.startswith(str(short))


def test_a_planted_link_is_refused(tmp_path: Path, short: Path) -> None:
    """A link where the private directory should be is somebody's trick, not a directory."""
    long = tmp_path / ("x" * 120)
    socket = DataDirectory(long).prepare()
    name = os.path.basename(os.path.dirname(socket))  # noqa: PTH119, PTH120 - a string
    (short / name).rmdir()
    (short / name).symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a link"):
        DataDirectory(long).prepare()


def test_another_users_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data of another user is neither read nor taken over."""
    DataDirectory(tmp_path).prepare()
    monkeypatch.setattr(directory.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(AsyncNodesError, match="belongs to another user") as caught:
        DataDirectory(tmp_path).prepare()
    assert caught.value.code == "data_dir_busy"


def test_the_lock_has_one_holder(tmp_path: Path) -> None:
    """A second taker gets nothing until the first one lets go."""
    data = DataDirectory(tmp_path)
    data.prepare()
    lock = data.try_lock()
    assert lock is not None
    assert DataDirectory(tmp_path).try_lock() is None
    os.close(lock)
    again = data.try_lock()
    assert again is not None
    os.close(again)


def test_the_pid_file_names_the_holder_and_is_cleared_by_the_next(tmp_path: Path) -> None:
    """What a dead server noted is gone as soon as another process holds the lock."""
    data = DataDirectory(tmp_path)
    data.prepare()
    lock = data.try_lock()
    assert lock is not None
    data.write_owner(lock, Owner(4711, "/tmp/a b/redis.sock"))
    assert data.read_owner() == Owner(4711, "/tmp/a b/redis.sock")
    os.close(lock)
    lock = data.try_lock()
    assert lock is not None
    assert data.read_owner() is None
    os.close(lock)


@pytest.mark.parametrize("text", ["", "12", "12\n/tmp/half", "x\n/tmp/s\n", "\n\n"])
def test_a_damaged_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    """A half-written note counts as no note."""
    data = DataDirectory(tmp_path)
    data.prepare()
    data.pid_file.write_text(text)
    assert data.read_owner() is None


def test_the_log_is_bounded(tmp_path: Path) -> None:
    """A log over the limit is put aside once; together they stay near twice the limit."""
    data = DataDirectory(tmp_path)
    data.prepare()
    assert data.rotate_log() == 0
    data.log_file.write_bytes(b"kept\n")
    assert data.rotate_log() == 5
    for _ in range(2):
        data.log_file.write_bytes(b"x" * (directory.MAX_LOG_BYTES + 1))
        assert data.rotate_log() == 0
    assert sorted(path.name for path in data.path.glob("*log*")) == ["redis.log.1"]


def test_the_tail_of_the_log_starts_at_this_start(tmp_path: Path) -> None:
    """An error shows what this server wrote, not what an earlier one did."""
    data = DataDirectory(tmp_path)
    data.prepare()
    data.log_file.write_text("old\n" + "".join(f"new {n}\n" for n in range(20)))
    assert data.log_tail(since=4, lines=2) == "    new 18\n    new 19"
    assert "old" not in data.log_tail(since=4, lines=100)
    assert DataDirectory(tmp_path / "absent").log_tail() == ""


def test_values_are_quoted_for_the_configuration_file() -> None:
    """Spaces, quotes and line ends in a path cannot become directives."""
    assert _quote('/a b/"c"\\d\ne') == '"/a b/\\"c\\"\\\\d\\ne"'
