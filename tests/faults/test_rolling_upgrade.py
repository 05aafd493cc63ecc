"""A cluster is upgraded process by process, under load, and back again half-way.

The release before is this repository's own last commit that wrote the old layout; where its
history is not there (a shallow clone), today's code that is told to write the old layout.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from async_nodes.storage import layout
from tests.acceptance.stack import ROOT, Stack
from tests.faults.load import Load, check_all_ended

OLD = layout.SCHEMA - 1
LARGE = {"n": 12_000, "text": "x", "gap": 0}


def git(*words: str) -> bytes:
    """Return what git says, nothing where it refuses."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else b""


def release_before(folder: Path) -> Path | None:
    """Return the sources of the last commit that wrote the old layout, None if there is none."""
    path = "async_nodes/storage/layout.py"
    found = git("log", "--format=%H", "--reverse", f"-SSCHEMA = {layout.SCHEMA}", "--", path)
    first = found.decode().split("\n")[0]
    archive = git("archive", f"{first}^") if first else b""
    if not archive:
        return None
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder if f"SCHEMA = {OLD}" in (folder / path).read_text() else None


class Upgrade:
    """Change the release of a stack's processes, one at a time."""

    def __init__(self, stack: Stack, before: Path | None) -> None:
        self._stack = stack
        path = str(before) if before else None
        self._steps: dict[str, dict[str, str | None]] = {
            "before": {
                "PYTHONPATH": path,
                "ASYNC_NODES_WRITE_SCHEMA": None if before else str(OLD),
            },
            "reads both": {"PYTHONPATH": None, "ASYNC_NODES_WRITE_SCHEMA": str(OLD)},
            "after": {"PYTHONPATH": None, "ASYNC_NODES_WRITE_SCHEMA": None},
        }

    def restart(self, name: str, step: str) -> None:
        """Stop a process in order and start its other release."""
        program = self._stack[name]
        program.change(**self._steps[step])
        program.send(15)
        assert program.wait(20) == 0
        program.start()
        self._stack.ready()


def schemas(stack: Stack, task_ids: list[str]) -> set[int]:
    return {stack.store.read(task_id).schema for task_id in task_ids}


@pytest.mark.timeout(240)
def test_a_cluster_is_upgraded_process_by_process(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    """Nothing is lost or done twice, records of both layouts are read, whoever wrote them."""
    before = release_before(tmp_path)
    stack = new_stack(supervise=False)
    names = ["web", *stack.workers]
    upgrade = Upgrade(stack, before)
    for name in names:
        upgrade.restart(name, "before")
    delayed = stack.submit("echo", {"when": "old"}, delay=25)
    load = Load(stack, count=400, rate=16)
    load.start()

    for step in ("reads both", "after"):
        for name in reversed(names):
            upgrade.restart(name, step)
        if step == "reads both":
            large = stack.wait(stack.submit("test.emit", LARGE))
            assert large["output"] == "x" * 12_000
            # One of them turns out badly and goes back.
            upgrade.restart("io0", "before")
            upgrade.restart("io0", "reads both")
    last = stack.submit("echo")  # on a slow machine the load is over before the last step
    load.join()

    records = check_all_ended(stack, load.accepted, seconds=30)
    stack.wait(last)
    ids = [*(record["task_id"] for record in records), last]
    assert schemas(stack, ids) == {OLD, layout.SCHEMA}
    assert stack.wait(delayed, 30)["output"] == {"when": "old"}
    assert schemas(stack, [delayed]) == {OLD}
    large = stack.wait(stack.submit("test.emit", LARGE))
    assert (large["output"], large["output_bytes"]) == (None, 12_002)
