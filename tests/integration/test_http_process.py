"""The web process: start, key, outage of the store, latency, and orderly end."""

from __future__ import annotations

import os
import signal
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest

from async_nodes.core.states import NodeState
from tests.integration.web import (
    Answer,
    Hand,
    Web,
    _web_log,
    _web_process,
    ask,
    hand,
    wait_until,
    web,
)
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

Start = Callable[..., Web]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a web process of the test's own."""
    made: list[Web] = []

    def begin(url: str, *, ready: bool = True, **environ: str) -> Web:
        process = Web(url, tmp_path / f"log-{len(made)}", **environ)
        made.append(process)
        process.start()
        if ready:
            wait_until(lambda: store_answers(process))
        return process

    yield begin
    for process in made:
        process.stop(signal.SIGKILL)


def store_answers(process: Web) -> bool:
    return bool(process.get("/readyz").json["checks"]["store"]["ok"])


def cpu_seconds(process: Web) -> float:
    """Return the processor time a process has used."""
    assert process.process is not None
    fields = Path(f"/proc/{process.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- start -----------------------------------------------------------------------------------------


def test_the_process_has_its_title(web: Web) -> None:
    """What ``ps`` shows is exactly that."""
    assert web.process is not None
    title = Path(f"/proc/{web.process.pid}/cmdline").read_bytes().rstrip(b"\0")
    assert title == b"async-nodes web"


def test_a_busy_port_is_said_so(web: Web, tmp_path: Path) -> None:
    """Status 1 and the address that is taken."""
    second = Web("unix:///nowhere", tmp_path / "log", ASYNC_NODES_PORT=str(web.port))
    status, text = second.run()
    assert status == 1
    assert f"port_busy: 127.0.0.1:{web.port} is in use" in text


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"ASYNC_NODES_HOST": "0.0.0.0"}, "invalid_setting: ASYNC_NODES_HOST is 0.0.0.0"),  # noqa: S104
        ({"ASYNC_NODES_HOST": "203.0.113.1", "ASYNC_NODES_API_KEY": "k"}, "cannot listen"),
        ({"ASYNC_NODES_IMPORTS": "no_such_module"}, "invalid_node"),
    ],
)
def test_a_wrong_setting_ends_the_start(
    tmp_path: Path, environ: dict[str, str], words: str
) -> None:
    """The process says which, and does not serve."""
    status, text = Web("unix:///nowhere", tmp_path / "log", **environ).run()
    assert status == 1
    assert words in text


def test_it_serves_before_the_store_answers(
    start: Start, new_server: Callable[..., RedisServer]
) -> None:
    """Until then 503 at once, said once in the log; afterwards all is well without a restart."""
    server = new_server()
    server.kill()
    process = start(server.url, ready=False)
    assert process.get("/healthz").status == 200
    started = time.monotonic()
    refused = process.submit()
    assert (refused.status, refused.code) == (503, "store_unavailable")
    assert int(refused.headers["retry-after"]) >= 1
    assert process.get("/v1/tasks/t_00000000000000000000000000").status == 503
    assert process.get("/v1/tasks/x").status == 404
    assert process.get("/v1/nodes").status == 200
    assert "async_nodes_store_up 0.0" in process.get("/metrics").body.decode()
    assert process.get("/readyz").json["missing"] == ["store", "io", "cpu"]
    assert time.monotonic() - started < 1
    server.start()
    wait_until(lambda: store_answers(process))
    assert process.submit().status == 202
    assert process.log.count("action=store_awaited") <= 2
    assert process.log.count("action=store_open") == 1
    assert "Traceback" not in process.log


def test_it_waits_for_a_store_that_may_be_written(
    start: Start, new_server: Callable[..., RedisServer]
) -> None:
    """A replica answers but takes nothing: 503 until it is promoted, on one connection."""
    server = new_server()
    with server.client() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        process = start(server.url, ready=False)
        wait_until(lambda: "action=store_awaited" in process.log)
        time.sleep(0.5)
        assert process.submit().code == "store_unavailable"
        names = [c["name"] for c in client.client_list()]
        assert names.count("async-nodes-web") == 1
        client.execute_command("REPLICAOF", "NO", "ONE")
    wait_until(lambda: store_answers(process))
    assert process.submit().status == 202


def test_every_spelling_of_loopback_is_served(start: Start, one_server: RedisServer) -> None:
    """IPv6 too, where the machine has it."""
    for host, family in (("localhost", socket.AF_INET), ("::1", socket.AF_INET6)):
        with socket.socket(family) as probe:
            try:
                probe.bind((host, 0))
            except OSError:
                continue
        process = start(one_server.url, ready=False, ASYNC_NODES_HOST=host)
        connection = HTTPConnection(host, process.port, timeout=5)
        assert ask(connection, "GET", "/v1/nodes").status == 200
        connection.close()


def test_one_key_opens_everything(start: Start, one_server: RedisServer, tmp_path: Path) -> None:
    """401 without it, whatever the route; with it any Host and Origin; probes are open."""
    key_file = tmp_path / "key"
    key_file.write_text("s3cret-key\n")
    everywhere = "0.0.0.0"  # noqa: S104 - with a key it may be
    process = start(
        one_server.url, ASYNC_NODES_API_KEY_FILE=str(key_file), ASYNC_NODES_HOST=everywhere
    )
    for method, path in (
        ("POST", "/v1/tasks"), ("GET", "/v1/tasks/x"), ("GET", "/v1/nodes"), ("GET", "/metrics"),
        ("GET", "/openapi.json"), ("GET", "/nothing"), ("OPTIONS", "/v1/tasks"),
    ):  # fmt: skip
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret-key"}):
            answer = process.ask(method, path, None, **headers)
            assert (answer.status, answer.code) == (401, "unauthorized"), path
            assert answer.headers["www-authenticate"].startswith("Bearer")
    good = {"authorization": "Bearer s3cret-key", "host": "api.example", "origin": "https://x"}
    assert process.submit(**good).status == 202
    assert process.get("/nothing", **good).code == "not_found"
    assert process.get("/healthz").status == 200
    assert process.get("/readyz").status == 503
    assert "s3cret" not in process.log


# -- the store goes away ---------------------------------------------------------------------------


def test_an_outage_is_told_within_a_second(
    start: Start, new_server: Callable[..., RedisServer]
) -> None:
    """503 with Retry-After in time for every route; afterwards nothing is left of the refused."""
    server = new_server()
    process = start(server.url)
    task_id = process.task()
    server.kill()
    requests: list[Callable[[], Answer]] = [
        process.submit,
        lambda: process.get(f"/v1/tasks/{task_id}"),
        lambda: process.get(f"/v1/tasks/{task_id}/events"),
        lambda: process.cancel(task_id),
    ]
    for _ in range(2):
        for ask_it in requests:
            started = time.monotonic()
            answer = ask_it()
            assert time.monotonic() - started < 1.0
            assert (answer.status, answer.code) in {
                (503, "store_unavailable"), (503, "outcome_unknown"),
            }  # fmt: skip
            assert "retry-after" in answer.headers
    assert process.get("/readyz").status == 503
    server.start()
    wait_until(lambda: store_answers(process))
    assert process.get(f"/v1/tasks/{task_id}").json["state"] == "Pending"
    with server.client() as client:
        assert client.llen("an.io.default") == 1
    assert "Traceback" not in process.log


def test_an_unknown_outcome_carries_the_id(
    start: Start, new_server: Callable[..., RedisServer]
) -> None:
    """A store that hangs: 503 within a second with the id, under which the task may appear."""
    server = new_server()
    process = start(server.url)
    server.pause()
    try:
        started = time.monotonic()
        answer = process.submit(idempotency_key="k")
        assert time.monotonic() - started < 1.2
        assert (answer.status, answer.code) == (503, "outcome_unknown")
        task_id = answer.json["task_id"]
    finally:
        server.resume()
    wait_until(lambda: store_answers(process))
    again = process.submit(idempotency_key="k")
    assert again.status == 202
    if process.get(f"/v1/tasks/{task_id}").status == 200:
        assert again.json["task_id"] == task_id
    with server.client() as client:
        assert client.llen("an.io.default") == 1


def test_what_only_reads_has_no_unknown_outcome(
    start: Start, new_server: Callable[..., RedisServer]
) -> None:
    """A store that hangs, asked for something: it is away, and nothing may have happened."""
    server = new_server()
    process = start(server.url)
    task_id = process.task()
    mine = f"/v1/tasks/{task_id}"
    reads = [mine, f"{mine}/result", f"{mine}/logs", f"{mine}/events", "/v1/tasks",
             f"/v1/tasks?ids={task_id}&fields=full"]  # fmt: skip
    for method, path in [*(("GET", path) for path in reads), ("POST", f"{mine}/retry")]:
        wait_until(lambda: store_answers(process))
        server.pause()
        try:
            answer = process.ask(method, path)
        finally:
            server.resume()
        assert (path, answer.status, answer.code) == (path, 503, "store_unavailable")
        assert "retry-after" in answer.headers


def test_a_full_store_accepts_nothing(start: Start, new_server: Callable[..., RedisServer]) -> None:
    """Out of memory is 503 and no half task; reading goes on."""
    server = new_server()
    process = start(server.url)
    task_id = process.task()
    with server.client() as client:
        client.config_set("maxmemory", "1")
        answer = process.submit()
        assert (answer.status, answer.code) == (503, "store_unavailable")
        assert process.get(f"/v1/tasks/{task_id}").status == 200
        client.config_set("maxmemory", "0")
        assert client.llen("an.io.default") == 1
    assert process.submit().status == 202


# -- latency ---------------------------------------------------------------------------------------


def test_requests_on_one_connection_do_not_stall(web: Web) -> None:
    """The median of sequential requests, small and large, is below 5 ms (Nagle's delay is 40)."""
    task_id = web.task(inputs={"x": "y" * 100_000})
    connection = web.connect()
    body = b'{"node":"echo"}'
    times: list[float] = []
    for n in range(150):
        started = time.perf_counter()
        if n % 3 == 0:
            answer = ask(connection, "POST", "/v1/tasks", body, content_type="application/json")
        else:
            answer = ask(connection, "GET", f"/v1/tasks/{task_id}" if n % 3 == 1 else "/healthz")
        times.append(time.perf_counter() - started)
        assert answer.status in (200, 202)
    connection.close()
    assert statistics.median(times) < 0.005


def test_a_wait_holds_no_other_request(web: Web) -> None:
    """With two hundred long polls open, a poll is answered as if there were none."""
    task_id = web.task()
    with ThreadPoolExecutor(200) as pool:
        waits = [pool.submit(web.get, f"/v1/tasks/{task_id}?wait=3") for _ in range(200)]
        wait_until(lambda: "async_nodes_sse_subscribers 200.0" in web.get("/metrics").body.decode())
        started = time.perf_counter()
        for _ in range(20):
            web.get(f"/v1/tasks/{task_id}")
        assert (time.perf_counter() - started) / 20 < 0.1
        assert web.cancel(task_id).status == 200
        assert {done.result().json["state"] for done in waits} == {"Cancelled"}
    wait_until(lambda: "async_nodes_sse_subscribers 0.0" in web.get("/metrics").body.decode())


def test_clients_that_reset_leave_nothing_behind(web: Web) -> None:
    """Half-sent requests and resets cost no connection and write no traceback."""
    for n in range(50):
        connection = socket.create_connection(("127.0.0.1", web.port))
        connection.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n"[: n + 1])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    assert web.process is not None
    sockets = Path(f"/proc/{web.process.pid}/fd")
    wait_until(lambda: len(list(sockets.iterdir())) < 40)
    assert web.get("/healthz").status == 200
    assert "Traceback" not in web.log


def test_an_idle_server_costs_nothing(web: Web) -> None:
    """Without requests the process uses next to no processor time."""
    before = cpu_seconds(web)
    time.sleep(1.0)
    assert cpu_seconds(web) - before < 0.1


# -- end -------------------------------------------------------------------------------------------


def test_it_ends_in_order(start: Start, one_server: RedisServer, hand: Hand) -> None:
    """Idle connections close, the running request is answered, then status 0."""
    process = start(one_server.url)
    task_id = process.task()
    claim = hand.claim(task_id)
    idle = process.connect()
    assert ask(idle, "GET", "/healthz").status == 200
    found: list[Any] = []
    waiting = threading.Thread(
        target=lambda: found.append(process.get(f"/v1/tasks/{task_id}?wait=20"))
    )
    waiting.start()
    wait_until(lambda: "subscribers 1.0" in process.get("/metrics").body.decode())
    started = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - started < 3
    waiting.join(5)
    assert found[0].json["state"] == "Running"
    idle.close()
    assert "Traceback" not in process.log
    hand.finish(claim)


def test_a_stream_is_told_to_go_elsewhere(start: Start, one_server: RedisServer) -> None:
    """When the server stops, a stream ends with a ``retry`` and without an error."""
    process = start(one_server.url)
    task_id = process.task()
    connection = process.connect()
    connection.request("GET", f"/v1/tasks/{task_id}/events")
    response = connection.getresponse()
    assert response.readline() == b"retry: 2000\n"
    started = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - started < 3
    rest = response.read().decode()
    assert rest.rstrip().endswith("retry: 1000")
    connection.close()


def test_a_slow_request_is_bounded_by_the_shutdown_time(
    start: Start, one_server: RedisServer
) -> None:
    """A client that never finishes its request does not hold the end for longer than set."""
    process = start(one_server.url, ASYNC_NODES_SHUTDOWN_SECONDS="1")
    with socket.create_connection(("127.0.0.1", process.port)) as connection:
        connection.sendall(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n")
        time.sleep(0.2)
        started = time.monotonic()
        assert process.stop() == 0
        assert time.monotonic() - started < 3


def test_a_killed_process_takes_no_task_along(
    start: Start, one_server: RedisServer, hand: Hand
) -> None:
    """Everything that was answered with 202 is in the store after SIGKILL."""
    process = start(one_server.url)
    accepted: list[str] = []

    def submit() -> None:
        try:
            while True:
                accepted.append(process.task())
        except (OSError, HTTPException, AssertionError):
            return  # the connection was cut in the middle of something

    clients = [threading.Thread(target=submit) for _ in range(8)]
    for client in clients:
        client.start()
    wait_until(lambda: len(accepted) > 50)
    process.stop(signal.SIGKILL)
    for client in clients:
        client.join(5)
    records = [hand.store.read(task_id) for task_id in accepted]
    assert all(record and record.state is NodeState.PENDING for record in records)
    assert hand.store.depths()["io.default"] >= len(accepted)
