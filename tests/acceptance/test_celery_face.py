"""What of Celery's own works with our tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from tests.acceptance.stack import ROOT, Stack

READ = """
import json, sys
from celery_app import app
result = app.AsyncResult(sys.argv[1])
before = result.state
print(json.dumps([before, result.get(timeout=10), result.state, result.successful()]))
"""


def python(stack: Stack, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has the stack's settings."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=ROOT,
        env={**os.environ, "ASYNC_NODES_REDIS_URL": stack.server.url + "?db=0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_async_result_waits_for_our_tasks(stack: Stack) -> None:
    """`AsyncResult(task_id).get()` gives the output as soon as there is one."""
    for node in ("test.sleep", "probe.sleep_cpu"):
        task_id = stack.submit(node, {"seconds": 3})
        stack.client.wait_running(task_id)
        done = python(stack, READ, task_id)
        before, value, after, successful = json.loads(done.stdout)

        assert (before, after, successful) == ("STARTED", "SUCCESS", True)
        assert value == stack.wait(task_id)["output"]


def test_a_cpu_workers_log_is_quiet(stack: Stack) -> None:
    """Ordinary work of the CPU pool writes nothing, whatever backend Celery is told to use."""
    lines = stack["cpu0"].text().splitlines()
    stack.wait_all([stack.submit("text.chunk", {"text": "one two " * 50, "size": 100})] * 3)

    assert stack["cpu0"].text().splitlines() == lines
