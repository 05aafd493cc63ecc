"""Pauses, drains and purges over the whole product: both transports, both pools, and deaths."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli_processes import command, environ
from tests.acceptance.stack import RECOVERY, Stack
from tests.acceptance.web_client import Reply

pytestmark = pytest.mark.needs("redis")
JSON = {"Content-Type": "application/json"}
NODES = {"io": "test.count", "cpu": "probe.count_cpu"}
QUIET = 0.6
"""Seconds after which a task that would start has started."""


@pytest.fixture(scope="module", params=["fast", "stock"])
def either_stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """Give a stack of either transport, for the tests of this module that kill nothing."""
    stack = Stack(
        tmp_path_factory.mktemp(request.param),
        environ={"ASYNC_NODES_TRANSPORT": request.param},
    )
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def paused(either_stack: Stack) -> Iterator[Stack]:
    """Give the stack, and end what a failed test has left in force."""
    yield either_stack
    either_stack.store.link.call("DEL", either_stack.store.keys.controls)


def act(stack: Stack, path: str, **members: Any) -> Any:
    """Do something to a queue or a node and return the answer."""
    reply: Reply = stack.client.request("POST", path, json.dumps(members).encode(), JSON)
    assert reply.status == 200, reply
    return reply.json


def look(stack: Stack, path: str) -> Any:
    """Return what an address shows."""
    reply = stack.client.request("GET", path)
    assert reply.status == 200, reply
    return reply.json


def begun(path: Path) -> list[str]:
    """Return the ids of the tasks that have started, in their order."""
    return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []


def held(stack: Stack, scope: str) -> int:
    """Return how many tasks a scope holds."""
    return int(stack.store.link.call("LLEN", stack.store.keys.held(scope)))


def until_held(stack: Stack, scope: str, count: int, seconds: float = 10.0) -> None:
    """Wait until a scope holds so many."""
    stack.until(lambda: held(stack, scope) == count, f"{scope} does not hold {count}", seconds)


@pytest.mark.parametrize("kind", ["io", "cpu"])
@pytest.mark.parametrize("by", ["queue", "node"])
def test_what_is_paused_does_not_start(paused: Stack, tmp_path: Path, kind: str, by: str) -> None:
    """Not before it is resumed; then all of it does, and each once."""
    node, path = NODES[kind], tmp_path / "begun"
    scope = f"queue:{kind}.default" if by == "queue" else f"node:{node}"
    address = f"/v1/{by}s/{scope.partition(':')[2]}"
    act(paused, f"{address}/pause", reason="a look around")
    ids = [paused.submit(node, {"path": str(path)}) for _ in range(6)]
    until_held(paused, scope, 6)
    time.sleep(QUIET)

    assert begun(path) == []
    assert {paused.client.get(one)["reason"] for one in ids} == {"paused"}
    place = look(paused, f"/v1/tasks/{ids[0]}/queue")
    assert place["why"]["code"] == "paused"
    assert "a look around" in place["why"]["en"]
    assert act(paused, f"{address}/resume")["touched"] == 6
    records = paused.wait_all(ids)
    assert {one["state"] for one in records} == {"Succeeded"}
    assert [one["attempt"] for one in records] == [1] * 6
    assert sorted(begun(path)) == sorted(ids)


def test_held_tasks_start_in_their_order(paused: Stack, tmp_path: Path) -> None:
    """The first submitted is the first to start, where one runs at a time."""
    path = tmp_path / "begun"
    act(paused, "/v1/queues/cpu/pause")
    ids = []
    for count in range(6):
        ids.append(paused.submit(NODES["cpu"], {"path": str(path), "seconds": 0.05}))
        until_held(paused, "queue:cpu.default", count + 1)
    act(paused, "/v1/queues/cpu/resume")
    paused.wait_all(ids)

    order = begun(path)
    # Two children run side by side, so that neighbours may change places.
    assert all(abs(order.index(one) - at) <= 2 for at, one in enumerate(ids))


@pytest.mark.parametrize("kind", ["io", "cpu"])
def test_a_pause_lets_run_what_runs(paused: Stack, tmp_path: Path, kind: str) -> None:
    """And a cancel, of a held task as well, does its work meanwhile."""
    node, path = NODES[kind], tmp_path / "begun"
    running = paused.submit(node, {"path": str(path), "seconds": 1.0})
    paused.client.wait_running(running)
    act(paused, f"/v1/queues/{kind}/pause")
    waiting = paused.submit(node, {"path": str(path)})
    until_held(paused, f"queue:{kind}.default", 1)

    assert paused.client.cancel(waiting).json["state"] == "Cancelled"
    assert paused.client.request("DELETE", f"/v1/tasks/{waiting}").status == 204
    assert paused.wait(running)["state"] == "Succeeded"
    assert held(paused, f"queue:{kind}.default") == 0
    act(paused, f"/v1/queues/{kind}/resume")
    assert begun(path) == [running]


def test_a_deadline_passes_in_a_pause(paused: Stack) -> None:
    """The task fails in time; a delayed one becomes due and is held."""
    act(paused, "/v1/nodes/echo/pause")
    late = paused.submit("echo", delay=0.1)
    deadline = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
    mortal = paused.submit("echo", deadline=deadline)
    until_held(paused, "node:echo", 2)

    record = paused.wait(mortal, 10)
    assert (record["state"], record["reason"]) == ("Failed", "deadline")
    assert held(paused, "node:echo") == 1
    act(paused, "/v1/nodes/echo/resume")
    assert paused.wait(late)["state"] == "Succeeded"


def test_a_retry_that_becomes_due_is_held(paused: Stack) -> None:
    """It starts when the pause is over."""
    retry = {"max_attempts": 2, "initial_ms": 500, "jitter": False}
    task_id = paused.submit("test.fail", {"kind": "retryable", "times": 1}, retry_policy=retry)
    paused.client.wait_until(task_id, lambda record: record["reason"] == "backoff")
    act(paused, "/v1/queues/io/pause")
    until_held(paused, "queue:io.default", 1)

    assert paused.client.get(task_id)["reason"] == "paused"
    act(paused, "/v1/queues/io/resume")
    assert paused.wait(task_id)["attempt"] == 2


def test_a_drained_node_is_worked_off(paused: Stack) -> None:
    """What waits runs, what is new is refused, with the time to come back."""
    running = paused.submit("test.sleep", {"seconds": 0.5})
    act(paused, "/v1/nodes/test.sleep/drain", reason="moving")
    body = json.dumps({"node": "test.sleep"}).encode()
    refused = paused.client.request("POST", "/v1/tasks", body, JSON)

    assert (refused.status, refused.json["code"]) == (503, "draining")
    assert paused.wait(running)["state"] == "Succeeded"
    act(paused, "/v1/nodes/test.sleep/resume")
    paused.wait(paused.submit("test.sleep", {"seconds": 0}))


def test_workers_and_queues_tell_how_they_are(paused: Stack) -> None:
    """Of either pool: who they are, how busy, and that tasks were taken of late."""
    ids = [paused.submit("echo") for _ in range(20)]
    ids += [paused.submit("probe.sleep_cpu", {"seconds": 0}) for _ in range(4)]
    paused.wait_all(ids)

    def rates() -> dict[str, float]:
        return {one["name"]: one["rate"] for one in look(paused, "/v1/queues")["queues"]}

    paused.until(lambda: rates()["io.default"] > 0 and rates()["cpu.default"] > 0, "no rates", 10.0)
    cpu, io = look(paused, "/v1/workers")["workers"]
    assert (cpu["kind"], cpu["concurrency"], cpu["transport"]) == ("cpu", 2, "stock")
    assert (io["kind"], io["concurrency"], io["pid"]) == ("io", 100, paused["io0"].pid)
    assert set(io["rates"]) == {"io.high", "io.default", "io.low"}
    assert set(cpu["rates"]) == {"cpu.high", "cpu.default", "cpu.low"}
    assert io["nodes"] > 10
    assert io["stalls"] == 0
    for node in ("test.sleep", "probe.sleep_cpu"):
        task_id = paused.submit(node, {"seconds": 1.5})
        paused.client.wait_running(task_id)
        owner = cpu if node.endswith("cpu") else io
        shown = look(paused, f"/v1/workers/{owner['worker_id']}")
        assert [(one["task_id"], one["node"]) for one in shown["tasks"]] == [(task_id, node)]
        assert (shown["running"], shown["free"]) == (1, owner["concurrency"] - 1)
        assert look(paused, f"/v1/tasks/{task_id}/queue")["why"]["code"] == "running"


def test_busy_slots_are_why_a_task_waits(paused: Stack) -> None:
    """With an estimate by the rate of late."""
    ids = [paused.submit("probe.sleep_cpu", {"seconds": 1.0}) for _ in range(5)]
    for task_id in ids[:2]:
        paused.client.wait_running(task_id)

    place = look(paused, f"/v1/tasks/{ids[4]}/queue")
    assert place["why"]["code"] == "busy"
    assert place["line"] == "queue"
    paused.wait_all(ids)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["fast", "stock"])
def test_workers_that_die_in_a_pause_lose_nothing(
    new_stack: Any, tmp_path: Path, transport: str
) -> None:
    """What they ran is held by the next ones, and all runs once the pause is over."""
    stack = new_stack(supervise=True, environ={"ASYNC_NODES_TRANSPORT": transport})
    path = tmp_path / "begun"
    running = {
        kind: stack.submit(node, {"path": str(path), "seconds": 30.0})
        for kind, node in NODES.items()
    }
    for task_id in running.values():
        stack.client.wait_running(task_id)
    for kind in NODES:
        act(stack, f"/v1/queues/{kind}/pause")
    waiting = {
        kind: [stack.submit(node, {"path": str(path)}) for _ in range(5)]
        for kind, node in NODES.items()
    }
    for kind in NODES:
        until_held(stack, f"queue:{kind}.default", 5)
        stack.kill(f"{kind}0", signal.SIGKILL)
    for kind in NODES:
        until_held(stack, f"queue:{kind}.default", 6, RECOVERY + 15)
    time.sleep(QUIET)

    assert sorted(begun(path)) == sorted(running.values())
    for task_id in running.values():
        assert stack.client.get(task_id)["losses"] == 1
    for kind in NODES:
        act(stack, f"/v1/queues/{kind}/resume")
    ended = stack.wait_all([one for ids in waiting.values() for one in ids], 30.0)
    assert {one["state"] for one in ended} == {"Succeeded"}
    for task_id in running.values():
        stack.client.wait_running(task_id)
        assert stack.client.cancel(task_id, wait=10).json["state"] == "Cancelled"


def test_the_command_line_does_all_of_it(paused: Stack) -> None:
    """pause, queues, doctor, purge, resume, workers."""
    env = environ(
        ASYNC_NODES_PORT=str(paused.client.port),
        ASYNC_NODES_REDIS_URL=paused.server.url + "?db=0",
    )
    assert command("pause", "io.low", "--reason", "quota", env=env).stdout == (
        "io.low: paused (quota)\n"
    )
    ids = [paused.submit("echo", priority="low") for _ in range(3)]
    until_held(paused, "queue:io.low", 3)
    table = command("queues", "io", env=env).stdout.splitlines()
    assert table[3].split()[:5] == ["io.low", "paused", "0", "0", "3"]
    assert table[4].endswith(": quota")
    doctor = command("doctor", env=env)
    assert "queue:io.low paused (quota)" in doctor.stdout
    assert doctor.returncode == 1

    assert command("purge", "queue:io.low", env=env).stdout.endswith("\n3 cancelled\n")
    assert {one["state"] for one in paused.wait_all(ids)} == {"Cancelled"}
    assert command("resume", "io.low", env=env).stdout == "io.low: open\n"
    assert command("drain", "echo", env=env).stdout == "echo: draining\n"
    assert command("resume", "node:echo", env=env).stdout == "echo: open\n"
    workers = command("workers", "--json", env=env).stdout
    kinds = [one["kind"] for one in json.loads(workers)["workers"]]
    assert kinds == ["cpu", "io"]
    alone = command("workers", json.loads(workers)["workers"][1]["worker_id"], env=env)
    assert len(alone.stdout.splitlines()) == 2
    wrong = command("pause", "io.lwo", env=env)
    assert wrong.returncode == 1
    assert "there is no node" in wrong.stderr
