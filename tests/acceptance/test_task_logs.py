"""What nodes log, from every kind of body to the client."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from async_nodes.cli.main import main
from tests.acceptance.stack import Stack
from tests.integration.sse_client import Stream

EVENTS = {"accept": "text/event-stream"}
BODIES = ("probe.log", "probe.log_cpu", "probe.log_async")


def lines_of(stack: Stack, task_id: str) -> list[dict[str, Any]]:
    """Return the lines of a task's log."""
    reply = stack.client.request("GET", f"/v1/tasks/{task_id}/logs")
    assert reply.status == 200, reply
    lines: list[dict[str, Any]] = reply.json["lines"]
    return lines


def texts(stack: Stack, task_id: str) -> list[str]:
    """Return what a task has logged."""
    return [line["text"] for line in lines_of(stack, task_id)]


@pytest.mark.parametrize("node", BODIES)
def test_every_line_is_there_when_a_task_has_ended(stack: Stack, node: str) -> None:
    """In the I/O pool, the CPU pool and on the asyncio loop, the last line included."""
    task_id = stack.submit(node, {"lines": 30})
    assert stack.wait(task_id)["state"] == "Succeeded"
    lines = lines_of(stack, task_id)
    assert [line["text"] for line in lines] == [f"line {n} of attempt 1" for n in range(30)]
    assert [line["n"] for line in lines] == list(range(1, 31))
    assert {line["level"] for line in lines} == {"info"}


@pytest.mark.parametrize("node", BODIES)
def test_lines_come_while_the_body_runs(stack: Stack, node: str) -> None:
    """Whoever follows sees what was logged before a long silence, then the rest, then the end."""
    task_id = stack.submit(node, {"lines": 3, "seconds": 2.0})
    stack.client.wait_running(task_id)
    with Stream(stack.client, f"/v1/tasks/{task_id}/logs", **EVENTS) as stream:
        stream.until(lambda events: len(events) >= 2, 1.7)
        assert stack.client.get(task_id)["state"] == "Running"
        events = stream.rest()
    assert [event.type for event in events] == ["log"] * 3 + ["done"]


@pytest.mark.parametrize("node", BODIES)
def test_a_clean_up_logs_too(stack: Stack, node: str) -> None:
    """What runs after the end of its task adds to the same log."""
    task_id = stack.submit(node, {"lines": 1, "fail": True})
    assert stack.wait(task_id)["state"] == "Failed"
    stack.until(lambda: len(lines_of(stack, task_id)) == 4, "no lines of the clean-up", 10)
    cleaned = [f"cleaned {n} after Failed" for n in range(3)]
    assert texts(stack, task_id) == ["line 0 of attempt 1", *cleaned]
    assert [line["n"] for line in lines_of(stack, task_id)] == [1, 2, 3, 4]


@pytest.mark.parametrize("node", BODIES)
def test_a_cancelled_task_keeps_its_lines(stack: Stack, node: str) -> None:
    """What was said before the cancel is there; the clean-up after it may say more than one."""
    task_id = stack.submit(node, {"lines": 2, "seconds": 30})
    stack.client.wait_running(task_id)
    stack.until(lambda: len(lines_of(stack, task_id)) == 1, "no line", 5)
    assert stack.client.cancel(task_id, wait=5).json["state"] == "Cancelled"
    stack.until(lambda: len(lines_of(stack, task_id)) == 4, "no lines of the clean-up", 10)
    assert texts(stack, task_id)[1:] == [f"cleaned {n} after Cancelled" for n in range(3)]


def test_a_suspect_logs_from_its_own_process(stack: Stack) -> None:
    """Starts that were lost leave their lines; each start counts from 1."""
    task_id = stack.submit("probe.log_and_exit", {"times": 2})
    assert stack.wait(task_id, 30)["state"] == "Succeeded"
    lines = lines_of(stack, task_id)
    assert [line["text"] for line in lines] == ["start 1", "start 2", "start 3"]
    assert [(line["attempt"], line["n"]) for line in lines] == [(1, 1), (2, 1), (3, 1)]


def test_a_flood_is_bounded_and_says_so(stack: Stack) -> None:
    """A body that logs without end is not held up; the log says how many lines it lost."""
    task_id = stack.submit("test.log", {"n": 20_000, "lines": ["x" * 50]})
    record = stack.wait(task_id, 20)
    assert record["state"] == "Succeeded"
    lines = lines_of(stack, task_id)
    dropped = [line["text"] for line in lines if "dropped" in line["text"]]
    assert dropped
    assert sum(len(line["text"]) for line in lines) < 256 << 10


def test_a_traceback_is_a_line(stack: Stack) -> None:
    """Long lines are cut at 8 KiB."""
    task_id = stack.submit("test.log", {"lines": ["é" * 10_000]})
    stack.wait(task_id)
    (text,) = texts(stack, task_id)
    assert len(text.encode()) <= 8 << 10
    assert text.endswith("… [cut: 20,000 bytes]")


def test_secrets_are_in_no_log(stack: Stack) -> None:
    """Neither lines, records, the feed's events nor the processes' logs show a redacted input."""
    password = "hunter2-only-for-the-node"
    good = stack.submit("probe.secret", {"password": password, "count": 1})
    bad = stack.submit("llm.chat", stack.chat("fail", api_key=password))
    for task_id in (good, bad):
        stack.wait(task_id)
        assert password not in str(lines_of(stack, task_id))
        assert password not in str(stack.client.get(task_id))
    assert texts(stack, good) == [f"it has {len(password)} characters"]
    assert all(password not in program.text() for program in stack.programs.values())


def test_the_command_line_shows_a_log(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """`logs` prints the lines, `--follow` goes on to the end, `--level` leaves some out."""
    url = f"http://127.0.0.1:{stack.client.port}"
    task_id = stack.submit("probe.log", {"lines": 3, "seconds": 0.5, "fail": True})
    assert main(["logs", task_id, "--follow", "--url", url]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.partition("info")[2].strip() for line in shown if "info" in line] == [
        f"line {n} of attempt 1" for n in range(3)
    ]
    stack.until(lambda: len(lines_of(stack, task_id)) == 6, "no lines of the clean-up", 10)
    assert main(["logs", task_id, "--level", "warning", "--url", url]) == 0
    assert capsys.readouterr().out.count("cleaned") == 3


def test_a_run_that_is_followed_shows_the_log(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines stand on stderr among the states; stdout holds the output alone."""
    url = f"http://127.0.0.1:{stack.client.port}"
    assert main(["run", "probe.log", "lines:=2", "seconds:=0.3", "--follow", "--url", url]) == 0
    shown = capsys.readouterr()
    assert shown.out == "2\n"
    assert "line 0 of attempt 1" in shown.err
    assert "line 1 of attempt 1" in shown.err
    assert shown.err.index("line 1") < shown.err.index("Succeeded")


def test_lines_cost_the_end_of_a_task_little(stack: Stack) -> None:
    """Fifty tasks that log end about as fast as fifty that do not."""

    def seconds(node: str, inputs: dict[str, Any]) -> float:
        began = time.monotonic()
        stack.wait_all([stack.submit(node, inputs) for _ in range(50)])
        return time.monotonic() - began

    silent, said = seconds("echo", {}), seconds("probe.log", {"lines": 5})
    assert said < silent + 2.5


@pytest.mark.parametrize("node", ["probe.indiscreet", "probe.indiscreet_cpu"])
def test_a_secret_that_a_node_says_is_not_shown(stack: Stack, node: str) -> None:
    """Neither in the task's log or its error, nor in what the worker writes."""
    task_id = stack.submit(node, {"password": "hunter2hunter2"})
    record = stack.wait(task_id)
    logged = stack.client.request("GET", f"/v1/tasks/{task_id}/logs").json["lines"]

    assert record["error"]["message"] == "[redacted] is wrong"
    said, raised = [line["text"] for line in logged]
    assert said == "the password is [redacted]"
    assert raised.startswith("The node raised\nTraceback (most recent call last):\n")
    assert raised.endswith("[redacted] is wrong")
    assert "hunter2hunter2" not in raised
    assert "hunter2hunter2" not in json.dumps(record)
    stack.until(lambda: "the password is [redacted]" in stack.logs(), "not logged", 5)
    assert "hunter2hunter2" not in stack.logs(10_000)
