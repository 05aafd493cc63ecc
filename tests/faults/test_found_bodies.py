"""Bodies that raise and report nonsense: their tasks end, with a record that can be read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.stack import Stack

ONCE = {"max_attempts": 1}
TWICE = {"max_attempts": 2, "initial_ms": 1, "max_ms": 1}
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack whose workers know the rude nodes."""
    environ = {"ASYNC_NODES_IMPORTS": "async_nodes.testing.nodes,tests.faults.rude_nodes"}
    stack = Stack(tmp_path_factory.mktemp("stack"), environ=environ)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def test_what_a_body_raises_ends_its_attempt_however_odd(stack: Stack) -> None:
    """A message that is no text, a usage that is not JSON: the task fails and does not hang."""
    message = stack.submit("rude.message", retry_policy=ONCE)
    usage = stack.submit("rude.usage", retry_policy=ONCE)

    assert stack.wait(message)["error"]["message"] == "123"
    assert stack.wait(usage)["error"]["code"] == "result_not_json"


def test_a_retry_after_that_is_no_number_counts_as_none(stack: Stack) -> None:
    """NaN, text and a negative number of seconds do not put off the next attempt."""
    tasks = [
        stack.submit("rude.retry_after", {"kind": kind}, retry_policy=TWICE)
        for kind in ("nan", "text", "negative")
    ]
    for record in stack.wait_all(tasks, 10.0):
        assert (record["state"], record["attempt"]) == ("Failed", 2)


def test_nobody_waits_for_ever_for_a_retry_after(stack: Stack) -> None:
    """An absurd Retry-After is cut to the longest pause there is, and the record stays JSON."""
    tasks = [
        stack.submit("rude.retry_after", {"kind": kind}, retry_policy=TWICE)
        for kind in ("inf", "huge")
    ]
    for task in tasks:
        stack.until(lambda task=task: _is_backing_off(stack, task), "no back-off", 10.0)
        document = stack.store.read(task)
        assert document.next_attempt_at - document.started_at < DAY_MS + 60_000


def test_threads_of_a_body_stream_everything(stack: Stack) -> None:
    """Chunks that several threads send at once all arrive, numbered in their order."""
    task = stack.submit("rude.loud_threads", {"threads": 8, "chunks": 25})

    assert stack.wait(task)["output"] == 200
    entries = [entry for entry in stack.store.entries(task, after=(0, 0)) if entry.kind == "chunk"]
    assert [number_of(entry) for entry in entries] == list(range(1, 201))


def test_a_coroutine_that_blocks_does_not_stop_all_later_ones(stack: Stack) -> None:
    """Coroutines that come after one has blocked their loop run on another loop."""
    blocking = stack.submit("rude.blocks_the_loop", {"seconds": 40}, timeout_ms=2_000)
    assert stack.wait(blocking, 10.0)["reason"] == "timeout"
    time.sleep(2.0)

    later = stack.submit("test.async_sleep", {"seconds": 0.1}, timeout_ms=5_000)
    assert stack.wait(later, 10.0)["state"] == "Succeeded"


def number_of(entry: Any) -> int:
    """Return a chunk's number within its attempt."""
    number: int = json.loads(entry.json)["n"]
    return number


def _is_backing_off(stack: Stack, task: str) -> bool:
    return bool(stack.client.get(task)["reason"] == "backoff")
