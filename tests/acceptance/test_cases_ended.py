"""Cases about tasks that have ended: what is gone, and doing it again exactly."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import redis

from tests.acceptance.stack import Stack

JSON = {"Content-Type": "application/json"}
NASTY = (
    '{"text": "é\\u2028日本 👩‍👩‍👧 \\ud83d\\ude00 \\u0000 \\\\ \\"", "n": 1.50,'
    ' "big": 12345678901234567890,'
    ' "deep": [[[[{"a": -0.0, "b": 1E2, "c": []}]]]], "long": "%s"}'
)


def test_an_expired_task_is_gone(stack: Stack) -> None:
    """A ttl of 2 s, read after 3 s: 410, and it names the retention (expired-id)."""
    task_id = stack.submit("echo", {}, ttl=2)
    stack.wait(task_id)
    time.sleep(3)
    for path in ("", "/events", "/result", "/logs"):
        reply = stack.client.request("GET", f"/v1/tasks/{task_id}{path}")
        assert reply.is_problem
        assert (reply.status, reply.json["code"]) == (410, "task_gone")
        assert "24 h" in reply.json["detail"]


@pytest.mark.parametrize("size", [0, 200_000])
def test_a_retry_is_exact(stack: Stack, size: int) -> None:
    """Unicode, nested and 200 kB inputs are the same again, linked by retry_of (exact-retry)."""
    inputs = NASTY % ("x" * size)
    raw = f'{{"node": "probe.refuse", "inputs": {inputs}}}'.encode()
    reply = stack.client.request("POST", "/v1/tasks", raw, JSON)
    assert reply.status == 202, reply
    first = stack.wait(reply.json["task_id"])
    assert first["state"] == "Failed"

    again = stack.client.request("POST", f"/v1/tasks/{first['task_id']}/retry")
    second = stack.wait(again.json["task_id"])
    assert second["retry_of"] == first["task_id"]
    whole = [
        stack.client.request("GET", f"/v1/tasks/{one['task_id']}").body for one in (first, second)
    ]
    assert all(inputs.encode() in one for one in whole)
    # What the node was given, as it tells itself.
    assert first["error"]["message"] == second["error"]["message"]
    assert json.loads(inputs)["n"] == 1.5


def test_deleted_tasks_leave_nothing_behind(stack: Stack, tmp_path: Path) -> None:
    """Whatever they have done and however they have ended: no key names them any more."""
    batch = {"tasks": [{"node": "echo", "inputs": {"n": n}} for n in range(5)]}
    reply = stack.client.request(
        "POST",
        "/v1/tasks/batch",
        json.dumps(batch).encode(),
        {**JSON, "Idempotency-Key": "nothing-behind"},
    )
    path = str(tmp_path / "cleaned")
    sleeping = [stack.submit("test.sleep", {"seconds": 60}), stack.submit("echo", {}, delay=600)]
    retried = {"max_attempts": 2, "initial_ms": 20}
    ids = [
        *[one["task_id"] for one in reply.json["results"]],
        *sleeping,
        stack.submit("test.emit", {"n": 500, "text": "a piece of more than 8 KiB "}),
        stack.submit("test.log", {"n": 5}),
        stack.submit("test.spin", {"seconds": 0.01}),
        stack.submit("test.fail", {"kind": "retryable"}, retry_policy=retried),
        stack.submit("probe.compensated", {"path": path}),
        stack.submit("test.sleep", {"seconds": 60}, timeout_ms=100),
    ]
    stack.client.wait_running(sleeping[0])
    for task_id in sleeping:
        stack.client.cancel(task_id, wait=5)
    stack.wait_all(ids)

    for task_id in ids:
        stack.until(lambda task_id=task_id: _deleted(stack, task_id), "it is not deleted", 10.0)
    with stack.redis() as client:
        stack.until(lambda: not _traces(client, ids), "there are traces", 10.0)
    again = stack.client.request(
        "POST", "/v1/tasks", b'{"node":"echo"}', {**JSON, "Idempotency-Key": "nothing-behind/0"}
    )
    assert "idempotency-replayed" not in again.headers


def _deleted(stack: Stack, task_id: str) -> bool:
    reply = stack.client.request("DELETE", f"/v1/tasks/{task_id}")
    assert reply.status in (204, 409, 410), reply
    return reply.status != 409


def _traces(client: redis.Redis, ids: list[str]) -> list[bytes]:
    """Return the keys that have one of the ids in their name or in what they hold."""
    readers = {
        b"string": lambda key: [client.get(key) or b""],
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": lambda key: list(client.smembers(key)),
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"hash": lambda key: [*client.hgetall(key), *client.hgetall(key).values()],
    }
    names = [task_id.encode() for task_id in ids]
    found = []
    for key in client.scan_iter("*", count=1000):
        read = readers.get(client.type(key), lambda _key: [])
        if any(name in text for text in [key, *read(key)] for name in names):
            found.append(key)
    return found
