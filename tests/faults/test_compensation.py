"""A task's clean-up is not lost with the worker that ended it, nor for want of one."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.stack import RECOVERY, Stack

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(120)]
NewStack = Callable[..., Stack]


def lines(path: Path) -> list[str]:
    """Return what the clean-ups have written down."""
    return path.read_text().splitlines() if path.exists() else []


def open_ends(stack: Stack) -> list[bytes]:
    """Return the timers of ends that are still to be cleaned up after."""
    with stack.redis() as client:
        return [one for one in client.zrange("an:{0}:due", 0, -1) if one.startswith(b"e:")]


def test_a_cancel_while_no_worker_lives_is_cleaned_up_after(
    new_stack: NewStack, tmp_path: Path
) -> None:
    """By the worker that comes next, once."""
    stack = new_stack(io=1, cpu=0)
    path = tmp_path / "trace"
    task_id = stack.submit("probe.compensated", {"path": str(path), "retry_after": 60})
    stack.client.wait_until(task_id, lambda record: record["reason"] == "backoff")
    stack.kill("io0")
    reply = stack.client.cancel(task_id, wait=5)
    assert reply.json["state"] == "Cancelled"
    assert lines(path) == []

    stack.restart("io0")
    stack.until(lambda: bool(lines(path)), "nobody cleans up", RECOVERY + 20)
    stack.until(lambda: not open_ends(stack), "its completion is not recorded", 10)
    time.sleep(RECOVERY)  # longer than the lease: nobody is told of it again

    assert lines(path) == [f"{task_id} Cancelled"]


def test_workers_killed_at_the_very_end_leave_no_task_uncleaned(
    new_stack: NewStack, tmp_path: Path
) -> None:
    """Whether they had begun, had done it or had not: each is done at least once, and then over."""
    stack = new_stack(io=1, cpu=0, supervise=True)
    path = tmp_path / "trace"
    ids = []
    for _ in range(2):
        batch = {
            "tasks": [
                {"node": "probe.compensated", "inputs": {"path": str(path), "seconds": n / 50}}
                for n in range(15)
            ]
        }
        reply = stack.client.request(
            "POST", "/v1/tasks/batch", json.dumps(batch).encode(),
            {"Content-Type": "application/json"},
        )  # fmt: skip
        mine = [one["task_id"] for one in reply.json["results"]]
        ids += mine
        # The first has failed, its clean-up is about to begin; others end at this moment.
        stack.client.wait_until(mine[0], lambda record: record["state"] == "Failed", 30)
        stack.kill("io0", signal.SIGKILL)
    records = stack.wait_all(ids, 60)
    wanted = {f"{task_id} Failed" for task_id in ids}
    stack.until(lambda: set(lines(path)) == wanted, "some are not cleaned up after", RECOVERY + 30)
    stack.until(lambda: not open_ends(stack), "their completion is not recorded", 20)

    assert {record["state"] for record in records} == {"Failed"}
