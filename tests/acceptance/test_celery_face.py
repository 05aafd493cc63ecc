"""What of Celery's own works with our tasks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from async_nodes.dispatch.submit import Submitter
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
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
        task_id = stack.submit(node, {"seconds": 6})
        stack.client.wait_running(task_id)
        done = python(stack, READ, task_id)
        before, value, after, successful = json.loads(done.stdout)

        assert (before, after, successful) == ("STARTED", "SUCCESS", True)
        assert value == stack.wait(task_id)["output"]


def test_async_result_gives_large_outputs(stack: Stack) -> None:
    """An output that is kept apart from its record is the result all the same."""
    task_id = stack.submit("echo", {"text": "x" * 100_000})
    record = stack.wait(task_id)
    done = python(stack, READ, task_id)

    assert (record["output"], record["output_bytes"]) == (None, 100_011)
    assert json.loads(done.stdout)[1] == {"text": "x" * 100_000}


def test_a_cpu_workers_log_is_quiet(stack: Stack) -> None:
    """Ordinary work of the CPU pool writes nothing, whatever backend Celery is told to use."""
    lines = stack["cpu0"].text().splitlines()
    stack.wait_all([stack.submit("text.chunk", {"text": "one two " * 50, "size": 100})] * 3)

    assert stack["cpu0"].text().splitlines() == lines


@pytest.mark.parametrize(
    ("pool", "node"), [("gevent", "test.sleep"), ("prefork", "probe.sleep_cpu")]
)
def test_celerys_own_command_starts_a_worker(
    new_stack: Callable[..., Stack], pool: str, node: str
) -> None:
    """`celery -A celery_app worker` takes our tasks, in either pool."""
    stack = new_stack(io=0, cpu=0)
    command = ["celery", "-A", "celery_app", "worker", "-P", pool, "-c", "2", "-l", "WARNING"]
    worker = stack.add_program("celery", [sys.executable, "-m", *command])
    worker.start()
    record = stack.wait(stack.submit(node, {"seconds": 0.1}), 20)
    worker.send(signal.SIGTERM)

    assert record["state"] == "Succeeded"
    assert worker.wait(15) == 0


def test_celerys_own_command_refuses_what_would_lose_tasks() -> None:
    """The checks hold there too."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "-P", "threads"],
        cwd=ROOT,
        env={**os.environ, "ASYNC_NODES_REDIS_URL": "unix:///nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode != 0
    assert "use gevent or prefork" in done.stderr


def test_a_scope_travels_with_its_task(stack: Stack) -> None:
    """What was in scope at the submit is in scope in the body, across the hop."""
    settings = Settings.load({"ASYNC_NODES_REDIS_URL": stack.server.url + "?db=0"})
    nodes = registry(("tests.acceptance.probe_nodes",))
    submitter = Submitter(stack.store, stack.store.id_source(), nodes, settings)
    for _ in range(3):
        body = json.dumps({"node": "probe.scope", "inputs": {}}).encode()
        done = submitter.submit(body, tenant="default", scope={"who": {"name": "Ada"}})
        output = stack.wait(done.task_id)["output"]
        assert output == {"ctx": {"name": "Ada"}, "current": {"name": "Ada"}}
    assert stack.wait(stack.submit("probe.scope", {}))["output"] == {"ctx": None, "current": None}
