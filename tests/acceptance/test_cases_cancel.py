"""The case cancel-running: at every moment of a task's life."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.acceptance.stack import Stack

AT_ONCE = 0.2
"""Seconds until a model server sees that nobody listens any more."""


def cancelled(stack: Stack, task_id: str) -> float:
    """Cancel a task and return the seconds until its record says so."""
    began = time.monotonic()
    reply = stack.client.cancel(task_id)
    assert reply.status in {200, 202}, reply.body
    record = stack.wait(task_id, 5)
    seconds = time.monotonic() - began
    assert record["state"] == "Cancelled"
    assert record["error"]["stopped"] is True
    return seconds


def test_cancel_at_token_20_closes_the_models_socket(stack: Stack) -> None:
    """The model server sees the disconnect within 200 ms, nothing is generated on."""
    stack.reset_model()
    task_id = stack.submit("llm.chat", stack.chat("sim:tokens=500,gap_ms=20", text="to cancel"))
    with stack.client.events(task_id) as feed:
        seen = 0
        for event in feed:
            seen += len(event.json["text"].split()) if event.type == "chunk" else 0
            if seen >= 20:
                break
        asked = time.time()
        reply = stack.client.cancel(task_id, wait=5)
        done = feed.until("done")[-1]

    assert (reply.status, reply.json["state"]) == (200, "Cancelled")
    assert done.json["state"] == "Cancelled"
    [disconnect] = stack.model_stats()["disconnects"]
    assert disconnect["noticed_at"] - asked <= AT_ONCE
    assert stack.channels.ends(task_id) == 1


@pytest.mark.parametrize("node", ["test.sleep", "test.async_sleep", "probe.sleep_cpu", "test.spin"])
def test_cancel_during_a_body(stack: Stack, node: str) -> None:
    """A body of either pool is stopped within a second, the computing one too."""
    task_id = stack.submit(node, {"seconds": 30})
    stack.client.wait_running(task_id)
    time.sleep(0.1)

    assert cancelled(stack, task_id) <= 1.0
    assert stack.channels.ends(task_id) == 1


def test_cancel_lets_a_coroutine_clean_up(stack: Stack, tmp_path: Path) -> None:
    """An async body runs its finally before the task counts as cancelled."""
    path = tmp_path / "trace"
    task_id = stack.submit("probe.async_cleanup", {"path": str(path), "seconds": 30})
    stack.until(path.exists, "not started", 5)
    cancelled(stack, task_id)

    assert path.read_text().split() == ["started", "cleaned"]


def test_cancel_during_backoff(stack: Stack) -> None:
    """A task that waits for its next attempt never starts it."""
    inputs = {"kind": "retryable", "retry_after": 1.5}
    task_id = stack.submit("test.fail", inputs)
    stack.client.wait_until(task_id, lambda record: record["reason"] == "backoff")

    assert cancelled(stack, task_id) <= 1.0
    time.sleep(2.0)
    record = stack.client.get(task_id)
    assert (record["state"], record["attempt"]) == ("Cancelled", 1)
    assert stack.channels.ends(task_id) == 1


def test_cancel_before_the_start(stack: Stack, tmp_path: Path) -> None:
    """A delayed or queued task that is cancelled never starts."""
    path = tmp_path / "starts"
    delayed = stack.submit("test.count", {"path": str(path)}, delay=1)
    busy = [stack.submit("probe.sleep_cpu", {"seconds": 1.5}) for _ in range(4)]
    queued = stack.submit("probe.count_cpu", {"path": str(path)})
    assert cancelled(stack, delayed) <= 1.0
    assert cancelled(stack, queued) <= 1.0
    stack.wait_all(busy)
    time.sleep(0.5)

    assert not path.exists()
    assert [stack.client.get(task_id)["attempt"] for task_id in (delayed, queued)] == [0, 0]
    assert [stack.channels.ends(task_id) for task_id in (delayed, queued)] == [1, 1]


def test_cancel_twice_and_after_the_end(stack: Stack) -> None:
    """The second cancel of an ended task is a 409 that says how it ended."""
    task_id = stack.submit("test.sleep", {"seconds": 30})
    stack.client.wait_running(task_id)
    first, second = stack.client.cancel(task_id), stack.client.cancel(task_id)
    stack.wait(task_id, 3)
    third = stack.client.cancel(task_id)
    done = stack.submit("echo", {})
    stack.wait(done)
    after = stack.client.cancel(done)

    assert first.status in {200, 202}
    assert second.status in {200, 202, 409}
    assert (third.status, third.json["code"], third.json["state"]) == (
        409,
        "task_finished",
        "Cancelled",
    )
    assert (after.status, after.json["state"]) == (409, "Succeeded")
    assert stack.client.get(done)["state"] == "Succeeded"
    assert [stack.channels.ends(i) for i in (task_id, done)] == [1, 1]


def test_cancel_beside_a_neighbour(stack: Stack) -> None:
    """A cancelled child of the CPU pool costs its neighbour nothing."""
    neighbour = stack.submit("probe.sleep_cpu", {"seconds": 2})
    victim = stack.submit("test.spin", {"seconds": 30})
    stack.client.wait_running(neighbour)
    stack.client.wait_running(victim)
    cancelled(stack, victim)
    record = stack.wait(neighbour)

    assert (record["state"], record["attempt"], record["losses"]) == ("Succeeded", 1, 0)


def test_a_compensation_runs_after_failure_and_cancel(stack: Stack, tmp_path: Path) -> None:
    """What a node did is cleaned up when it failed or was cancelled, and only then."""
    for node in ("probe.compensated", "probe.compensated_cpu"):
        path = tmp_path / node
        failed = stack.submit(node, {"path": str(path)})
        fine = stack.submit(node, {"path": str(path), "fail": False})
        stack.wait_all([failed, fine])
        running = stack.submit(node, {"path": str(path), "seconds": 30})
        stack.client.wait_running(running)
        cancelled(stack, running)
        wanted = [f"{failed} Failed", f"{running} Cancelled"]
        stack.until(
            lambda path=path: path.exists() and len(path.read_text().splitlines()) == 2, node, 5
        )

        assert path.read_text().splitlines() == wanted


def test_a_compensation_runs_after_a_cancel_during_backoff(stack: Stack, tmp_path: Path) -> None:
    """What an earlier attempt did is cleaned up when the task is cancelled before the next."""
    path = tmp_path / "trace"
    inputs = {"path": str(path), "retry_after": 30}
    task_id = stack.submit("probe.compensated", inputs)
    stack.client.wait_until(task_id, lambda record: record["reason"] == "backoff")
    cancelled(stack, task_id)

    stack.until(path.exists, "no compensation", 3)
