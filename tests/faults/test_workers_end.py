"""Workers that die, are stopped, are told to stop, or block: their tasks run on elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.stack import LEASE, RECOVERY, ROOT, Stack
from tests.faults.load import (
    check_all_ended,
    check_nothing_left,
    check_replay,
    measured,
    ms,
    starts_after,
)

NewStack = Callable[..., Stack]
SLEEP = {"io": "test.sleep", "cpu": "probe.sleep_cpu"}
EXIT = {"io": "test.exit", "cpu": "probe.exit_cpu"}


@pytest.mark.parametrize("transport", ["stock", "fast"])
def test_a_killed_workers_task_runs_at_another(new_stack: NewStack, transport: str) -> None:
    """The second attempt starts within lease + 2 s, one terminal event (worker-killed)."""
    stack = new_stack(io=2, cpu=2, environ={"ASYNC_NODES_TRANSPORT": transport})
    ids = [stack.submit(node, {"seconds": 3}) for node in SLEEP.values()]
    for task_id in ids:
        stack.client.wait_running(task_id)
    time.sleep(0.5)
    killed = time.time()
    for task_id in ids:
        stack.kill(runner_of(stack, task_id))
    records = stack.wait_all(ids, RECOVERY + 3 + 2)

    for pool, record in zip(SLEEP, records, strict=True):
        assert (record["state"], record["attempt"], record["losses"]) == ("Succeeded", 2, 1)
        [started] = starts_after([record], "lost")
        measured(f"{pool}/{transport}: second attempt {started - killed:.2f} s after the kill")
        assert started - killed <= RECOVERY
        assert stack.channels.ends(record["task_id"]) == 1
        check_replay(stack.store.read(record["task_id"]))


def runner_of(stack: Stack, task_id: str) -> str:
    """Return the name of the worker that runs a task."""
    worker = stack.store.read(task_id).worker.decode().strip()
    return next(n for n in stack.workers if worker.startswith(f"{n[:-1]}-{stack[n].pid}-"))


@pytest.mark.parametrize("pool", ["io", "cpu"])
def test_poisons_are_found_and_innocents_do_not_pay(new_stack: NewStack, pool: str) -> None:
    """Nodes that always kill their process fail as poison, neighbours succeed (poison)."""
    stack = new_stack(supervise=True)
    count = 20 if pool == "io" else 4
    innocents = [stack.submit(SLEEP[pool], {"seconds": 2}) for _ in range(count)]
    for task_id in innocents[:2]:
        stack.client.wait_running(task_id)
    began = time.monotonic()
    poisons = [stack.submit(EXIT[pool], {}) for _ in range(2)]
    dies_once = stack.submit(EXIT[pool], {"times": 1})
    records = stack.wait_all(poisons, 40)
    measured(f"{pool}: two poisons found after {time.monotonic() - began:.2f} s")

    for record in records:
        assert (record["state"], record["reason"]) == ("Failed", "poison")
        assert record["error"]["code"] == "poison"
        assert stack.channels.ends(record["task_id"]) == 1
        check_replay(stack.store.read(record["task_id"]))
    assert sorted(stack.store.dead_letters()) == sorted(poisons)
    others = check_all_ended(stack, [*innocents, dies_once], seconds=2 * RECOVERY + 6)
    assert others[-1]["losses"] >= 1
    if pool == "cpu":
        assert {record["losses"] for record in others[:-1]} == {0}
    assert stack.wait(stack.submit("echo", {}))["state"] == "Succeeded"


def test_a_mass_kill_recovers_at_full_concurrency(new_stack: NewStack) -> None:
    """After all workers died at once, what they had runs again side by side."""
    stack = new_stack(io=2, supervise=True)
    ids = [stack.submit("test.sleep", {"seconds": 2}) for _ in range(100)]
    ids += [stack.submit("probe.sleep_cpu", {"seconds": 0.2}) for _ in range(4)]
    for task_id in ids[:100]:
        stack.client.wait_running(task_id)
    killed = time.time()
    for name in stack.workers:
        os.killpg(stack[name].pid, signal.SIGKILL)
    records = check_all_ended(stack, ids, seconds=RECOVERY + 2 + 6)

    again = [at - killed for at in starts_after(records, "lost")]
    measured(f"mass kill: {len(again)} again after {min(again):.2f} to {max(again):.2f} s")
    assert len(again) >= 100
    assert max(again) <= RECOVERY
    assert max(again) - min(again) < 2.0, "they were to start side by side"
    assert {record["losses"] for record in records[:100]} == {1}


@pytest.mark.parametrize("signals", [1, 2], ids=["once", "twice"])
def test_sigterm_drains_and_hands_back(new_stack: NewStack, signals: int) -> None:
    """A stopping worker finishes what is short, hands back the rest and exits 0, in time."""
    stack = new_stack()
    short = [stack.submit(node, {"seconds": 1}) for node in SLEEP.values()]
    long = [stack.submit(node, {"seconds": 4}) for node in SLEEP.values()]
    for task_id in (*short, *long):
        stack.client.wait_running(task_id)
    began = time.monotonic()
    for _ in range(signals):
        for name in stack.workers:
            stack.kill(name, signal.SIGTERM)
        time.sleep(0.2)
    for name in reversed(stack.workers):
        assert stack[name].wait(15) == 0
        measured(f"{name}: stopped after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 2 + 2

    assert not stack.store.workers()
    for task_id in short:
        assert stack.client.get(task_id)["state"] == "Succeeded"
    for task_id in long:
        waiting = stack.client.get(task_id)
        assert waiting["state"] == "Pending"
        assert waiting["attempts"][-1]["outcome"] in {"released", "lost"}
    for name in stack.workers:
        stack[name].start()
    for record in stack.wait_all(long, 12):
        assert (record["state"], record["attempt"]) == ("Succeeded", 2)
        assert signals == 2 or record["losses"] == 0
    assert {stack.channels.ends(task_id) for task_id in (*short, *long)} == {1}
    check_nothing_left(stack)


def test_a_cold_stop_loses_nothing(new_stack: NewStack) -> None:
    """SIGQUIT ends a worker at once; its tasks run again."""
    stack = new_stack(supervise=True)
    ids = [stack.submit(node, {"seconds": 2}) for node in SLEEP.values() for _ in range(4)]
    for task_id in (ids[0], ids[4]):
        stack.client.wait_running(task_id)
    for name in stack.workers:
        stack.kill(name, signal.SIGQUIT)
    check_all_ended(stack, ids, seconds=2 * RECOVERY + 8)


def test_a_node_that_blocks_the_loop_is_named(new_stack: NewStack) -> None:
    """The blocking node fails by name, its process is replaced, its neighbours run again."""
    stack = new_stack(cpu=0, supervise=True)
    neighbours = [stack.submit("test.sleep", {"seconds": 3}) for _ in range(10)]
    for task_id in neighbours:
        stack.client.wait_running(task_id)
    began = time.monotonic()
    blocker = stack.submit("test.spin_io", {"seconds": 60}, timeout_ms=2000)
    record = stack.wait(blocker, 10)
    measured(f"blocked loop: ended after {time.monotonic() - began:.2f} s")

    assert (record["state"], record["error"]["code"]) == ("Failed", "blocked_loop")
    assert "test.spin_io" in stack["io0"].text()
    records = check_all_ended(stack, neighbours, seconds=RECOVERY + 3 + 4)
    assert {record["losses"] for record in records} == {1}
    assert stack["io0"].starts == 2


def test_a_worker_that_stood_still_is_fenced(new_stack: NewStack, tmp_path: Path) -> None:
    """What a worker says after its lease was taken away counts for nothing."""
    stack = new_stack(io=2, cpu=0)
    path = tmp_path / "starts"
    task_id = stack.submit("test.count", {"path": str(path), "seconds": LEASE + 2})
    stack.client.wait_running(task_id)
    frozen = runner_of(stack, task_id)
    stack.kill(frozen, signal.SIGSTOP)
    stack.client.wait_until(task_id, lambda record: record["attempt"] == 2, RECOVERY + 2)
    stack.kill(frozen, signal.SIGCONT)
    record = stack.wait(task_id, LEASE + 2 + 4)
    time.sleep(1.0)

    assert (record["state"], record["attempt"], record["losses"]) == ("Succeeded", 2, 1)
    assert stack.client.get(task_id) == record
    assert stack.channels.ends(task_id) == 1
    assert record["output"] == {"attempt": 2}
    assert len(path.read_text().splitlines()) == 2
    assert "the lease was lost" in stack[frozen].text()
    check_replay(stack.store.read(task_id))
    # It serves again, under a new lease.
    assert stack.wait(stack.submit("echo", {}))["state"] == "Succeeded"
    assert len(stack.store.workers()) == 2


def test_a_message_lost_between_pop_and_claim_is_sent_again(new_stack: NewStack) -> None:
    """A task whose wake-up vanished is woken again within lease + 2 s."""
    stack = new_stack(io=1, cpu=1)
    stack["io0"].remove()
    lost = stack.submit("echo", {})
    behind = stack.submit("echo", {"text": "behind"})
    with stack.redis() as client:
        # The oldest message is at the right end.
        assert lost.encode() in client.rpop("an.io.default")
    began = time.time()
    stack["io0"].start()
    record = stack.wait(lost, RECOVERY + 5)
    started = starts(record)[0]

    measured(f"lost message: started {started - began:.2f} s later")
    assert (record["state"], record["attempt"], record["losses"]) == ("Succeeded", 1, 0)
    assert started - began <= RECOVERY
    assert stack.wait(behind)["attempt"] == 1


def starts(record: dict[str, object]) -> list[float]:
    """Return when the attempts of a record started."""
    attempts = record["attempts"]
    assert isinstance(attempts, list)
    return [ms(attempt["started_at"]) / 1000 for attempt in attempts]


def test_a_delayed_task_outlives_its_worker(new_stack: NewStack, tmp_path: Path) -> None:
    """A delay of four leases with a restart between is one execution, on time.

    (delayed-not-doubled)
    """
    stack = new_stack(cpu=0)
    path = tmp_path / "starts"
    delay = 4 * LEASE
    asked = time.time()
    task_id = stack.submit("test.count", {"path": str(path)}, delay=delay)
    time.sleep(LEASE)
    stack.restart("io0")
    record = stack.wait(task_id, delay + 4)
    time.sleep(1.0)

    late = starts(record)[0] - asked - delay
    assert (record["state"], record["attempt"]) == ("Succeeded", 1)
    assert -0.1 <= late <= 2.0
    assert len(path.read_text().splitlines()) == 1


def test_kombus_ledger_is_tidied(new_stack: NewStack) -> None:
    """What a dead worker left in `unacked` is cleared by the next one."""
    stack = new_stack(io=0, cpu=1)
    ids = [stack.submit("probe.sleep_cpu", {"seconds": 1}) for _ in range(4)]
    stack.client.wait_running(ids[0])
    os.killpg(stack["cpu0"].pid, signal.SIGKILL)
    with stack.redis() as client:
        left = client.hlen("an.unacked")
        for tag in client.zrange("an.unacked_index", 0, -1):
            client.zadd("an.unacked_index", {tag: time.time() - 3600})
    assert left >= 1
    stack["cpu0"].start()
    check_all_ended(stack, ids, seconds=RECOVERY + 10)
    with stack.redis() as client:
        for tag in client.zrange("an.unacked_index", 0, -1):
            client.zadd("an.unacked_index", {tag: time.time() - 3600})
    stack.restart("cpu0")
    with stack.redis() as client:
        stack.until(lambda: client.hlen("an.unacked") == 0, "not tidied", 5)
        assert client.zcard("an.unacked_index") == 0


def test_dead_children_leave_no_message_behind(new_stack: NewStack) -> None:
    """Children that die one after the other are replaced at once, their messages forgotten."""
    stack = new_stack(io=0, cpu=1)
    began = time.monotonic()
    for _ in range(4):
        assert stack.wait(stack.submit("probe.exit_cpu", {}))["reason"] == "poison"
    took = time.monotonic() - began
    measured(f"16 deaths of children: {took:.2f} s")

    assert took < 12
    with stack.redis() as client:
        stack.until(lambda: client.hlen("an.unacked") == 0, "left in unacked", 5)
    assert "Traceback" not in stack["cpu0"].text()
    stack.server.restart()
    assert stack.wait(stack.submit("probe.exit_cpu", {}), 20)["reason"] == "poison"


def test_an_unknown_node_fails_at_its_worker(new_stack: NewStack) -> None:
    """A worker that lacks a node says so in the record; the task does not stay Running."""
    stack = new_stack(worker_environ={"ASYNC_NODES_IMPORTS": ""})
    for node in SLEEP.values():
        record = stack.wait(stack.submit(node, {"seconds": 0}), 5)
        assert (record["state"], record["error"]["code"]) == ("Failed", "unknown_node")


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"CELERY_BROKER_TRANSPORT_OPTIONS": '{"max_connections": 10}'}, "max_connections is 10"),
        ({"CELERY_RESULT_BACKEND_THREAD_SAFE": "false"}, "CELERY_RESULT_BACKEND_THREAD_SAFE"),
        ({"CELERY_ACCEPT_CONTENT": '["json", "pickle"]'}, "CELERY_ACCEPT_CONTENT"),
    ],
)
def test_settings_that_would_lose_tasks_are_refused(environ: dict[str, str], said: str) -> None:
    """A worker does not start with them and says which and why."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "async_nodes.cli", "worker", "--pool", "io"],
        cwd=ROOT,
        env={**os.environ, "ASYNC_NODES_REDIS_URL": "unix:///nowhere", **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert "Traceback" not in done.stderr


def test_an_unpatched_io_worker_is_refused() -> None:
    """Without gevent's patches the I/O pool would run one task at a time: it does not start."""
    program = (
        "from async_nodes.settings import Settings\n"
        "from async_nodes.execution.worker import main\n"
        "main(Settings.load(), 'io')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "ASYNC_NODES_REDIS_URL": "unix:///nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode != 0
    assert "patch" in done.stderr.splitlines()[-1]
