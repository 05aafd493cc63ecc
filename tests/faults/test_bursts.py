"""Many at once: bursts, workers that die while they pop, both transports on the same lists."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from async_nodes.core.states import NodeState
from tests.acceptance.stack import Stack
from tests.faults.load import check_nothing_left, measured

NewStack = Callable[..., Stack]
LIMIT = 50.0
"""Seconds that a burst may take with all that belongs to it, on a machine that does other things
besides."""

READ_AT_ONCE = 500


def burst(stack: Stack, count: int, node: str = "echo", **inputs: Any) -> list[str]:
    """Submit so many tasks in one request; return their ids."""
    tasks = [{"node": node, "inputs": inputs or {"text": f"{n}"}} for n in range(count)]
    body = json.dumps({"tasks": tasks}).encode()
    headers = {"Content-Type": "application/json"}
    reply = stack.client.request("POST", "/v1/tasks/batch", body, headers)
    assert reply.json.get("accepted") == count, (reply.status, reply.body[:500])
    return [item["task_id"] for item in reply.json["results"]]


def states(stack: Stack, task_ids: list[str]) -> Counter[NodeState]:
    """Return how many tasks are in which state."""
    found: Counter[NodeState] = Counter()
    for first in range(0, len(task_ids), READ_AT_ONCE):
        known = stack.store.controls(task_ids[first : first + READ_AT_ONCE])
        found.update(one.state for one in known.values())
    return found


def check_all_succeed(stack: Stack, task_ids: list[str], seconds: float = LIMIT) -> None:
    """Check that every task succeeds in time and leaves nothing in a list."""
    assert len(set(task_ids)) == len(task_ids)
    wanted = {NodeState.SUCCEEDED: len(task_ids)}
    until = time.monotonic() + seconds
    while (found := states(stack, task_ids)) != wanted:
        assert time.monotonic() < until, found
        assert not found[NodeState.FAILED], found
        time.sleep(0.25)
    check_nothing_left(stack)


def test_thirty_bursts_of_four_hundred(new_stack: NewStack) -> None:
    """Each burst is drained whole, and the next one finds the worker as ready as the first."""
    stack = new_stack(cpu=0)
    began = time.monotonic()
    made: list[str] = []
    for _ in range(30):
        made += burst(stack, 400)
        time.sleep(0.02)
    check_all_succeed(stack, made)
    measured(f"30 bursts of 400 ended {time.monotonic() - began:.1f} s after the first submit")


def test_ten_thousand_in_one_burst(new_stack: NewStack) -> None:
    """Ten clients send a thousand each at the same moment."""
    stack = new_stack(cpu=0)
    began = time.monotonic()
    made: list[str] = []

    def client() -> None:
        made.extend(burst(stack, 1_000))
        stack.client.close()

    clients = [threading.Thread(target=client) for _ in range(10)]
    for one in clients:
        one.start()
    for one in clients:
        one.join(LIMIT)
    assert len(made) == 10_000
    check_all_succeed(stack, made)
    measured(f"10,000 at once ended {time.monotonic() - began:.1f} s after the first submit")


def test_a_worker_that_dies_while_it_pops(new_stack: NewStack) -> None:
    """It is killed again and again in the middle of a full list; every task ends, once."""
    stack = new_stack(cpu=0, supervise=True, slots=50)
    made: list[str] = []
    for kill in range(4):
        made += burst(stack, 300)
        stack.until(lambda: stack.is_registered("io0"), "no worker")
        time.sleep(0.04 * kill)  # at another moment of its work each time
        stack.kill("io0")
    check_all_succeed(stack, made)
    for task_id in made[::10]:
        assert stack.channels.ends(task_id) == 1


def test_both_transports_on_the_same_lists(new_stack: NewStack) -> None:
    """A stock worker and a fast one share the work and its accounts."""
    stack = new_stack(cpu=0, io=2, slots=20)
    stack["io1"].change(ASYNC_NODES_TRANSPORT="stock")
    stack.restart("io1")
    made = []
    for _ in range(4):
        made += burst(stack, 150, "test.sleep", seconds=0.1)
    seen: set[str] = set()
    for worker in _running(stack, made):
        seen.add(worker.partition("-")[2].partition("-")[0])
        if len(seen) == len(stack.workers):
            break
    assert seen == {str(stack[name].pid) for name in stack.workers}
    check_all_succeed(stack, made)


def _running(stack: Stack, task_ids: list[str]) -> Iterator[str]:
    """Give the workers that have been at work, for as long as anything is."""
    while states(stack, task_ids)[NodeState.SUCCEEDED] < len(task_ids):
        for worker in stack.store.workers():
            if stack.store.running(worker):
                yield worker
        time.sleep(0.05)


def test_a_server_that_stands_still_costs_no_memory(new_stack: NewStack) -> None:
    """Every submit is refused within its second; nothing of them stays in the web process."""
    stack = new_stack(cpu=0)
    text = "x" * 200_000
    stack.client.post("echo", {"text": text})
    _flood(stack, text, seconds=1.5)
    before = _megabytes(stack["web"].pid)
    stack.server.pause()
    try:
        refused, slowest, most = _flood(stack, text, seconds=6.0)
    finally:
        stack.server.resume()
    more = f"{most - before:.0f} MB more"
    measured(f"{refused[503]} refused, the slowest after {slowest:.2f} s; {more}")
    assert set(refused) == {503}
    assert refused[503] >= 50
    # A second of patience, and whatever the machine made them wait beside it.
    assert slowest < 3.0
    assert most - before < 150
    assert stack["web"].status is None


def _flood(stack: Stack, text: str, *, seconds: float) -> tuple[Counter[int], float, float]:
    """Submit from 24 clients; return the answers by status, the slowest, and the web's memory."""
    until = time.monotonic() + seconds
    answers: Counter[int] = Counter()
    times: list[float] = [0.0]

    def client() -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            reply = stack.client.post("echo", {"text": text}, timeout=10)
            times.append(time.monotonic() - began)
            answers[reply.status] += 1
        stack.client.close()

    clients = [threading.Thread(target=client) for _ in range(24)]
    for one in clients:
        one.start()
    most = 0.0
    while any(one.is_alive() for one in clients):
        most = max(most, _megabytes(stack["web"].pid))
        time.sleep(0.1)
    return answers, max(times), most


def _megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1])
    return pages * 4096 / 1e6
