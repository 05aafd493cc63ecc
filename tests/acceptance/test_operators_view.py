"""What an operator sees of many tasks: the feed, dead letters, usage."""

from __future__ import annotations

from typing import Any

import pytest

from async_nodes.cli.main import main
from tests.acceptance.stack import Stack
from tests.integration.sse_client import Stream

Captured = pytest.CaptureFixture[str]


def url_of(stack: Stack) -> str:
    """Return the web process's root."""
    return f"http://127.0.0.1:{stack.client.port}"


def post(stack: Stack, path: str) -> Any:
    """Return the answer to an empty POST."""
    return stack.client.request("POST", path)


def test_the_feed_tells_of_every_task_in_either_pool(stack: Stack) -> None:
    """Fifty tasks of several nodes, each state of each once and in order."""
    nodes = ("echo", "test.spin", "test.async_sleep")
    with Stream(stack.client, "/v1/events?tag=fed") as feed:
        feed.read()
        ids = []
        for number in range(48):
            node = nodes[number % 3]
            inputs = {} if node == "echo" else {"seconds": 0.01}
            ids.append(stack.submit(node, inputs, tags=["fed"]))
        stack.submit("echo", tags=["other"])
        feed.until(lambda events: len(events) >= 3 * len(ids), 20)
        stack.wait_all(ids)
    by_task: dict[str, list[str]] = {}
    for event in feed.events:
        by_task.setdefault(event.json["task_id"], []).append(event.json["state"])
    assert by_task == {one: ["Pending", "Running", "Succeeded"] for one in ids}
    places = [event.position for event in feed.events]
    assert places == sorted(set(places))


def test_a_retry_and_a_cancel_are_told(stack: Stack) -> None:
    """With reasons, attempts and when the next one is due."""
    with Stream(stack.client, "/v1/events?node=test.fail&node=test.sleep") as feed:
        feed.read()
        policy = {"max_attempts": 2, "initial_ms": 10, "jitter": False}
        inputs = {"kind": "retryable", "times": 1}
        failed = stack.submit("test.fail", inputs, retry_policy=policy)
        stack.wait(failed)
        slept = stack.submit("test.sleep", {"seconds": 30})
        stack.client.wait_running(slept)
        stack.client.cancel(slept, wait=5)
        feed.until(lambda events: events and events[-1].json["state"] == "Cancelled")
    told = [(event.json["state"], event.json["reason"]) for event in feed.events]
    assert told == [
        ("Pending", None), ("Running", None), ("Pending", "backoff"), ("Pending", None),
        ("Running", None), ("Succeeded", None),
        ("Pending", None), ("Running", None), ("Running", "cancelling"), ("Cancelled", None),
    ]  # fmt: skip
    assert feed.events[2].json["next_attempt_at"] is not None


def test_a_poisonous_task_is_a_dead_letter_until_somebody_helps(
    stack: Stack, capsys: Captured
) -> None:
    """Listed with the reason, sent again as a new task, dropped; by HTTP and command line."""
    task_id = stack.submit("probe.exit_cpu", {})
    assert stack.wait(task_id, 40)["reason"] == "poison"
    listed = stack.client.request("GET", "/v1/dead-letters?node=probe.exit_cpu").json
    assert [one["task_id"] for one in listed["dead_letters"]] == [task_id]
    assert main(["dead", "list", "--url", url_of(stack)]) == 0
    assert task_id in capsys.readouterr().out
    assert main(["dead", "show", task_id, "--url", url_of(stack)]) == 0
    shown = capsys.readouterr()
    assert "poison" in shown.err
    assert f'"task_id": "{task_id}"' in shown.out

    changed = stack.client.request(
        "POST",
        f"/v1/dead-letters/{task_id}/requeue",
        b'{"inputs":{"times":0}}',
        {"Content-Type": "application/json"},
    )
    assert changed.status == 202
    again = stack.wait(changed.json["task_id"], 20)
    assert (again["state"], again["retry_of"]) == ("Succeeded", task_id)
    assert main(["dead", "drop", task_id, "--url", url_of(stack)]) == 1
    assert "dead_letter_not_found" in capsys.readouterr().err


def test_letters_are_sent_again_from_the_command_line(stack: Stack, capsys: Captured) -> None:
    """By id and by node; a bulk that finds nothing does nothing; a wrong use is told."""
    url = url_of(stack)
    task_id = stack.submit("probe.exit_cpu", {})
    stack.wait(task_id, 40)
    assert main(["dead", "requeue", task_id, "--url", url]) == 0
    new_id = capsys.readouterr().out.strip()
    assert stack.wait(new_id, 40)["reason"] == "poison"
    assert main(["dead", "requeue", "--node", "nobody", "--url", url]) == 0
    assert main(["dead", "requeue", "--url", url]) == 2
    assert main(["dead", "drop", new_id, "--url", url]) == 0
    assert new_id in capsys.readouterr().out


def test_usage_counts_what_every_attempt_has_used(stack: Stack, capsys: Captured) -> None:
    """An attempt that is tried again counts as well; the record shows the last one's."""
    with stack.redis() as client:
        for key in client.scan_iter("an:{0}:u:*"):
            client.delete(key)
    policy = {"max_attempts": 3, "initial_ms": 10, "jitter": False}
    inputs = {"counts": {"total_tokens": 5}, "times": 2}
    record = stack.wait(stack.submit("test.usage", inputs, retry_policy=policy))
    assert (record["attempt"], record["usage"]) == (3, {"total_tokens": 5})
    found = stack.client.request("GET", "/v1/usage?node=test.usage").json
    assert found["totals"] == {"total_tokens": 15}
    assert main(["usage", "--node", "test.usage", "--url", url_of(stack)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown] == [
        ["test.usage", "total_tokens", "15"], ["all", "total_tokens", "15"],
    ]  # fmt: skip
    assert main(["usage", "--days", "--node", "nobody", "--url", url_of(stack)]) == 0
    assert "Nothing was counted" in capsys.readouterr().err
