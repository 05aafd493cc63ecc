from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from async_nodes.cli.address import free_port, refuse_busy_port
from async_nodes.cli.http import Client
from async_nodes.cli.main import main
from async_nodes.core.errors import AsyncNodesError
from tests.acceptance.cli_stub import StubServer, stub_server


@pytest.fixture
def server() -> Iterator[StubServer]:
    with stub_server() as stub:
        yield stub


def test_calls_share_one_connection(server: StubServer) -> None:
    """A client keeps its connection alive over calls."""
    accepted: list[object] = []
    verify = server.verify_request
    server.verify_request = lambda *a: bool(accepted.append(a) or verify(*a))  # type: ignore[method-assign,func-returns-value]
    with Client(server.url) as client:
        for _ in range(3):
            client.get("/healthz")
    assert len(accepted) == 1


def test_a_closed_connection_is_replaced_where_that_is_safe(server: StubServer) -> None:
    """A kept connection that died is opened anew for a read, and for a write with a key."""
    with Client(server.url) as client:
        for call in (
            lambda: client.get("/healthz"),
            lambda: client.post(
                "/v1/tasks", {"node": "echo", "inputs": {}}, headers={"Idempotency-Key": "k"}
            ),
        ):
            client.get("/healthz")
            assert client._connection is not None
            client._connection.sock.shutdown(socket.SHUT_RDWR)
            assert call().status < 300
        client._connection.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(AsyncNodesError, match="does not answer"):
            client.post("/v1/tasks", {"node": "echo", "inputs": {}})


def test_a_stream_survives_cuts(server: StubServer) -> None:
    """A stream cut after every second event is resumed, and each event is seen exactly once."""
    server.cut_after = 2
    with Client(server.url) as client:
        body = {"node": "test.fail", "inputs": {}}
        task_id = client.post("/v1/tasks", body).document["task_id"]
        seen = [(message.id, message.type) for message in client.events(task_id)]
    assert [number for number, _ in seen] == ["1", "2", "3", "4", "5"]
    assert seen[-1][1] == "done"
    assert sum("/events" in line for line in server.requests) == 3


def test_a_stream_that_was_seen_ends_at_once(server: StubServer) -> None:
    """A resume behind the last event yields nothing and ends."""
    with Client(server.url) as client:
        task_id = client.post("/v1/tasks", {"node": "echo", "inputs": {}}).document["task_id"]
        last = [message.id for message in client.events(task_id)][-1]
        assert list(client.events(task_id, after=last)) == []


def test_a_server_that_stays_away_is_given_up() -> None:
    """A stream whose server has gone ends with one error after the patience."""
    with stub_server() as server, Client(server.url) as client:
        task_id = client.post("/v1/tasks", {"node": "forever", "inputs": {}}).document["task_id"]
        server.cut_after = 1
        events = client.events(task_id, patience=0.1)
        next(events)
    with pytest.raises(AsyncNodesError, match="does not answer"):
        list(events)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://x", "http://", "http://u:p@h", "http://h:x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """``--url`` must be an http or https address without credentials."""
    with pytest.raises(AsyncNodesError, match="must look like"):
        Client(url)


def test_an_answer_of_another_program_is_told_as_that(server: StubServer) -> None:
    """A status that is no problem document of ours is shown as what it is."""
    with Client(server.url) as client, pytest.raises(AsyncNodesError, match="answered 502"):
        client.get("/broken")


# -- the verbs, against the stub -------------------------------------------------------------------

Captured = pytest.CaptureFixture[str]


def test_run_prints_the_id(server: StubServer, capsys: Captured) -> None:
    """Without options `run` prints the id alone, for scripts."""
    assert main(["run", "echo", "text=hi", "--url", server.url]) == 0
    assert capsys.readouterr().out.strip() in server.tasks


def test_run_follow_shows_it_live(server: StubServer, capsys: Captured) -> None:
    """`run --follow` shows states and the output and ends with 0."""
    assert main(["run", "echo", "text=你好", "n:=3", "--follow", "--url", server.url]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"text": "你好", "n": 3}
    assert "Running" in shown.err
    assert "Succeeded" in shown.err


def test_run_wait_prints_the_output_only(server: StubServer, capsys: Captured) -> None:
    """`run --wait` keeps quiet until the end."""
    assert main(["run", "echo", "text=hi", "--wait", "--url", server.url]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"text": "hi"}
    assert "Running" not in shown.err


def test_run_of_a_task_that_fails_ends_with_1(server: StubServer, capsys: Captured) -> None:
    """The exit status of a followed task is its own."""
    assert main(["run", "terminal", "--follow", "--url", server.url]) == 1
    assert "no [node_failed]" in capsys.readouterr().err


def test_run_of_an_unknown_node_suggests_one(server: StubServer, capsys: Captured) -> None:
    """The server's own words reach the person."""
    assert main(["run", "ecoh", "--url", server.url]) == 1
    said = capsys.readouterr().err
    assert "did you mean 'echo'?" in said
    assert "[unknown_node]" in said


def test_the_key_is_sent(
    server: StubServer, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ASYNC_NODES_API_KEY goes along as a Bearer token; without it the 401 is explained."""
    server.api_key = "k3y"
    assert main(["run", "echo", "--url", server.url]) == 1
    assert "[unauthorized]" in capsys.readouterr().err
    monkeypatch.setenv("ASYNC_NODES_API_KEY", "k3y")
    assert main(["run", "echo", "--wait", "--url", server.url]) == 0


def test_watch_tells_the_past_too(server: StubServer, capsys: Captured) -> None:
    """`watch` of a task that has ended shows its whole life."""
    main(["run", "test.fail", "--wait", "--url", server.url])
    capsys.readouterr()
    assert main(["watch", next(iter(server.tasks)), "--url", server.url]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("Running") == 2
    assert "backoff" in shown.err


def test_watch_of_nothing_is_told(server: StubServer, capsys: Captured) -> None:
    """An id that is no task's is a 404 in words."""
    assert main(["watch", "t_no/../such", "--url", server.url]) == 1
    assert "[task_not_found]" in capsys.readouterr().err


def test_cancel_and_cancel_again(server: StubServer, capsys: Captured) -> None:
    """`cancel` tells the state; a task that has ended is refused with its code."""
    main(["run", "forever", "--url", server.url])
    task_id = capsys.readouterr().out.strip()
    assert main(["cancel", task_id, "--wait", "--url", server.url]) == 0
    assert "Cancelled" in capsys.readouterr().out
    assert main(["cancel", task_id, "--url", server.url]) == 1
    assert "[task_finished]" in capsys.readouterr().err


def test_a_cancel_ends_the_watch(server: StubServer, capsys: Captured) -> None:
    """A follower learns of the end while it waits."""
    main(["run", "forever", "--url", server.url])
    task_id = capsys.readouterr().out.strip()
    later = threading.Timer(0.3, lambda: server.tasks[task_id].add("done", {"state": "Cancelled"}))
    later.start()
    began = time.monotonic()
    assert main(["watch", task_id, "--url", server.url]) == 1
    assert time.monotonic() - began < 3
    later.join()


# -- ports -----------------------------------------------------------------------------------------


def test_a_free_port_is_free() -> None:
    """The port that is chosen can be listened on."""
    refuse_busy_port("127.0.0.1", free_port("127.0.0.1"))


def test_a_busy_port_names_its_owner(server: StubServer) -> None:
    """A port in use by one of ours says so; by another program, that."""
    with pytest.raises(AsyncNodesError, match="already runs at") as caught:
        refuse_busy_port("127.0.0.1", server.server_address[1])
    assert caught.value.code == "port_busy"
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(AsyncNodesError, match="another program listens"),
    ):
        refuse_busy_port("127.0.0.1", other.getsockname()[1])


def test_a_host_of_elsewhere_is_no_busy_port() -> None:
    """An address that is not this machine's is told as a wrong setting."""
    with pytest.raises(AsyncNodesError, match="cannot listen on") as caught:
        refuse_busy_port("192.0.2.1", 8000)
    assert caught.value.code == "invalid_setting"
