"""Schedules over the whole product: each tick once, whoever dies, and what an outage leaves."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.cli_processes import command, environ
from tests.acceptance.stack import Stack

pytestmark = pytest.mark.needs("redis")
JSON = {"Content-Type": "application/json"}
SECOND = timedelta(seconds=1)


def create(stack: Stack, name: str, **members: Any) -> dict[str, Any]:
    """Create a schedule."""
    body = {"name": name, "task": {"node": "echo", "inputs": {"of": name}}, **members}
    reply = stack.client.request("POST", "/v1/schedules", json.dumps(body).encode(), JSON)
    assert reply.status == 201, reply
    found: dict[str, Any] = reply.json
    return found


def show(stack: Stack, name: str) -> dict[str, Any]:
    """Return a schedule as it is now."""
    found: dict[str, Any] = stack.client.request("GET", f"/v1/schedules/{name}").json
    return found


def do(stack: Stack, name: str, what: str) -> None:
    """Pause or resume a schedule."""
    assert stack.client.request("POST", f"/v1/schedules/{name}/{what}").status == 200


def tasks(stack: Stack, name: str) -> list[dict[str, Any]]:
    """Return the records of a schedule's tasks, oldest first."""
    path = f"/v1/tasks?tag=schedule:{name}&limit=200&fields=full"
    found: list[dict[str, Any]] = stack.client.request("GET", path).json["tasks"]
    return found[::-1]


def ticks(stack: Stack, name: str) -> list[datetime]:
    """Return the ticks of a schedule's tasks, rising."""
    found = [task["metadata"]["scheduled_at"] for task in tasks(stack, name)]
    return sorted(datetime.fromisoformat(text) for text in found)


def check_each_once(found: list[datetime], every: timedelta) -> None:
    """Fail unless there is one task for each tick, with none left out in between."""
    twice = [tick for tick, number in Counter(found).items() if number > 1]
    assert twice == []
    assert {later - tick for tick, later in itertools.pairwise(found)} <= {every}


def test_each_tick_gives_one_task_while_workers_are_killed(
    new_stack: Callable[..., Stack],
) -> None:
    """Four workers of either pool fire every second; two die in the middle of it."""
    stack = new_stack(io=2, cpu=2)
    for number in range(3):
        create(stack, f"beat{number}", every=1)

    for name in ("io0", "cpu1"):
        time.sleep(2.3)
        stack.kill(name)
    time.sleep(4.0)

    for number in range(3):
        name = f"beat{number}"
        do(stack, name, "pause")
        found = ticks(stack, name)
        assert len(found) >= 7
        check_each_once(found, SECOND)
        assert show(stack, name)["counts"] == {"fired": len(found), "missed": 0, "skipped": 0}
        stack.wait_all([task["task_id"] for task in tasks(stack, name)])


def test_what_an_outage_leaves_is_up_to_the_policy(new_stack: Callable[..., Stack]) -> None:
    """All workers are gone for some ticks, and come back."""
    stack = new_stack(io=1, cpu=0)
    policies = {"skip": 0, "once": 1, "all": 4}
    for policy in policies:
        create(stack, policy, every=4, missed=policy)
    before = stack.until(
        lambda: all(show(stack, policy)["counts"]["fired"] for policy in policies), "nothing fires"
    )
    assert before < 8

    stack["io0"].remove()
    last = {policy: max(ticks(stack, policy)) for policy in policies}
    latest = min(last.values()) + timedelta(seconds=16 + 10)  # four ticks are missed by then
    time.sleep(max((latest - datetime.now(latest.tzinfo)).total_seconds() + 0.5, 0.0))
    stack["io0"].start()
    stack.ready()
    stack.until(
        lambda: all(max(ticks(stack, policy)) > latest for policy in policies), "they stay away"
    )

    for policy in policies:
        do(stack, policy, "pause")
    skip, once, made_up = ({*ticks(stack, p)} for p in policies)
    check_each_once(sorted(made_up), 4 * SECOND)
    assert show(stack, "all")["counts"]["missed"] == 0
    for policy, found in (("skip", skip), ("once", once)):
        counts = show(stack, policy)["counts"]
        assert counts["missed"] >= 4
        assert counts["fired"] == len(found) == len(tasks(stack, policy))
        away = last[policy], latest - timedelta(seconds=10)
        assert [tick for tick in found if away[0] < tick < away[1]] == []


def test_a_long_task_is_not_overlapped(stack: Stack) -> None:
    """With overlap skip one task runs at a time, however often it ticks."""
    task = {"node": "test.sleep", "inputs": {"seconds": 2.5}}
    create(stack, "slow", every=1, overlap="skip", task=task)
    stack.until(lambda: show(stack, "slow")["counts"]["fired"] >= 2, "it does not fire")
    do(stack, "slow", "pause")

    found = stack.wait_all([one["task_id"] for one in tasks(stack, "slow")])
    assert show(stack, "slow")["counts"]["skipped"] >= 2
    for one, after in itertools.pairwise(found):
        assert after["created_at"] >= one["finished_at"]


def test_a_schedule_by_cron_fires_for_a_full_minute(stack: Stack) -> None:
    """The workers read cron too: a minute that has passed is made up for, the next one follows."""
    made = create(stack, "minutely", cron="* * * * *", timezone="Europe/Berlin")
    coming = datetime.fromisoformat(made["next_at"])
    assert (coming.second, coming.microsecond) == (0, 0)
    passed = coming - timedelta(minutes=3)
    with stack.redis() as client:  # as if nobody had been there for three minutes
        client.hset("an:{0}:schedule:default:minutely", "next", round(passed.timestamp()) * 1000)
        client.zadd("an:{0}:due", {"s:default:minutely": 0})

    stack.until(lambda: bool(tasks(stack, "minutely")), "it does not fire")

    do(stack, "minutely", "pause")
    found = ticks(stack, "minutely")
    assert {(tick.second, tick.microsecond) for tick in found} == {(0, 0)}
    assert min(found) >= passed + timedelta(minutes=1)
    counts = show(stack, "minutely")["counts"]
    assert counts["missed"] >= 1
    assert counts["fired"] == len(found)


def test_the_command_line_does_it_all(stack: Stack) -> None:
    """Add, list, show, pause, resume, trigger, remove; mistakes are explained."""
    env = environ()
    url = f"http://127.0.0.1:{stack.client.port}"

    def run(*words: str, status: int = 0) -> str:
        done = command("schedule", *words, "--url", url, env=env)
        assert done.returncode == status, done
        return done.stdout + done.stderr

    assert "cli-1  " in run("add", "cli-1", "echo", "a=x", "n:=2", "--cron", "0 3 * * *", "--timezone", "Europe/Berlin")  # fmt: skip  # noqa: E501
    assert "schedule_exists" in run("add", "cli-1", "echo", "--every", "5", status=1)
    assert "cli-1" in run("add", "cli-1", "echo", "a=x", "--every", "3600", "--replace")
    listed = run("list").splitlines()
    assert any(line.startswith("cli-1") and "every 3600 s" in line for line in listed)
    assert json.loads(run("show", "cli-1", "--json"))["task"]["inputs"] == {"a": "x"}
    assert run("show", "cli-1").count("then") == 4
    assert "paused" in run("pause", "cli-1")
    task_id = run("trigger", "cli-1").strip()
    assert stack.wait(task_id)["tags"] == ["schedule:cli-1"]
    assert task_id in run("show", "cli-1")
    assert "paused" not in run("resume", "cli-1")
    run("rm", "cli-1")
    assert "schedule_not_found" in run("show", "cli-1", status=1)
    assert "did you mean" in run("add", "cli-2", "ecoh", "--every", "5", status=1)
    assert "either cron or every is required" in run("add", "cli-2", "echo", status=1)
