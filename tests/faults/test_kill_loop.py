"""The kill loop as its users run it, short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.stack import ROOT


@pytest.mark.timeout(120)
@pytest.mark.needs("redis")
def test_nothing_is_lost_while_processes_die(tmp_path: Path) -> None:
    """Twelve seconds, three hundred tasks: nothing lost, nothing twice, a report to read."""
    report = tmp_path / "report.json"
    options = ["--seconds", "12", "--tasks", "300", "--seed", "4", "--json", str(report)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "async_nodes.cli", "chaos", "kill-loop", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert (found["passed"], found["seed"], found["accepted"]) == (True, 4, 300)
    assert {kill["process"] for kill in found["kills"]} & {"worker io", "worker cpu"}
    assert "nothing was lost" in done.stdout
