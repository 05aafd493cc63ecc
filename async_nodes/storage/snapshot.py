"""Take a backup: one moment of the whole store, as the server's own snapshot format (RDB).

The server is asked for it as a replica would ask (the command SYNC), so it works over the network,
without a file of the server's and without stopping anything. The file is complete or not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from redis.exceptions import RedisError

from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.redis_address import unconnected

CONNECT_SECONDS: Final = 5.0
SILENCE_SECONDS: Final = 60.0
"""A server sends a sign of life each second while it prepares the snapshot."""

CHUNK: Final = 256 << 10
MAGICS: Final = (b"REDIS", b"VALKEY")
_MARK: Final = 40  # bytes that stand behind a snapshot whose length was not known before
_TRAILER: Final = 9  # the opcode of the end and a checksum

Progress = Callable[[int, int | None], None]


def take(url: str, path: Path, progress: Progress = lambda _done, _all: None) -> int:
    """Write a snapshot of the server to a file and return its bytes.

    Args:
        url: of the server, as redis-py takes it; all of its databases are in the snapshot.
        path: the file; replaced only by a complete one.
        progress: told of the bytes so far, and of all bytes where the server says how many.

    Raises:
        AsyncNodesError: ``backup_failed`` with what went wrong.

    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    connection = unconnected(url, connect_timeout=CONNECT_SECONDS, client_name="async-nodes:backup")
    try:
        connection.connect()  # type: ignore[no-untyped-call]
        # A snapshot that goes straight to the socket needs no room on the server's disk.
        connection.send_command("REPLCONF", "capa", "eof")  # type: ignore[no-untyped-call]
        connection.read_response()
        connection.send_command("SYNC")  # type: ignore[no-untyped-call]
        # What follows is no reply of the protocol, so redis-py's parser is passed over.
        stream: Any = connection._sock  # noqa: SLF001
        stream.settimeout(SILENCE_SECONDS)
        with partial.open("wb") as file:
            size = _copy(stream, file, progress)
            file.flush()
            os.fsync(file.fileno())
        check(partial)
        partial.replace(path)
    except (RedisError, OSError) as error:
        raise AsyncNodesError("backup_failed", str(error) or type(error).__name__) from error
    finally:
        connection.disconnect()  # type: ignore[no-untyped-call]
        with suppress(FileNotFoundError):
            partial.unlink()
    return size


def check(path: Path) -> None:
    """Refuse a file that is no whole snapshot.

    Raises:
        AsyncNodesError: ``backup_failed``.

    """
    with path.open("rb") as file:
        first = file.read(6)
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _TRAILER, 0))
        last = file.read()
    if not first.startswith(MAGICS) or len(last) != _TRAILER or last[0] != 0xFF:  # noqa: PLR2004
        raise AsyncNodesError("backup_failed", f"{path} is not a complete snapshot")


def _copy(stream: Any, file: Any, progress: Progress) -> int:
    """Copy the snapshot from the socket; what the server streams behind it is not wanted."""
    head, rest = _header(stream)
    if head.startswith(b"$EOF:"):
        return _copy_until(stream, file, rest, head[5:], progress)
    if not head.startswith(b"$"):
        raise AsyncNodesError(
            "backup_failed", f"the server answered {head.decode('latin-1')[:200]}"
        )
    size, done = int(head[1:]), 0
    for piece in _pieces(stream, rest):
        part = piece[: size - done]
        file.write(part)
        done += len(part)
        progress(done, size)
        if done == size:
            return size
    return done


def _copy_until(stream: Any, file: Any, rest: bytes, mark: bytes, progress: Progress) -> int:
    """Copy until the mark, which may be cut anywhere between two pieces."""
    done, tail = 0, b""
    for piece in _pieces(stream, rest):
        tail += piece
        found = tail.find(mark)
        ready = tail[:found] if found >= 0 else tail[:-_MARK]
        file.write(ready)
        done += len(ready)
        progress(done, None)
        if found >= 0:
            return done
        tail = tail[len(ready) :]
    return done


def _header(stream: Any) -> tuple[bytes, bytes]:
    """Return the first line that is not empty, and what came with it."""
    data = b""
    for piece in _pieces(stream, b""):
        data = (data + piece).lstrip(b"\n")
        line, end, rest = data.partition(b"\r\n")
        if end:
            return line, rest
    return data, b""


def _pieces(stream: Any, first: bytes) -> Iterator[bytes]:
    if first:
        yield first
    while True:
        piece = stream.recv(CHUNK)
        if not piece:
            raise ConnectionError("the server closed the connection before the snapshot ended")
        yield piece
