"""A node's clean-up is not lost with the worker that has it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import RECOVERY, Stack

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(120)]
MOST_TRIES = 3


def lines(path: Path) -> list[str]:
    """Return what was written down."""
    return path.read_text().splitlines() if path.exists() else []


def log_of(stack: Stack, task_id: str) -> str:
    """Return the lines of a task's log."""
    return stack.client.request("GET", f"/v1/tasks/{task_id}/logs").body.decode()


@pytest.mark.parametrize("kind", ["io", "cpu"])
def test_a_clean_up_outlives_its_worker(new_stack: Any, tmp_path: Path, kind: str) -> None:
    """Another worker begins it again, with the key that the body had; then it is over."""
    stack: Stack = new_stack(io=1, cpu=1, supervise=True)
    path = tmp_path / "trace"
    node = "probe.cleaned_slowly" + ("_cpu" if kind == "cpu" else "")
    task_id = stack.submit(node, {"path": str(path), "seconds": 6.0})
    stack.wait(task_id)
    stack.until(lambda: len(lines(path)) == 2, "no clean-up", 5)
    assert stack.client.request("DELETE", f"/v1/tasks/{task_id}").status == 409
    stack.kill(f"{kind}0", signal.SIGKILL)
    stack.until(lambda: len(lines(path)) == 3, "nobody cleans up", RECOVERY + 15)
    stack.until(lambda: "cleaned" in lines(path), "nobody has cleaned up", 15)
    stack.until(lambda: "SystemExit: the clean-up gives up" in log_of(stack, task_id), "no log", 5)

    body, *begun, cleaned = lines(path)
    key = body.split()[1]
    # A lease is shorter than the clean-up: who goes on with it is believed.
    assert (begun, cleaned) == ([f"begun Failed {key}"] * 2, "cleaned")
    stack.until(
        lambda: stack.client.request("DELETE", f"/v1/tasks/{task_id}").status == 204, "kept", 5
    )


def test_a_clean_up_that_ends_its_workers_is_given_up(new_stack: Any, tmp_path: Path) -> None:
    """After some of them; the others' tasks go on."""
    stack: Stack = new_stack(io=1, cpu=0, supervise=True)
    path = tmp_path / "trace"
    task_id = stack.submit("probe.cleaned_slowly", {"path": str(path), "deadly": True})
    stack.until(lambda: len(lines(path)) == 1 + MOST_TRIES, "not tried", 60)
    stack.until(lambda: "given up" in stack.logs(), "not given up", RECOVERY + 15)

    assert len(lines(path)) == 1 + MOST_TRIES
    assert stack.client.request("DELETE", f"/v1/tasks/{task_id}").status == 204


def test_a_task_that_blocked_its_worker_is_cleaned_up_after(new_stack: Any, tmp_path: Path) -> None:
    """The worker is ended over it: the clean-up is another's."""
    stack: Stack = new_stack(io=2, cpu=0, supervise=True)
    path = tmp_path / "trace"
    task_id = stack.submit("probe.cleaned_blocked", {"path": str(path)}, timeout_ms=2000)
    record = stack.wait(task_id, 20)
    stack.until(lambda: "cleaned" in lines(path), "nobody has cleaned up", 15)

    assert record["error"]["code"] == "blocked_loop"
    assert len(lines(path)) == 3
