from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from async_nodes.cli.console import Console
from async_nodes.cli.demo.director import Director
from async_nodes.cli.terminal import Terminal
from async_nodes.testing import ModelConfig, ModelServer
from tests.acceptance.cli_processes import (
    CLI,
    command,
    environ,
    free_port,
    get,
    is_ready,
    program,
)
from tests.acceptance.cli_stub import AGAIN, RUNNING, SCRIPTS, StubServer, stub_server

NODES = ("llm.chat", "http.request", "text.chunk", "test.fail")


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with stub_server() as server:
        yield server


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer(ModelConfig(ttft_ms=5.0, gap_ms=1.0)) as server:
        yield server


def direct(stub: StubServer, model: ModelServer, *, live: bool = False) -> tuple[bool, str]:
    """Run the demo's tasks against the stub and return whether it went well and what was shown."""
    stream = StringIO()
    began = time.monotonic()
    director = Director(
        console=Console(stream, Terminal(live=live, columns=120, rows=40)),
        url=stub.url,
        api_key=None,
        model_url=model.url.removesuffix("/v1"),
        clock=lambda: time.monotonic() - began,
        ending=threading.Event(),
    )
    went_well = director.run()
    assert director.first_token_at is not None
    return went_well, stream.getvalue()


def test_everything_is_told_in_plain_lines(stub: StubServer, model: ModelServer) -> None:
    """Without a terminal each change is a line, no cursor moves, and the table adds it up."""
    went_well, shown = direct(stub, model)
    assert went_well, shown
    assert "\x1b" not in shown
    for node in NODES:
        assert re.search(rf"s  {re.escape(node)} +accepted as t_", shown)
        assert re.search(rf"s  {re.escape(node)} +✔ Succeeded", shown)
    assert "failed, waits to be retried" in shown
    assert "Every word you read here" in shown
    assert re.search(r"^sum +\d", shown, re.MULTILINE)
    assert "blocking calls would have cost" in shown


def test_a_frame_is_drawn_on_a_terminal(stub: StubServer, model: ModelServer) -> None:
    """On a terminal the blocks are drawn over each other, and the last frame stays."""
    went_well, shown = direct(stub, model, live=True)
    assert went_well, shown
    assert shown.count("\x1b[J") > 5
    last = shown.rpartition("\x1b[J")[2]
    assert last.count("Succeeded") == 2 * len(NODES)  # in the frame, and in the table below it
    assert "one answer after" in last


@pytest.mark.parametrize(
    ("node", "script", "said"),
    [
        ("http.request", [RUNNING, (0, "done", {"output": {"status": 500}})], "unexpected result"),
        (
            "test.fail",
            [RUNNING, AGAIN, (0, "done", {"state": "Failed", "attempt": 2, "output": None})],
            "test.fail: Failed",
        ),
    ],
)
def test_a_task_that_ends_otherwise_is_a_failure(
    stub: StubServer,
    model: ModelServer,
    monkeypatch: pytest.MonkeyPatch,
    node: str,
    script: object,
    said: str,
) -> None:
    """One task that does not end as it should fails the demo and is named."""
    monkeypatch.setitem(SCRIPTS, node, script)  # type: ignore[arg-type]
    went_well, shown = direct(stub, model)
    assert not went_well
    assert said in shown
    assert "would have cost" not in shown


# -- for real --------------------------------------------------------------------------------------

real = pytest.mark.needs("redis")


@real
def test_once_in_an_empty_environment() -> None:
    """`demo --once` ends with 0 in time, tells the first token, leaves no process and no file."""
    before = leftovers()
    began = time.monotonic()
    with program("demo", "--once", env=environ()) as running:
        status = running.end(60.0)
        took = time.monotonic() - began
        assert status == 0, running.text
        assert took < 15
        assert re.search(r"First token \d+\.\d s after the start", running.text)
        assert "Every word you read here" in running.text
        assert not [line for line in running.lines if "Traceback" in line]
    assert leftovers() == before


@real
def test_once_on_a_terminal() -> None:
    """On a real terminal the demo draws, colours and ends with 0."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [*CLI, "demo", "--once"],
        env=environ(TERM="xterm-256color", COLUMNS="100", LINES="40"),
        stdin=child,
        stdout=child,
        stderr=child,
    )
    os.close(child)
    shown = b""
    try:
        while piece := os.read(parent, 65536):
            shown += piece
    except OSError:  # how a pseudo-terminal says that its other end was closed
        pass
    finally:
        os.close(parent)
        status = process.wait(30)
    text = shown.decode()
    assert status == 0, text
    assert "\x1b[J" in text
    assert "\x1b[32m" in text
    assert "▌" in text


@real
def test_it_stays_up_until_ctrl_c() -> None:
    """Without --once the demo prints its URLs, serves, and Ctrl-C ends it with 130."""
    port = free_port()
    with program("demo", "--port", str(port), env=environ()) as running:
        running.wait_for("It stays up until Ctrl-C")
        assert is_ready(port)
        assert get(f"http://127.0.0.1:{port}/v1/nodes")[0] == 200
        assert running.stop(signal.SIGINT) == 130


@real
def test_ctrl_c_in_the_middle_says_no_more() -> None:
    """A demo that is interrupted ends with 130, without a table and without URLs."""
    with program("demo", env=environ()) as running:
        running.wait_for("accepted as t_")
        assert running.stop(signal.SIGINT) == 130
        assert "/v1/nodes" not in running.text
        assert "would have cost" not in running.text


@real
def test_a_chosen_server_is_left_clean(tmp_path: Path) -> None:
    """On a server of the person's own the demo uses keys of its own and deletes them."""
    import redis

    from async_nodes.embedded import EmbeddedServer

    with EmbeddedServer(tmp_path) as server:
        client = redis.Redis.from_url(server.url)
        client.set("mine", "1")
        done = command("demo", "--once", env=environ(ASYNC_NODES_REDIS_URL=server.url))
        keys = client.keys("*")
        client.close()
    assert done.returncode == 0, done.stdout + done.stderr
    # The deadlines of Celery's own bindings are the server's, not the demo's, and expire.
    assert set(keys) - {b"_kombu.binding_deadlines"} == {b"mine"}


@real
def test_a_port_asked_for_by_name_is_not_replaced() -> None:
    """With --port a busy port is an error; the usual port, when busy, is replaced by another."""
    with stub_server() as other:
        done = command("demo", "--once", "--port", str(other.server_address[1]), env=environ())
    assert done.returncode == 1
    assert "[port_busy]" in done.stderr


def leftovers() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("async-nodes-demo-*"))
