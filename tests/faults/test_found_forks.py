"""Bodies that fork: the child does not go on as a second worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.stack import Stack


def test_a_fork_that_returns_from_its_body_ends_there(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """The parent's value counts, the child is gone, and no message or start is lost to it."""
    imports = "async_nodes.testing.nodes,tests.faults.rude_nodes"
    stack = new_stack(environ={"ASYNC_NODES_IMPORTS": imports})
    starts = tmp_path / "starts"
    forking = [stack.submit("rude.fork"), stack.submit("rude.fork_cpu")]
    written = tmp_path / "written"
    forking.append(stack.submit("rude.process", {"path": str(written)}))
    others = []
    for _ in range(40):
        others.append(stack.submit("test.count", {"path": str(starts), "seconds": 0.1}))
        time.sleep(0.03)

    outputs = [record["output"] for record in stack.wait_all(forking, 10.0)]
    assert outputs == ["parent", "parent", 0]
    assert written.read_text() == "written"
    assert {record["state"] for record in stack.wait_all(others, 10.0)} == {"Succeeded"}
    assert len(starts.read_text().splitlines()) == len(others)
    assert stack["io0"].children() == []


def test_a_cpu_body_may_compute_in_processes_of_its_own(
    new_stack: Callable[..., Stack],
) -> None:
    """Multiprocessing works, though Celery's children are daemons."""
    stack = new_stack(environ={"ASYNC_NODES_IMPORTS": "tests.faults.rude_nodes"})
    task_id = stack.submit("rude.processes_cpu", {"numbers": [-1, 2, -3]})
    assert stack.wait_all([task_id], 10.0)[0]["output"] == [1, 2, 3]
