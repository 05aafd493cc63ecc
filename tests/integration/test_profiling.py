"""Profiles: the labels that a Pyroscope server gets, and flame graphs by py-spy."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from greenlet import greenlet

from async_nodes.cli.failures import Failure
from async_nodes.cli.verbs import profile
from async_nodes.telemetry.profiling import Profiler

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BUSY = """
import sys, time
from async_nodes.telemetry import profiling
profiling.start(sys.argv[1], "worker-cpu", upload_seconds=1)
until = time.monotonic() + 2.5
with profiling.PROFILING.profiler.labelled("node.busy", "t_busy", {trace!r}):
    def spin_in_the_body():
        while time.monotonic() < until:
            sum(range(1000))
    spin_in_the_body()
profiling.stop()
"""


class Stub(ThreadingHTTPServer):
    """Take what a Pyroscope client pushes."""

    def __init__(self) -> None:
        self.pushed: list[tuple[str, bytes]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if body[:2] == b"\x1f\x8b":
                    body = gzip.decompress(body)
                stub.pushed.append((self.path, body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.shutdown()
    made.server_close()


def test_labels_reach_the_server(stub: Stub) -> None:
    """The node, the task of a sampled trace and the version are pushed with the stacks."""
    url = f"http://127.0.0.1:{stub.server_port}"
    argv = [sys.executable, "-c", BUSY.format(trace=SAMPLED), url]
    subprocess.run(argv, check=True, timeout=60, capture_output=True)
    whole = b"".join(body for _, body in stub.pushed)

    assert {path for path, _ in stub.pushed} == {"/push.v1.PusherService/Push"}
    for word in (b"async-nodes-worker-cpu", b"node.busy", b"t_busy", b"version"):
        assert word in whole


def test_labels_follow_the_greenlets() -> None:
    """A body that another one interrupts has its own labels again when it goes on."""
    now: set[tuple[str, str]] = set()
    profiler = Profiler(lambda *one: now.add(one), lambda *one: now.discard(one))
    seen = []

    def first() -> None:
        with profiler.labelled("a", "t_a", ""):
            seen.append(set(now))
            two.switch()
            seen.append(set(now))

    def second() -> None:
        with profiler.labelled("b", "t_b", SAMPLED):
            seen.append(set(now))
            one.switch()

    one, two = greenlet(first), greenlet(second)
    from greenlet import settrace

    settrace(profiler.on_switch)
    try:
        one.switch()
    finally:
        settrace(None)
        two.throw()

    assert seen == [{("node", "a")}, {("node", "b"), ("task", "t_b")}, {("node", "a")}]
    assert now == set()


def test_a_process_is_drawn(tmp_path: Path) -> None:
    """The flame graph is an SVG that names the function at work."""
    code = "import time\ndef spin_here():\n    while True: sum(range(999))\nspin_here()"
    busy = subprocess.Popen([sys.executable, "-c", code])
    try:
        profile.record(busy.pid, seconds=1, rate=99, output=tmp_path / "p.svg")
    finally:
        busy.kill()
        busy.wait()
    drawn = (tmp_path / "p.svg").read_text("utf-8")

    assert drawn.lstrip().startswith("<?xml")
    assert "spin_here" in drawn


def test_a_process_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its number, with what to look at."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(Failure, match=str(gone.pid)) as told:
        profile.record(gone.pid, seconds=1, rate=99, output=tmp_path / "p.svg")

    assert told.value.hint
