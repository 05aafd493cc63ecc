"""Several web processes on one port: they die, are replaced and stop under load."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from async_nodes.access.serving.listener import bind
from tests.acceptance.stack import Stack, free_port
from tests.faults.load import measured
from tests.faults.web_clients import Crowd, check_once, pieces

PROCESSES = 4
NewStack = Callable[..., Stack]


@pytest.fixture
def several(new_stack: NewStack) -> Callable[..., Stack]:
    """Return a function that starts a stack with several web processes and waits for them all."""

    def start(**environ: str) -> Stack:
        stack = new_stack(cpu=0, environ={"ASYNC_NODES_PROCESSES": str(PROCESSES), **environ})
        stack.until(lambda: len(ready(stack)) == PROCESSES, "not all web processes serve")
        return stack

    return start


def ready(stack: Stack) -> dict[int, int]:
    """Return the ids of the running web processes by their numbers, as far as they are ready."""
    found: dict[int, int] = {}
    for pid in stack["web"].children():
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()
            if number := re.fullmatch(r"async-nodes web (\d)", title):
                found[int(number[1])] = pid
    return found


def free_ports(count: int) -> int:
    """Return the first of so many ports in a row that nobody listens on."""
    for _ in range(50):
        first = free_port()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            return first
    raise AssertionError("no ports in a row are free")


def ask(port: int, path: str = "/healthz") -> Any:
    """Return what a new connection is answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return json.load(answer)


def open_connections(
    port: int, count: int
) -> tuple[list[http.client.HTTPConnection], Counter[int]]:
    """Return connections that stay, and how many each process has of them."""
    kept, spread = [], Counter[int]()
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/healthz")
        spread[json.loads(connection.getresponse().read())["process"]] += 1
        kept.append(connection)
    return kept, spread


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_connections_are_spread_and_health_says_who_answers(several: Callable[..., Stack]) -> None:
    """Each process gets its share, shows its own metrics, and tells number and pid."""
    first = free_ports(PROCESSES)
    stack = several(ASYNC_NODES_METRICS_PORT=str(first))
    kept, spread = open_connections(stack.client.port, 200)

    assert sum(spread.values()) == 200
    assert all(25 <= spread[number] <= 80 for number in range(PROCESSES)), spread
    pids = ready(stack)
    health = ask(stack.client.port)
    assert pids[health["process"]] == health["pid"]
    assert ask(stack.client.port, "/healthz").keys() == {"status", "pid", "process"}
    for number in range(PROCESSES):
        address = f"http://127.0.0.1:{first + number}/metrics"
        with urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
        served = re.search(r'_count\{method="GET",route="/healthz",status="200"\} (\S+)', text)
        assert served is not None
        assert spread[number] <= float(served[1]) <= spread[number] + 2
    for connection in kept:
        connection.close()


def test_a_killed_process_takes_only_its_connections_along(several: Callable[..., Stack]) -> None:
    """The others go on, new connections are served at once, and it comes back."""
    stack = several()
    port = stack.client.port
    task_id = stack.submit("echo", {"text": "x"})
    stack.wait(task_id)

    async def crowd() -> Crowd:
        crowd = Crowd(port)
        pollers = [asyncio.create_task(crowd.poll(task_id, every=0.1)) for _ in range(60)]
        submitters = [asyncio.create_task(crowd.submit(every=0.1)) for _ in range(3)]
        await asyncio.sleep(1.0)
        victim = ready(stack)[1]
        os.kill(victim, signal.SIGKILL)
        until = time.monotonic() + 20
        while ready(stack).get(1) in (None, victim):
            assert time.monotonic() < until, stack.logs()
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.5)
        crowd.stopping = True
        await asyncio.gather(*pollers, *submitters)
        return crowd

    seen = asyncio.run(crowd())
    stack.wait_all(seen.accepted)
    # Answers that were half sent, or never, cannot be told from a fault: at most those.
    in_flight = [failure for failure in seen.failures if "within" not in failure]
    assert in_flight == [], in_flight
    assert 0 < seen.resent < 60
    measured(f"{seen.polls} polls, {seen.resent} sent again, slowest {seen.slowest:.2f} s")
    assert seen.slowest < 6.0
    assert stack["web"].text().count("action=web_died") == 1


def test_all_are_replaced_and_no_client_notices(several: Callable[..., Stack]) -> None:
    """Two hundred pollers, fifty streams and submits: nothing fails, each chunk comes once."""
    stack = several()
    port, chunks = stack.client.port, 300
    before = ready(stack)
    polled = stack.submit("echo", {"text": "x"})
    told = [stack.submit("test.emit", {"pieces": pieces(chunks), "gap": 0.1}) for _ in range(50)]

    async def crowd() -> tuple[Crowd, list[Any]]:
        crowd = Crowd(port)
        streams = [asyncio.create_task(crowd.follow(task_id)) for task_id in told]
        others = [asyncio.create_task(crowd.poll(polled, every=0.5)) for _ in range(200)]
        others += [asyncio.create_task(crowd.submit(every=0.2)) for _ in range(5)]
        await asyncio.sleep(1.0)
        stack["web"].send(signal.SIGHUP)
        until = time.monotonic() + 60
        while "action=web_rolled" not in stack["web"].text():
            assert time.monotonic() < until, stack.logs()
            await asyncio.sleep(0.1)
        await asyncio.sleep(3.0)  # the last of the old ones
        crowd.stopping = True
        await asyncio.gather(*others)
        return crowd, await asyncio.gather(*streams)

    seen, streams = asyncio.run(crowd())

    assert seen.failures == []
    for events in streams:
        check_once(events, chunks=chunks)
    assert seen.resumed >= 25, "a stream for each of the processes that were replaced"
    stack.wait_all(seen.accepted)
    assert len(set(seen.accepted)) == len(seen.accepted)
    after = ready(stack)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert not any(alive(pid) for pid in before.values())
    measured(
        f"{seen.polls} polls, {len(seen.accepted)} submits, {seen.resent} sent again, "
        f"{seen.resumed} streams resumed, slowest poll {seen.slowest:.2f} s"
    )


def test_a_release_that_does_not_start_replaces_nobody(several: Callable[..., Stack]) -> None:
    """The processes that run go on when their successor ends."""
    module = Path(__file__).parent / "passing_nodes.py"
    module.write_text("")
    try:
        stack = several(ASYNC_NODES_IMPORTS="tests.faults.passing_nodes")
        before = ready(stack)
        module.write_text("raise RuntimeError('a broken release')")
        stack["web"].send(signal.SIGHUP)
        log = stack["web"].text
        stack.until(lambda: "action=web_roll_failed" in log(), "the failure is not told")
        assert ready(stack) == before
        assert ask(stack.client.port)["status"] == "ok"
        module.write_text("")
        stack["web"].send(signal.SIGHUP)
        stack.until(lambda: "action=web_rolled" in log(), "not replaced", 60)
        assert not set(ready(stack).values()) & set(before.values())
    finally:
        module.unlink()


@pytest.mark.parametrize("everybody", [False, True], ids=["the keeper", "all of them, twice"])
def test_they_stop_promptly(several: Callable[..., Stack], *, everybody: bool) -> None:
    """With streams and idle connections open, and whoever gets the signal: seconds, status 0."""
    stack = several(ASYNC_NODES_SHUTDOWN_SECONDS="20")
    kept, _ = open_connections(stack.client.port, 40)
    task_id = stack.submit("test.sleep", {"seconds": 60})
    feeds = [stack.client.events(task_id) for _ in range(12)]
    pids = ready(stack).values()
    began = time.monotonic()
    for _ in range(1 + everybody):
        for pid in [stack["web"].pid, *(pids if everybody else ())]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.05)
    assert stack["web"].wait(15) == 0
    took = time.monotonic() - began
    for feed in feeds:
        assert feed.body().decode().rstrip().endswith("retry: 1000")
        feed.close()
    for connection in kept:
        connection.close()
    assert took < 5
    assert not any(alive(pid) for pid in pids)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", stack.client.port)) != 0
    assert "Traceback" not in stack["web"].text()


def test_signals_without_end_change_nothing(several: Callable[..., Stack]) -> None:
    """Whoever asks again and again, until the very last moment, still gets status 0."""
    stack = several()
    ready(stack)
    web = stack["web"]
    until = time.monotonic() + 15
    while web.status is None and time.monotonic() < until:
        web.send(signal.SIGTERM)
        time.sleep(0.0005)
    assert web.wait(0.0) == 0


def test_nobody_outlives_a_killed_keeper(several: Callable[..., Stack]) -> None:
    """SIGKILL leaves no process and no listener behind."""
    stack = several()
    pids = ready(stack).values()
    stack["web"].send(signal.SIGKILL)
    stack.until(lambda: not any(alive(pid) for pid in pids), "a web process lives on", 10)
    again = bind("127.0.0.1", stack.client.port)
    assert again.getsockname()[1] == stack.client.port
    again.close()


def test_a_taken_port_is_refused(several: Callable[..., Stack]) -> None:
    """Processes that share a port among themselves share it with nobody else."""
    stack = several()
    words = ["serve", "--port", str(stack.client.port), "--processes", "2"]
    second = stack.add_program("second", [sys.executable, "-P", "-m", "async_nodes.cli", *words])
    second.start()
    assert second.wait(20) == 1
    assert "is in use" in second.text()
