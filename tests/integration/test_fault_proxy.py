"""A connection through the proxy has what is wrong with it, and nothing else."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from async_nodes.testing.faults import (
    Bandwidth,
    FaultProxy,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Stall,
    Stream,
)

pytestmark = pytest.mark.native


class Echo(socketserver.BaseRequestHandler):
    """Send back what comes, until the end."""

    def handle(self) -> None:
        """Serve one connection."""
        self.request.settimeout(20)
        try:
            while data := self.request.recv(65_536):
                self.request.sendall(data)
        except OSError:
            return


@pytest.fixture(scope="module")
def echo() -> Iterator[tuple[str, int]]:
    """A server that sends back what it gets."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_address[0], server.server_address[1]
        server.shutdown()
        thread.join(5)


@pytest.fixture
def proxy(echo: tuple[str, int]) -> Iterator[FaultProxy]:
    with FaultProxy(echo, seed=7) as running:
        yield running


def connect(proxy: FaultProxy, timeout: float = 10) -> socket.socket:
    return socket.create_connection(proxy.address, timeout=timeout)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send and read as much again, or up to the end."""
    connection.sendall(data)
    return receive(connection, len(data))


def receive(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := connection.recv(65_536)):
        found += more
    return found


def exchange_for_ever(connection: socket.socket) -> None:
    """Exchange a byte again and again, for ten seconds."""
    for _ in range(1_000):
        exchange(connection, b"a")
        time.sleep(0.01)


def test_without_a_toxic_everything_passes(proxy: FaultProxy) -> None:
    """Every byte, both ways, also more than a buffer holds."""
    data = bytes(range(256)) * 4_096
    with closing(connect(proxy)) as one:
        threading.Thread(target=one.sendall, args=(data,), daemon=True).start()
        assert receive(one, len(data)) == data
    assert proxy.seen.connections == 1
    assert proxy.seen.upstream_bytes == proxy.seen.downstream_bytes == len(data)


@pytest.mark.parametrize("stream", list(Stream))
def test_latency_delays_each_piece(proxy: FaultProxy, stream: Stream) -> None:
    """In its direction; pieces that are under way together do not wait for each other."""
    proxy.add(Latency(latency=0.15, stream=stream))
    with closing(connect(proxy)) as one:
        began = time.monotonic()
        for _ in range(20):
            one.sendall(b"x")
            time.sleep(0.001)
        assert receive(one, 20) == b"x" * 20
        took = time.monotonic() - began
    assert 0.15 <= took < 1.5, "delays add up"
    proxy.clear()
    with closing(connect(proxy)) as one:
        assert exchange(one, b"fast") == b"fast"


def test_bandwidth_is_what_it_says(proxy: FaultProxy) -> None:
    """20,000 bytes at 100,000 a second take a fifth of one."""
    proxy.add(Bandwidth(rate=100_000))
    with closing(connect(proxy)) as one:
        began = time.monotonic()
        assert len(exchange(one, b"y" * 20_000)) == 20_000
        assert time.monotonic() - began >= 0.19


def test_slices_arrive_whole(proxy: FaultProxy) -> None:
    """However small they are cut."""
    proxy.add(Slicer(average_size=3, size_variation=2, stream=Stream.UPSTREAM))
    proxy.add(Slicer(average_size=3, size_variation=2))
    with closing(connect(proxy)) as one:
        assert exchange(one, bytes(range(200))) == bytes(range(200))


def test_so_much_and_no_more(proxy: FaultProxy) -> None:
    """The connection ends after the limit."""
    proxy.add(LimitData(bytes=10))
    with closing(connect(proxy)) as one:
        assert exchange(one, b"z" * 50) == b"z" * 10
    assert proxy.seen.cut == 1


def test_a_stalled_connection_comes_back_or_ends(proxy: FaultProxy) -> None:
    """Nothing passes; with its end it goes on, or after its time it is closed."""
    proxy.add(Stall(name="cable"))
    with closing(connect(proxy, timeout=0.3)) as one:
        with pytest.raises(TimeoutError):
            exchange(one, b"wait")
        proxy.remove("cable")
        one.settimeout(10)
        assert receive(one, 4) == b"wait"
    proxy.add(Stall(timeout=0.1))
    with closing(connect(proxy)) as one:
        assert exchange(one, b"lost") == b""


def test_a_reset_loses_what_is_under_way(proxy: FaultProxy) -> None:
    """At once, or after a time."""
    proxy.add(ResetPeer(timeout=0.1))
    with closing(connect(proxy)) as one, pytest.raises(ConnectionResetError):
        exchange_for_ever(one)


def test_an_end_can_be_slow(proxy: FaultProxy) -> None:
    """The connection is open for a while after the server has closed it."""
    proxy.add(SlowClose(delay=0.3, stream=Stream.UPSTREAM))
    with closing(connect(proxy)) as one:
        assert exchange(one, b"b") == b"b"
        began = time.monotonic()
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
        assert time.monotonic() - began >= 0.29


def test_a_server_can_be_gone(proxy: FaultProxy) -> None:
    """Who is connected is cut off, who connects as well; afterwards all is well."""
    with closing(connect(proxy)) as one:
        assert exchange(one, b"c") == b"c"
        proxy.down()
        with pytest.raises(ConnectionResetError):
            exchange(one, b"c")
        with closing(connect(proxy)) as other, pytest.raises(ConnectionError):
            exchange_for_ever(other)
    proxy.up()
    with closing(connect(proxy)) as one:
        assert exchange(one, b"e") == b"e"


def test_the_same_seed_gives_the_same_faults(echo: tuple[str, int]) -> None:
    """Which of twenty connections a toxic with half a chance has."""

    def struck(seed: int) -> list[bool]:
        with FaultProxy(echo, seed=seed) as proxy:
            proxy.add(LimitData(bytes=1, toxicity=0.5))
            found = []
            for _ in range(20):
                with closing(connect(proxy)) as one:
                    found.append(exchange(one, b"two") != b"two")
            return found

    first = struck(3)
    assert first == struck(3)
    assert True in first
    assert False in first
    assert first != struck(4)


def test_it_is_a_command_as_well(echo: tuple[str, int]) -> None:
    """With toxics in Toxiproxy's spelling; a wrong one is told."""
    argv = [sys.executable, "-P", "-m", "async_nodes.testing.faults"]
    argv += ["--upstream", f"127.0.0.1:{echo[1]}"]
    toxic = ["--toxic", "limit_data:bytes=2"]
    with subprocess.Popen([*argv, *toxic], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            port = int(running.stdout.readline().rpartition(":")[2])
            with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as one:
                assert exchange(one, b"four") == b"fo"
        finally:
            running.terminate()
        assert running.wait(10) == 0
    done = subprocess.run(
        [*argv, "--toxic", "late:x=1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "there is no toxic 'late'" in done.stderr
