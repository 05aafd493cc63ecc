"""A few hundred mixed tasks, submitted while things die, and what must hold of them afterwards."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from async_nodes.core.machine import POISON_DEATHS, Event, replay, submitted
from async_nodes.core.states import EventType, Outcome
from async_nodes.storage.layout import Document
from tests.acceptance.stack import RECOVERY, Stack
from tests.acceptance.web_client import TERMINAL

OWN_TIME = 1.0
"""Seconds that the longest task of the mix takes by itself, retries included."""

MIX: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("echo", {"text": "hello"}),
    ("test.sleep", {"seconds": 0.5}),
    ("test.emit", {"n": 5, "text": "x", "gap": 0.05}),
    ("test.async_sleep", {"seconds": 0.3}),
    ("test.fail", {"kind": "retryable", "times": 1, "retry_after": 0.2}),
    ("text.chunk", {"text": "one two three " * 20, "size": 100, "overlap": 10}),
    ("test.sleep", {"seconds": 0.05}),
    ("probe.sleep_cpu", {"seconds": 0.05}),
    ("echo", {"text": "world"}),
    ("test.sleep", {"seconds": 0.2}),
)


@dataclass
class Load:
    """Submit the mix from several clients, each task until it is accepted.

    Attributes:
        accepted: ids, in the order of their acceptance.
        refused: answers other than an acceptance, by status; 0 for none.

    """

    stack: Stack
    count: int = 300
    clients: int = 3
    rate: float = 60.0
    accepted: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)

    def start(self) -> None:
        """Start the clients."""
        self._threads = [
            threading.Thread(target=self._client, args=(n,), daemon=True)
            for n in range(self.clients)
        ]
        for thread in self._threads:
            thread.start()

    def until(self, share: float) -> None:
        """Wait until a share of all tasks is accepted."""
        self.stack.until(lambda: len(self.accepted) >= share * self.count, "no progress", 60)

    def join(self) -> None:
        """Wait until all are accepted."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        assert len(self.accepted) == self.count

    def _client(self, number: int) -> None:
        for index in range(number, self.count, self.clients):
            node, inputs = MIX[index % len(MIX)]
            self._submit(node, inputs)
            time.sleep(self.clients / self.rate)
        self.stack.client.close()

    def _submit(self, node: str, inputs: Mapping[str, Any]) -> None:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        until = time.monotonic() + 30
        while time.monotonic() < until:
            status = 0
            try:
                reply = self.stack.client.post(node, inputs, headers=headers, timeout=3)
                status = reply.status
            except OSError:
                self.stack.client.close()
            if status in {200, 202}:
                self.accepted.append(reply.json["task_id"])
                return
            self.refused.append(status)
            time.sleep(0.05)


def check_all_ended(
    stack: Stack,
    task_ids: list[str],
    *,
    seconds: float = RECOVERY + OWN_TIME + 4,
    heard: bool = True,
) -> list[dict[str, Any]]:
    """Check what must hold of accepted tasks after faults; return their records.

    Args:
        stack: where they ran.
        task_ids: the accepted ones.
        seconds: within which all must have ended, from now.
        heard: whether the test's own subscription lasted, so that it heard every end.

    """
    records = stack.wait_all(task_ids, seconds)
    bad = [r for r in records if r["state"] != "Succeeded"]
    assert not bad, bad[:3]
    for task_id in task_ids:
        ends = stack.channels.ends(task_id) if heard else len(stack.channels.times(task_id, "done"))
        assert ends == 1 or (ends == 0 and not heard), (task_id, stack.channels.of(task_id))
        check_replay(stack.store.read(task_id))
    check_nothing_left(stack)
    return records


def check_nothing_left(stack: Stack) -> None:
    """Check that no list, lease or timer holds what has ended."""

    def left() -> dict[str, Any]:
        keys = stack.store.keys
        found: dict[str, Any] = {}
        with stack.redis() as client:
            found = {name: depth for name, depth in stack.store.depths().items() if depth}
            for key in client.keys(f"{keys.base}q:*") + client.keys(f"{keys.base}r:*"):
                found[key.decode()] = client.type(key)
            found |= {m.decode(): s for m, s in client.zrange(keys.due, 0, -1, withscores=True)}
        return found

    stack.until(lambda: not left(), f"left: {left()}", 5)


def check_replay(document: Document | None) -> None:
    """Check that a record is what its own history leads to."""
    assert document is not None
    import json

    record = json.loads(document.json)
    assert record["state"] in TERMINAL
    first = submitted(int(document.created_at))
    events: list[Event] = []
    version = 1
    lost = [entry for entry in record["attempts"] if entry["outcome"] == "lost"]
    for entry in record["attempts"]:
        queued, started, ended = entry["versions"]
        if queued > version:
            events.append(Event(EventType.WAKE, ms(entry["queued_at"])))
        events.append(Event(EventType.START, ms(entry["started_at"])))
        kind = EVENTS[Outcome(entry["outcome"])]
        # What else raises the version of a running task: progress, and at last a cancel's request.
        between = [EventType.PROGRESS] * (ended - started - 1)
        if kind is EventType.CANCEL and between:
            between[-1] = EventType.CANCEL_ASKED
        events += [Event(type_, ms(entry["started_at"])) for type_ in between]
        # Deaths in a process of its own make a poison; which ones they were makes no difference.
        isolated = record["reason"] == "poison" and entry in lost[-POISON_DEATHS:]
        events.append(Event(kind, ms(entry["finished_at"]), due=1, isolated=isolated))
        version = ended
    last = replay(first, events)

    assert last.state.value == record["state"]
    assert last.version == record["version"]
    assert last.attempt == record["attempt"] == len(record["attempts"])
    assert last.losses == record["losses"]
    assert [list(a.versions) for a in last.attempts] == [a["versions"] for a in record["attempts"]]


EVENTS: Mapping[Outcome, EventType] = {
    Outcome.SUCCEEDED: EventType.COMPLETE,
    Outcome.FAILED: EventType.ERROR,
    Outcome.RETRIED: EventType.RETRY,
    Outcome.LOST: EventType.LOST,
    Outcome.RELEASED: EventType.RELEASE,
    Outcome.CANCELLED: EventType.CANCEL,
    Outcome.TIMEOUT: EventType.TIMEOUT,
}


def ms(text: str) -> int:
    """Return milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def starts_after(
    records: list[dict[str, Any]], outcome: str, *, moment: str = "started_at"
) -> list[float]:
    """Return when attempts started, in epoch seconds, that follow one with such an outcome.

    Args:
        records: of tasks.
        outcome: of the attempt before.
        moment: ``queued_at`` for when they were put into the list again.

    """
    return [
        ms(after[moment]) / 1000
        for record in records
        for before, after in zip(record["attempts"], record["attempts"][1:], strict=False)
        if before["outcome"] == outcome
    ]


def measured(sentence: str) -> None:
    """Tell a figure to whoever runs the tests with -rP."""
    print(sentence)  # noqa: T201 - that is how pytest shows it
