"""The samples of the OpenAPI document, run as a reader would: copied, with ids of one's own.

Each is what `/docs` shows for its operation, in curl and in Python.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from async_nodes.access.openapi.document import document
from async_nodes.access.openapi.pieces import METHODS
from async_nodes.access.openapi.samples import SERVER
from async_nodes.nodes.registry import registry
from tests.acceptance.stack import Stack
from tests.acceptance.web_client import JSON

SAMPLES = {
    operation["operationId"]: {
        sample["label"]: sample["source"] for sample in operation["x-codeSamples"]
    }
    for item in document(registry(())).get("paths", {}).values()
    for operation in (item[method] for method in sorted(METHODS & item.keys()))
}
TASK = re.compile("t_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D")
FILE = re.compile("f_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D")
WORKER = re.compile("io-4711-1f2e3d4c")
BREAKER = re.compile("(?<=breakers/node:)echo")
ENDLESS = {"followTasks"}
WITH_SCHEDULE = {name for name in SAMPLES if name.endswith("Schedule") and name != "createSchedule"}
LETTERS = {"showDeadLetter", "dropDeadLetter", "requeueDeadLetter"}
CONTROLS = {name for name in SAMPLES if re.match("(pause|resume|drain|purge)(Queue|Node)", name)}
NIGHTLY = {"name": "nightly", "cron": "30 2 * * *", "task": {"node": "echo"}}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack of these tests' own: the samples leave pauses and dead letters."""
    stack = Stack(tmp_path_factory.mktemp("own"))
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def of_task(stack: Stack, name: str) -> str:
    """Return the id of a task on which an operation can be done."""
    if name == "cancelTask":
        running = stack.submit("test.sleep", {"seconds": 30})
        stack.client.wait_running(running)
        return running
    if name in LETTERS:
        lost = stack.submit("probe.exit_cpu")
        stack.wait(lost)
        address = f"/v1/dead-letters/{lost}"
        stack.until(lambda: stack.client.request("GET", address).status == 200, "no dead letter", 5)
        return lost
    ended = stack.submit("echo", {"text": "hello"})
    stack.wait(ended)
    return ended


def prepared(stack: Stack, name: str, source: str) -> str:
    """Return a sample with the address and ids of things that are there."""
    ask = stack.client.request
    headers = {"Content-Type": JSON}
    ask("DELETE", "/v1/schedules/nightly")
    if name in WITH_SCHEDULE:
        assert ask("POST", "/v1/schedules", json.dumps(NIGHTLY).encode(), headers).status == 201
    if TASK.search(source):
        source = TASK.sub(of_task(stack, name), source)
    if FILE.search(source):
        kept = ask("POST", "/v1/files", b"Dear customer", {"Content-Type": "text/plain"})
        source = FILE.sub(kept.json["file_id"], source)
    if WORKER.search(source):
        workers = ask("GET", "/v1/workers").json["workers"]
        source = WORKER.sub(workers[0]["worker_id"], source)
    source = BREAKER.sub("probe.fragile", source)
    return source.replace(SERVER, f"http://127.0.0.1:{stack.client.port}")


def run_curl(source: str) -> str:
    """Return what a command for the shell writes; an answer that is an error fails it."""
    command = source.replace("curl ", "curl --fail-with-body ", 1)
    return run(["sh", "-c", command])


def run_python(source: str) -> str:
    """Return what a program writes; an answer that is an error is an exception in it."""
    return run([sys.executable, "-I", "-c", source])


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("curl")
@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - ENDLESS))
@pytest.mark.parametrize(("label", "running"), [("curl", run_curl), ("Python", run_python)])
def test_a_sample_does_what_it_shows(
    own: Stack, name: str, label: str, running: Callable[[str], str]
) -> None:
    """It runs as it stands, and the product answers with success."""
    try:
        said = running(prepared(own, name, SAMPLES[name][label]))
    finally:
        if name in CONTROLS:
            address = "/v1/nodes/echo" if name.endswith("Node") else "/v1/queues/io.default"
            own.client.request("POST", f"{address}/resume")
        own.client.request("DELETE", "/v1/schedules/nightly")
    check_outcome(name, label, said)


def check_outcome(name: str, label: str, said: str) -> None:
    """Check what some samples have to show: the effect, not only the success."""
    shown: dict[str, Callable[[Any], bool]] = {
        "submitTask": lambda told: told["state"] == "Pending" and told["task_id"].startswith("t_"),
        "readTask": lambda told: told["output"] == {"text": "hello"},
        "readResult": lambda told: told == {"text": "hello"},
        "cancelTask": lambda told: told["state"] == "Cancelled",
        "createSchedule": lambda told: told["name"] == "nightly" and len(told["preview"]) > 0,
        "pauseSchedule": lambda told: told["paused"] is True,
        "resumeSchedule": lambda told: told["paused"] is False,
        "uploadFile": lambda told: told["name"] == "letter.txt",
        "showNode": lambda told: told["name"] == "echo",
    }
    if name == "downloadFile":
        assert "Dear customer" in said
    elif name == "followTask":
        assert "event: done" in said
    elif name in shown and label == "curl":
        assert shown[name](json.loads(said)), said
    elif label == "Python" and not name.startswith(("delete", "drop")):
        assert said.strip()


def test_the_only_sample_that_is_not_run_never_ends() -> None:
    """The stream of all tasks."""
    assert SAMPLES.keys() >= ENDLESS
    assert "-sSN" in SAMPLES["followTasks"]["curl"]
