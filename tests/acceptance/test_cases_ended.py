"""Cases about tasks that have ended: what is gone, and doing it again exactly."""

from __future__ import annotations

import json
import time

import pytest

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
