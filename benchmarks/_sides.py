"""The two sides of a comparison, async_nodes and the baseline: the words each speaks over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks._processes import cpu_seconds

OURS: Final = "async_nodes"
BASELINE: Final = "celery_flask_gevent"
PARTS: Final = ("web", "worker", "redis")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Say a side's words for the same two requests.

    Attributes:
        path: where tasks are.
        success: the state that a task ends in when all went well.
        waiting: the states of a task that goes on.

    """

    path: str
    success: bytes
    waiting: frozenset[bytes]

    def submit(self, port: int, inputs: bytes, *, node: str = "echo") -> bytes:
        """Return the request that submits a task; ``inputs`` is a JSON object."""
        body = b'{"node":"%s","inputs":%s}' % (node.encode(), inputs)
        head = f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def poll(self, port: int, task_id: bytes) -> bytes:
        """Return the request that reads a task."""
        head = f"GET {self.path}/%s HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
        return head.encode() % task_id


@dataclass(frozen=True, slots=True)
class Side:
    """Know a side that is up: where it listens and which processes it is made of."""

    name: str
    dialect: Dialect
    port: int
    pids: Mapping[str, int]

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each part so far."""
        return {part: cpu_seconds(pid) for part, pid in self.pids.items()}


STATE: Final = re.compile(rb'"state":\s*"(\w+)"')
TASK_ID: Final = re.compile(rb'"task_id":\s*"([\w-]+)"')

OURS_DIALECT: Final = Dialect("/v1/tasks", b"Succeeded", frozenset({b"Pending", b"Running"}))
BASELINE_DIALECT: Final = Dialect(
    "/tasks", b"SUCCESS", frozenset({b"PENDING", b"STARTED", b"RETRY"})
)


def inputs_of(number: int) -> bytes:
    """Return the inputs of one task: the size of a short prompt, different for each."""
    question = "What does a queue owe to the one who waits at its end, and who pays for it? " * 2
    return json.dumps({"n": number, "model": "sim", "prompt": question}).encode()


def holds_inputs(body: bytes, number: int) -> bool:
    """Tell whether a record's output is that of this task."""
    return b'"n":%d' % number in body or b'"n": %d' % number in body
