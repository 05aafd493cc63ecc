"""Cases about the interface: ids, bodies, keys, priorities, connections, settings."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from async_nodes.core.ids import IdSource
from tests.acceptance.stack import ROOT, Stack
from tests.acceptance.web_client import JSON, Reply

NEVER_ISSUED = "t_" + "0" * 26


def ways(task_id: str) -> list[tuple[str, str]]:
    """Return every request that names a task."""
    path = f"/v1/tasks/{task_id}"
    return [
        ("GET", path),
        ("GET", f"{path}/events"),
        ("GET", f"{path}/result"),
        ("POST", f"{path}/cancel"),
    ]


def post_raw(stack: Stack, body: bytes, **headers: str) -> Reply:
    """Return the answer to a body as it is."""
    return stack.client.request("POST", "/v1/tasks", body, {"Content-Type": JSON, **headers})


def test_an_unknown_id_is_not_pending(stack: Stack) -> None:
    """An id that was never issued is 404 wherever it is named, and ends at once (unknown-id)."""
    forged = IdSource(b"not the secret of this server").make(int(time.time() * 1000))
    for task_id in (NEVER_ISSUED, forged):
        for method, path in ways(task_id):
            reply = stack.client.request(method, path)
            assert (reply.status, reply.is_problem) == (404, True), path
            assert b"Pending" not in reply.body
    accept = {"Accept": "text/event-stream"}
    assert stack.client.request("GET", f"/v1/tasks/{NEVER_ISSUED}", headers=accept).status == 404


def test_an_issued_id_without_a_record_is_gone(stack: Stack) -> None:
    """An id of ours whose record is no more is 410 (unknown-id)."""
    task_id = stack.submit("echo", {})
    stack.wait(task_id)
    with stack.redis() as client:
        client.delete(stack.store.keys.task(task_id))
    for method, path in ways(task_id):
        if not path.endswith("/result"):
            assert stack.client.request(method, path).status == 410, path


@pytest.mark.parametrize(
    "target",
    [
        "/v1/tasks/../x",
        "/v1/tasks/%00",
        "/v1/tasks/" + "A" * 100_000,
        "/v1/tasks/t_06H2%0d%0aSet-Cookie:x",
        "/v1/tasks/%1b%5b31m",
        "/v1/tasks/" + NEVER_ISSUED.lower(),
        "/v1/tasks/%e2%80%a8",
        "/v1/tasks/%ff%fe",
        "/v1/tasks/t_06H2WVMY0000KRMCYE9G2A0ZIL",
    ],
)
@pytest.mark.parametrize("suffix", ["", "/events"])
def test_a_malformed_id_is_refused(stack: Stack, target: str, suffix: str) -> None:
    """What cannot be an id is a problem, one log line, nothing reflected (malformed-id)."""
    lines = len(stack["web"].text().splitlines())
    with socket.create_connection(("127.0.0.1", stack.client.port), 5) as connection:
        request = f"GET {target}{suffix} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        raw = b""
        while block := connection.recv(65536):
            raw += block
    head, _, body = raw.partition(b"\r\n\r\n")

    assert head.split()[1] in {b"400", b"404", b"414", b"431"}, head
    assert b"Set-Cookie" not in head
    assert not set(body) & set(range(9)) | set(body) & {0x1B, 0x7F}
    if b"problem+json" in head:
        assert json.loads(body)["status"] == int(head.split()[1])
    time.sleep(0.05)
    new = stack["web"].text().splitlines()[lines:]
    assert len(new) <= 1
    assert all(line.isprintable() and len(line) < 2_000 for line in new)
    assert stack.client.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
@pytest.mark.parametrize(
    ("template", "pointer"),
    [
        ('{"node":"echo","inputs":{"x":%s}}', "/inputs/x"),
        ('{"node":"echo","inputs":{"a/b":[1,{"~":%s}]}}', "/inputs/a~1b/1/~0"),
        ('{"node":"echo","metadata":{"m":%s}}', "/metadata/m"),
        ('{"node":"echo","delay":%s}', "/delay"),
        ('{"node":"echo","retry_policy":{"multiplier":%s}}', "/retry_policy/multiplier"),
    ],
)
def test_numbers_that_are_not_json_are_refused(
    stack: Stack, number: str, template: str, pointer: str
) -> None:
    """No body may hold them anywhere, and the problem says where (not-json-numbers)."""
    reply = post_raw(stack, (template % number).encode())

    assert (reply.status, reply.is_problem) == (400, True)
    assert pointer in json.dumps(reply.json)


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_a_result_that_is_not_json_fails(stack: Stack, kind: str) -> None:
    """A node that returns one has failed, with a record that is JSON (not-json-numbers)."""
    record = stack.wait(stack.submit("test.value", {"kind": kind}))

    assert (record["state"], record["error"]["code"]) == ("Failed", "result_not_json")
    assert record["attempt"] == 1


def test_the_same_key_many_times_is_one_task(stack: Stack) -> None:
    """Twenty clients with one key and body get one task; another body is refused."""
    headers = {"Idempotency-Key": f"key-{time.time_ns()}"}
    replies: list[Reply] = []
    gate = threading.Barrier(20)

    def post() -> None:
        gate.wait()
        replies.append(stack.client.post("echo", {"text": "once"}, headers=headers))
        stack.client.close()

    threads = [threading.Thread(target=post, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other = stack.client.post("echo", {"text": "other"}, headers=headers)

    assert {reply.status for reply in replies} <= {200, 202}
    assert len({reply.json["task_id"] for reply in replies}) == 1
    assert sum("idempotency-replayed" in reply.headers for reply in replies) == 19
    assert (other.status, other.json["code"]) == (422, "idempotency_mismatch")
    record = stack.wait(replies[0].json["task_id"])
    assert (record["state"], record["attempt"]) == ("Succeeded", 1)


@pytest.mark.parametrize("priority", [*range(10), "low", "default", "high"])
def test_priorities_in_range(stack: Stack, priority: Any) -> None:
    """Every documented priority is taken (priority-range)."""
    assert stack.wait(stack.submit("echo", {}, priority=priority))["state"] == "Succeeded"


@pytest.mark.parametrize("priority", [10, 11, -1, "x", "", 1.5, True, None, [1], {"high": 1}])
def test_priorities_out_of_range(stack: Stack, priority: Any) -> None:
    """Every other one is 422 and names the field (priority-range)."""
    reply = stack.client.post("echo", {}, priority=priority)

    assert (reply.status, reply.is_problem) == (422, True)
    assert "/priority" in json.dumps(reply.json)


def test_requests_on_one_connection_do_not_stall(stack: Stack) -> None:
    """Polls and submits on a kept connection wait for no acknowledgement (keepalive-stall)."""
    task_id = stack.submit("echo", {})
    stack.wait(task_id)
    polls, submits = [], []
    for _ in range(60):
        began = time.perf_counter()
        stack.client.get(task_id)
        polls.append(time.perf_counter() - began)
        began = time.perf_counter()
        stack.submit("echo", {})
        submits.append(time.perf_counter() - began)

    assert statistics.median(polls) < 0.005
    assert statistics.median(submits) < 0.010


def celery_app(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Import the Celery app as `celery -A celery_app` does and print its settings."""
    program = (
        "import json\nfrom celery_app import app\n"
        "names = ['broker_url', 'result_backend', 'task_serializer', 'accept_content',"
        " 'timezone', 'task_soft_time_limit', 'task_time_limit']\n"
        "print(json.dumps({name: app.conf[name] for name in names}))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_settings_block_is_in_force() -> None:
    """The app has the values of settings.py under Celery's own names (settings-names)."""
    done = celery_app({})
    conf = json.loads(done.stdout)

    assert conf["broker_url"] == "redis://localhost:6379/1"
    assert conf["result_backend"] == "redis://localhost:6379/2"
    assert (conf["task_serializer"], conf["accept_content"]) == ("json", ["json"])
    assert conf["timezone"] == "Asia/Shanghai"


def test_the_environment_wins_over_the_settings_block() -> None:
    """A CELERY_ variable changes the app (settings-names)."""
    done = celery_app(
        {"CELERY_BROKER_URL": "redis://localhost:7777/5", "CELERY_TASK_SOFT_TIME_LIMIT": "11"}
    )
    conf = json.loads(done.stdout)

    assert (conf["broker_url"], conf["task_soft_time_limit"]) == ("redis://localhost:7777/5", 11)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CELERY_BROKER_ULR", "CELERY_BROKER_URL"),
        ("CELERY_TASK_SOFT_TIMELIMIT", "CELERY_TASK_SOFT_TIME_LIMIT"),
        ("ASYNC_NODES_LEASE_SECOND", "ASYNC_NODES_LEASE_SECONDS"),
    ],
)
def test_a_misspelt_name_is_refused(name: str, meant: str) -> None:
    """No process starts with a setting that would do nothing (settings-names)."""
    done = celery_app({name: "1"})
    assert done.returncode != 0
    assert (name in done.stderr, f"did you mean {meant}?" in done.stderr) == (True, True)

    worker = subprocess.run(
        [sys.executable, "-P", "-m", "async_nodes.cli", "worker", "--pool", "io"],
        cwd=ROOT,
        env={**os.environ, name: "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (worker.returncode, f"did you mean {meant}?" in worker.stderr) == (1, True)
