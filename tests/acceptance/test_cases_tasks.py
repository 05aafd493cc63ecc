"""Cases about running tasks: once, in time, again when that helps."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from async_nodes.core.priority import CLASSES
from tests.acceptance.stack import LEASE, Stack


def seconds_between(record: dict[str, str], first: str, last: str) -> float:
    """Return the time between two moments of a record."""
    from datetime import datetime

    return (
        datetime.fromisoformat(record[last]) - datetime.fromisoformat(record[first])
    ).total_seconds()


def test_a_long_task_is_not_doubled(stack: Stack) -> None:
    """A node that runs for three leases is started once, in any pool (long-task-not-doubled)."""
    nodes = ("test.sleep", "probe.sleep_cpu", "test.async_sleep", "test.spin")
    ids = [stack.submit(node, {"seconds": 3 * LEASE}) for node in nodes]
    for record in stack.wait_all(ids, 3 * LEASE + 5):
        assert (record["state"], record["attempt"], record["losses"]) == ("Succeeded", 1, 0)
        assert [entry["outcome"] for entry in record["attempts"]] == ["succeeded"]


@pytest.mark.parametrize("node", ["test.sleep", "test.async_sleep", "probe.sleep_cpu", "test.spin"])
def test_timeout_in_both_pools(stack: Stack, node: str) -> None:
    """A node that runs over 2 s fails within 3 s, waiting or computing (timeout-both-pools)."""
    record = stack.wait(stack.submit(node, {"seconds": 30}, timeout_ms=2000))

    assert (record["state"], record["reason"]) == ("Failed", "timeout")
    assert record["error"]["code"] == "node_timeout"
    assert record["attempts"][-1]["outcome"] == "timeout"
    assert seconds_between(record, "started_at", "finished_at") < 3.0


def test_a_child_that_swallows_its_timeout_is_killed(stack: Stack, tmp_path: Path) -> None:
    """No body of the CPU pool outlives its time-out for long, whatever it catches."""
    inputs = {"path": str(tmp_path / "caught"), "seconds": 30}
    record = stack.wait(stack.submit("probe.stubborn_cpu", inputs, timeout_ms=1000), 15)

    assert (record["state"], record["reason"]) == ("Failed", "timeout")
    assert seconds_between(record, "started_at", "finished_at") < 6.0


def test_a_deadline_counts_the_waiting(stack: Stack) -> None:
    """A task whose deadline passes while it waits or runs ends with that reason."""
    from datetime import UTC, datetime, timedelta

    deadline = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    busy = [stack.submit("probe.sleep_cpu", {"seconds": 2.5}) for _ in range(3)]
    waiting = stack.submit("text.chunk", {"text": "never read"}, deadline=deadline)
    running = stack.submit("test.sleep", {"seconds": 20}, deadline=deadline)

    assert stack.wait(waiting, 4)["reason"] == "deadline"
    assert stack.wait(running, 4)["state"] == "Failed"
    assert stack.client.get(waiting)["attempt"] == 0
    stack.wait_all(busy)


def test_retry_after_is_kept(stack: Stack) -> None:
    """A 429 with Retry-After: 2 leads to one retry, not before 2 s, usage once (retry-after)."""
    stack.reset_model()
    task_id = stack.submit("llm.chat", stack.chat("sim:429x1,retry_after=2", text="retry after"))
    record = stack.wait(task_id)

    first, second = record["attempts"]
    assert record["state"] == "Succeeded"
    assert (first["outcome"], second["outcome"]) == ("retried", "succeeded")
    assert (
        seconds_between(
            {"end": first["finished_at"], "start": second["started_at"]}, "end", "start"
        )
        >= 2.0
    )
    assert stack.model_stats()["requests"] == 2
    assert record["usage"]["completion_tokens"] == 40


@pytest.mark.parametrize("fault", ["cut", "eof", "malformed"])
def test_a_cut_stream_is_tried_again(stack: Stack, fault: str) -> None:
    """A stream that breaks half-way is superseded by the next attempt's (cut-stream)."""
    inputs = stack.chat(f"sim:{fault}x1", text=f"cut by {fault}")
    task_id = stack.submit("llm.chat", inputs, retry_policy={"initial_ms": 50, "jitter": False})
    record = stack.wait(task_id)
    with stack.client.events(task_id) as feed:
        events = feed.until("done")

    assert (record["state"], record["attempt"]) == ("Succeeded", 2)
    chunks = [event.json for event in events if event.type == "chunk"]
    text = {n: "".join(c["text"] for c in chunks if c["attempt"] == n) for n in (1, 2)}
    assert text[2] == record["output"]
    assert text[1]
    retried = next(
        i for i, e in enumerate(events) if e.type == "state" and e.json["reason"] == "backoff"
    )
    assert all(e.json["attempt"] == 1 for e in events[:retried] if e.type == "chunk")


def test_characters_split_between_packets_stay_whole(stack: Stack) -> None:
    """Bytes that are cut inside of characters give the exact text (cut-stream)."""
    said = "naïve café 模型逐字输出 🚀 👩\u200d👩\u200d👧 end"
    task_id = stack.submit("llm.chat", stack.chat("sim:echo,split,gap_ms=0", text=said))

    assert stack.wait(task_id)["output"] == said


def test_urgent_tasks_overtake(stack: Stack, tmp_path: Path) -> None:
    """Waiting tasks start by class, high before default before low (priority-range)."""
    path = str(tmp_path / "order")
    blockers = [stack.submit("probe.sleep_cpu", {"seconds": 1.0}) for _ in range(4)]
    time.sleep(0.3)
    ids = {
        priority: [
            stack.submit("probe.count_cpu", {"path": path}, priority=priority) for _ in range(3)
        ]
        for priority in (9, 5, 0)
    }
    stack.wait_all(blockers + [i for group in ids.values() for i in group])
    started = [line.split()[0] for line in Path(path).read_text().splitlines()]
    rank = {
        task_id: CLASSES[n] for n, group in enumerate((ids[0], ids[5], ids[9])) for task_id in group
    }
    order = [CLASSES.index(rank[task_id]) for task_id in started]
    # Two children write at the same time, and one message was on its way before the others came.
    places = [[at for at, n in enumerate(order) if n == which] for which in range(len(CLASSES))]
    middles = [sorted(group)[1] for group in places]
    assert middles == sorted(middles), order
    assert order[-1] == len(CLASSES) - 1 or order[-2] == len(CLASSES) - 1, order


def test_a_burst_of_mixed_tasks_runs_each_once(stack: Stack, tmp_path: Path) -> None:
    """Many clients at once: everything ends once, with the right result."""
    path = str(tmp_path / "starts")
    ids: list[str] = []

    def client(number: int) -> None:
        for _ in range(20):
            ids.append(stack.submit("test.count", {"path": path}))
            ids.append(stack.submit("test.emit", {"n": 3, "text": str(number)}))
        stack.client.close()

    threads = [threading.Thread(target=client, args=(n,), daemon=True) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    records = stack.wait_all(ids)

    assert {record["state"] for record in records} == {"Succeeded"}
    assert {record["attempt"] for record in records} == {1}
    assert len(Path(path).read_text().splitlines()) == 100
    assert {stack.channels.ends(task_id) for task_id in ids} == {1}


@pytest.mark.parametrize("kind", ["CancelledError", "Odd", "SystemExit", "GeneratorExit"])
@pytest.mark.parametrize("node", ["probe.odd", "probe.odd_cpu", "probe.odd_async"])
def test_no_exception_leaves_a_task_running(stack: Stack, node: str, kind: str) -> None:
    """Whatever a body raises ends its attempt, also what is no Exception."""
    policy = {"max_attempts": 2, "initial_ms": 10, "jitter": False}
    record = stack.wait(stack.submit(node, {"kind": kind}, retry_policy=policy), 5)

    assert (record["state"], record["error"]["code"]) == ("Failed", "node_failed")
    assert record["losses"] == 0


def test_coroutines_do_not_depend_on_each_others_manners(stack: Stack) -> None:
    """A coroutine that leaves the loop or stops it costs the others nothing."""
    neighbours = [stack.submit("test.async_sleep", {"seconds": 1.5}) for _ in range(3)]
    for task_id in neighbours:
        stack.client.wait_running(task_id)
    once = {"max_attempts": 1}
    stack.wait(stack.submit("probe.odd_async", {"kind": "SystemExit"}, retry_policy=once))
    stack.wait(stack.submit("probe.stop_loop", {}, retry_policy=once))
    records = stack.wait_all([*neighbours, stack.submit("test.async_sleep", {"seconds": 0.1})])

    assert [(r["state"], r["attempt"]) for r in records] == [("Succeeded", 1)] * 4
