"""Claims and losses that got mixed up: a task runs on, whoever forgot it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.acceptance.stack import Stack

IMPORTS = "tests.faults.rude_nodes"


def test_a_claim_that_nobody_runs_does_not_last_for_ever(new_stack: Callable[..., Stack]) -> None:
    """A task claimed for a living worker that does not know of it runs again."""
    stack = new_stack(io=1, cpu=0)
    worker = next(iter(stack.store.workers()))
    task = stack.submit("test.spin", {"seconds": 0})
    stack.store.claim(task, 1, worker=worker, fence="f" * 16)
    assert stack.client.get(task)["state"] == "Running"

    record = stack.client.wait_until(task, lambda found: found["losses"] > 0, 15.0)
    assert (record["state"], record["attempts"][0]["outcome"]) == ("Pending", "lost")


def test_a_suspect_that_fails_is_not_counted_as_dead(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """The child of one attempt, ending late, does not pass for the death of the next attempt."""
    stack = new_stack(cpu=0, supervise=True, environ={"ASYNC_NODES_IMPORTS": IMPORTS})
    task = stack.submit(
        "rude.suspect",
        {"path": str(tmp_path / "starts"), "deaths": 2, "failures": 3},
        retry_policy={"max_attempts": 10, "initial_ms": 1, "max_ms": 1},
    )

    record = stack.wait(task, 40.0)
    outcomes = [attempt["outcome"] for attempt in record["attempts"]]
    assert outcomes == ["lost"] * 2 + ["retried"] * 3 + ["succeeded"]
    assert record["losses"] == 2
    assert "Fatal Python error" not in stack["io0"].text()
