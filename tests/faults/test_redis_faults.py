"""Redis goes away, hangs, cuts connections, forgets its scripts, is full: nothing is lost."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.stack import Stack
from tests.acceptance.web_client import Reply
from tests.faults.load import Load, check_all_ended, measured

NewStack = Callable[..., Stack]
BACK = 15.0
"""Seconds after an outage within which tasks are accepted and run again."""

REFUSED_WITHIN = 1.0


@contextmanager
def down(stack: Stack) -> Iterator[None]:
    """Keep the server down for a block."""
    stack.server.kill()
    try:
        yield
    finally:
        stack.server.start()


@contextmanager
def hung(stack: Stack) -> Iterator[None]:
    """Let the server hang for a block."""
    stack.server.pause()
    try:
        yield
    finally:
        stack.server.resume()


def check_refused(stack: Stack, seconds: float) -> list[Reply]:
    """Check that for so long every submit is answered with 503 in time; return the answers."""
    replies, waits = [], []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        reply = stack.client.post("echo", {"text": "in the outage"}, timeout=5)
        took = time.monotonic() - began
        assert (reply.status, reply.is_problem) == (503, True), reply.body
        assert "retry-after" in reply.headers
        assert took < 2 * REFUSED_WITHIN
        replies.append(reply)
        waits.append(took)
        time.sleep(0.3)
    # One may have waited for the processor rather than for the store.
    assert statistics.median(waits) < REFUSED_WITHIN
    return replies


def check_serves_again(
    stack: Stack, nodes: tuple[tuple[str, dict[str, Any]], ...], within: float = BACK
) -> float:
    """Check that tasks of every pool are accepted and end soon; return the seconds it took."""
    began = time.monotonic()
    for node, inputs in nodes:
        task_id = ""
        while not task_id:
            assert time.monotonic() - began < within, stack.logs()
            reply = stack.client.post(node, inputs, timeout=5)
            task_id = reply.json.get("task_id", "") if reply.status == 202 else ""
        record = stack.wait(task_id, within)
        assert record["state"] == "Succeeded"
    took = time.monotonic() - began
    assert took < within
    return took


BOTH = (("echo", {"text": "again"}), ("probe.sleep_cpu", {"seconds": 0}))


@pytest.mark.parametrize(("transport", "seconds"), [("stock", 7), ("fast", 10)])
def test_redis_away(new_stack: NewStack, transport: str, seconds: float) -> None:
    """POST is 503 within 1 s, there is no ghost task, work goes on within 15 s (redis-away)."""
    stack = new_stack(environ={"ASYNC_NODES_TRANSPORT": transport})
    running = [
        stack.submit("test.sleep", {"seconds": 4}),
        stack.submit("probe.sleep_cpu", {"seconds": 4}),
    ]
    for task_id in running:
        stack.client.wait_running(task_id)
    with down(stack):
        replies = check_refused(stack, seconds)
    took = check_serves_again(stack, BOTH)
    measured(f"{transport}: served again {took:.2f} s after an outage of {seconds} s")

    unknown = [r.json["task_id"] for r in replies if r.json["code"] == "outcome_unknown"]
    with stack.redis() as client:
        ids = {key.decode().rpartition(":")[2] for key in client.keys("an:{0}:t:*")}
    assert len(ids - set(unknown)) == 4
    check_all_ended(stack, running, heard=False)
    # What was at work went on and could tell its end; nobody had to start it again.
    assert [stack.client.get(task_id)["attempt"] for task_id in running] == [1, 1]
    for name in ("web", *stack.workers):
        assert stack[name].status is None
        assert "Traceback" not in stack[name].text()
        pauses = re.findall(r"Trying again in (\d+)", stack[name].text())
        assert max(map(int, pauses), default=0) <= 3, "a longer outage would mean a longer wait"


@pytest.mark.parametrize("transport", ["stock", "fast"])
def test_connections_killed_three_times(new_stack: NewStack, transport: str) -> None:
    """Three rounds of killed connections in 3 s cost nothing but a moment (redis-away)."""
    stack = new_stack(environ={"ASYNC_NODES_TRANSPORT": transport})
    load = Load(stack, count=120)
    load.start()
    for _ in range(3):
        time.sleep(0.8)
        with stack.redis() as client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            client.script_flush()
    load.join()
    check_all_ended(stack, load.accepted, heard=False, seconds=BACK)
    took = check_serves_again(stack, BOTH)
    measured(f"{transport}: {took:.2f} s for a task of each pool afterwards")


def test_a_hung_redis(new_stack: NewStack) -> None:
    """While the server hangs, requests are refused in time; then all goes on."""
    stack = new_stack()
    load = Load(stack, count=60)
    load.start()
    load.until(0.5)
    with hung(stack):
        check_refused(stack, 5)
    load.join()
    check_all_ended(stack, load.accepted, seconds=BACK)
    for name in ("web", *stack.workers):
        assert stack[name].status is None


@pytest.mark.parametrize("transport", ["stock", "fast"])
def test_a_full_redis(new_stack: NewStack, transport: str) -> None:
    """Without memory nothing is accepted, but what runs can end; then all goes on."""
    stack = new_stack(environ={"ASYNC_NODES_TRANSPORT": transport})
    ids = [stack.submit(node, {"seconds": 1}) for node in ("test.sleep", "probe.sleep_cpu")]
    ids += [stack.submit("probe.sleep_cpu", {"seconds": 0.1}) for _ in range(6)]
    for task_id in ids[:2]:
        stack.client.wait_running(task_id)
    with stack.redis() as client:
        client.config_set("maxmemory", "1")
        try:
            replies = check_refused(stack, 3)
            assert {record["state"] for record in stack.wait_all(ids[:2], 5)} == {"Succeeded"}
        finally:
            client.config_set("maxmemory", "0")
    assert {reply.json["code"] for reply in replies} <= {"store_unavailable", "store_full"}
    check_serves_again(stack, BOTH)
    check_all_ended(stack, ids)
    for name in ("web", *stack.workers):
        assert stack[name].status is None


@pytest.mark.parametrize("transport", ["stock", "fast"])
def test_a_redis_that_changes_its_role(new_stack: NewStack, transport: str) -> None:
    """A server that is a replica for a while ends no worker; then all goes on."""
    stack = new_stack(environ={"ASYNC_NODES_TRANSPORT": transport})
    ids = [stack.submit(node, {"seconds": 1}) for node in ("test.sleep", "probe.sleep_cpu")]
    for task_id in ids:
        stack.client.wait_running(task_id)
    with stack.redis() as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        check_refused(stack, 3)
        client.execute_command("REPLICAOF", "NO", "ONE")
    took = check_serves_again(stack, BOTH)
    measured(f"{transport}: served again {took:.2f} s after a change of roles")

    check_all_ended(stack, ids)
    for name in ("web", *stack.workers):
        assert stack[name].status is None


def test_a_stream_goes_on_after_redis_was_away(new_stack: NewStack) -> None:
    """A client that follows a task through a restart of Redis misses nothing."""
    stack = new_stack(cpu=0)
    task_id = stack.submit("test.emit", {"n": 40, "text": "x", "gap": 0.1})
    seen: list[Any] = []
    restarted = False
    until = time.monotonic() + 40
    while not seen or seen[-1].type != "done":
        assert time.monotonic() < until
        try:
            with stack.client.events(task_id, after=seen[-1].id if seen else None) as feed:
                for event in feed:
                    seen.append(event)
                    if len(seen) == 12 and not restarted:
                        restarted = True
                        stack.server.restart()
        except OSError:
            time.sleep(0.1)

    positions = [event.position for event in seen]
    assert positions == sorted(set(positions))
    numbers = [event.json["n"] for event in seen if event.type == "chunk"]
    assert numbers == list(range(1, 41))
    assert seen[-1].json["state"] == "Succeeded"


def test_cancels_work_after_redis_was_away(new_stack: NewStack) -> None:
    """A worker hears of cancels again, also of one that was said while it was deaf."""
    stack = new_stack()
    ids = [stack.submit("test.sleep", {"seconds": 60}), stack.submit("test.spin", {"seconds": 60})]
    for task_id in ids:
        stack.client.wait_running(task_id)
    stack.server.restart()
    for task_id in ids:
        stack.until(
            lambda task_id=task_id: stack.client.cancel(task_id).status in {200, 202}, "no", 5
        )
    records = stack.wait_all(ids, 6)

    assert {record["state"] for record in records} == {"Cancelled"}
    assert {record["error"]["stopped"] for record in records} == {True}
