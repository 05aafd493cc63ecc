"""What stands in the lists and was not put there by us runs nothing; few slots are no brake."""

from __future__ import annotations

import base64
import json
import pickle
import statistics
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import Stack
from tests.faults.load import check_nothing_left, measured

HUNDRED = 100
LONGEST_WAIT = 1.0
"""Seconds; stock Celery with four slots, late acknowledgement and little prefetch needs forty."""


class Evil:
    """Write a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.fixture(params=["fast", "stock"])
def stack(request: pytest.FixtureRequest, new_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """A stack with four slots, by either transport."""
    return new_stack(slots=4, environ={"ASYNC_NODES_TRANSPORT": request.param})


def kombu_message(body: bytes, content_type: str, **headers: Any) -> bytes:
    """Return a message as kombu puts it into a list."""
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-encoding": "binary",
            "content-type": content_type,
            "headers": {"lang": "py", "task": "async_nodes.execute", "id": "x", **headers},
            "properties": {
                "correlation_id": "x",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "an.io.default", "routing_key": "an.io.default"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": "x",
            },
        }
    ).encode()


def test_a_foreign_message_runs_nothing(stack: Stack, tmp_path: Path) -> None:
    """A pickle is never opened, a forged wake-up wakes nothing, and tasks go on around them."""
    trap = tmp_path / "it ran"
    evil = pickle.dumps(Evil(trap))
    before = stack.submit("echo", {"n": 1})
    forged = "t_" + "0" * 26
    foreign = [
        kombu_message(evil, "application/x-python-serialize"),
        kombu_message(evil, "application/json"),
        kombu_message(b"[[], {}, {}]", "application/json", id=forged, an_dispatch=1),
        kombu_message(b"[[], {}, {}]", "application/json", id=before, an_dispatch=7),
        kombu_message(b"[[], {}, {}]", "application/json", task="os.system"),
        evil,
        b"{",
        b"{}",
        b"7",
        b'{"headers":7,"properties":[]}',
    ]
    with stack.redis() as client:
        for name in ("an.io.default", "an.cpu.default"):
            for message in foreign:
                client.lpush(name, message)

    after = [stack.submit("echo", {"n": number}) for number in range(5)]
    after += [stack.submit("probe.sleep_cpu", {"seconds": 0}) for _ in range(2)]

    records = stack.wait_all([before, *after], 30)
    assert [record["state"] for record in records] == ["Succeeded"] * 8
    assert [record["attempt"] for record in records] == [1] * 8
    assert not trap.exists()
    for name in stack.workers:
        assert stack[name].status is None, stack.logs()
        assert "Unrecoverable" not in stack[name].text(), stack.logs()
    assert stack.client.request("GET", f"/v1/tasks/{forged}").status == 404
    check_nothing_left(stack)


def test_few_slots_are_no_brake(stack: Stack) -> None:
    """A hundred short tasks wait for each other's work and for nothing else."""
    tasks = [stack.submit("echo", {"n": number}) for number in range(HUNDRED)]

    waits = [
        datetime.fromisoformat(record["started_at"]) - datetime.fromisoformat(record["created_at"])
        for record in stack.wait_all(tasks, 60)
    ]

    p95 = statistics.quantiles([wait.total_seconds() for wait in waits], n=20)[-1]
    measured(f"P95 of the wait {p95:.3f} s")
    assert p95 < LONGEST_WAIT
