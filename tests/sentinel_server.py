"""A primary, its replica and three Sentinels where a test would have one server.

`Certificates` makes what they need for TLS: an authority, and certificates that are good or, each
in one way, bad.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import redis

from async_nodes.testing.sentinel_group import Member, SentinelGroup, Tls
from tests.servers import server_binary

GOOD = "subjectAltName=DNS:localhost,IP:127.0.0.1"
WRONG_NAME = "subjectAltName=DNS:elsewhere.example"


class SentinelServer:
    """Be to a stack what a `RedisServer` is.

    Args:
        name: the program, as `server_binary` takes it.
        options: of `SentinelGroup`.

    """

    def __init__(self, name: str = "redis-server", **options: Any) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="an-"))
        binary = server_binary(name)
        assert binary is not None, f"{name} is absent"
        self.group = SentinelGroup(binary, self._folder, **options)

    @property
    def url(self) -> str:
        """Return the address of the Sentinels."""
        return self.group.url

    @property
    def address(self) -> str:
        """Return the value of `ASYNC_NODES_REDIS_URL`."""
        return self.group.url

    def start(self) -> None:
        """Start everything and wait until it serves."""
        self.group.start()

    def kill_primary(self) -> Member:
        """End the primary as a crash would; return it."""
        member = self.group.primary()
        self.group.kill(member)
        return member

    @contextlib.contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """Give a client of the primary."""
        with self.group.client(self.group.primary()) as client:
            yield client

    def remove(self) -> None:
        """End every process and remove their files."""
        self.group.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class Certificates:
    """Make an authority, and certificates that it signs.

    Args:
        folder: for the files.
        name: of the authority.

    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.authority = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _new_key(self._key)
        _openssl(
            "req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={name}", "-days", 30,
            "-out", self.authority,
        )  # fmt: skip

    def sign(self, name: str, names: str = GOOD, *, days: int = 30) -> Tls:
        """Return a certificate with its key, and the authority.

        Args:
            name: of the files.
            names: the extension that says whose it is.
            days: for which it is valid from now; negative for one that was.

        """
        path, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        request, extension = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        _new_key(key)
        extension.write_text(names + "\n")
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", self._key,
            "-out", path, "-days", days, "-extfile", extension, "-set_serial", time.time_ns(),
        )  # fmt: skip
        return Tls(path, key, self.authority)


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _openssl(*words: object) -> None:
    command: Sequence[str] = ["openssl", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
