"""A server without memory: nothing new is accepted, and nothing that was accepted suffers."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.acceptance.stack import Stack

PIECES = 30


def test_a_stream_waits_while_the_server_is_full(new_stack: Callable[..., Stack]) -> None:
    """Chunks wait for room instead of failing the attempt that sends them; a submit is refused."""
    stack = new_stack(cpu=0)
    tasks = [
        stack.submit("test.emit", {"n": PIECES, "gap": 0.03}, retry_policy={"max_attempts": 1})
        for _ in range(5)
    ]
    time.sleep(0.3)
    with stack.redis() as redis:
        redis.config_set("maxmemory", "1mb")
        refused = stack.client.post("test.sleep", {"seconds": 0})
        time.sleep(2.0)
        assert {stack.client.get(task)["state"] for task in tasks} == {"Running"}
        redis.config_set("maxmemory", "0")

    assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
    for task, record in zip(tasks, stack.wait_all(tasks, 10.0), strict=True):
        assert (record["state"], record["attempt"]) == ("Succeeded", 1)
        chunks = stack.store.entries(task, after=(0, 0))
        assert len(chunks) == PIECES
