"""What is published about every task, written down as it comes: nothing may be said twice."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import redis

from async_nodes.storage.redis_client import client as client_of


@dataclass(frozen=True)
class Said:
    """One message of a task's channel."""

    version: int
    seq: int
    type: str
    content: Any
    at: float


class ChannelLog:
    """Listen to the channels of all tasks.

    Args:
        url: the server's.
        prefix: of all keys.

    """

    def __init__(self, url: str, prefix: str = "an") -> None:
        self._url = url
        self._start = f"{prefix}:{{0}}:s:"
        self._lock = threading.Lock()
        self._said: dict[str, list[Said]] = defaultdict(list)
        self._stopping = False
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start to listen; returns when the subscription holds."""
        self._thread.start()
        assert self._ready.wait(10), "no subscription"

    def stop(self) -> None:
        """Stop listening."""
        self._stopping = True
        self._thread.join(5)

    def of(self, task_id: str) -> list[Said]:
        """Return what was said about a task, in order."""
        with self._lock:
            return list(self._said[task_id])

    def times(self, task_id: str, kind: str) -> list[float]:
        """Return when messages of a kind came, on the monotonic clock."""
        return [said.at for said in self.of(task_id) if said.type == kind]

    def ends(self, task_id: str) -> int:
        """Return how many terminal events an ended task has had, the latest included."""
        until = time.monotonic() + 1.0
        while not self.times(task_id, "done") and time.monotonic() < until:
            time.sleep(0.01)
        return len(self.times(task_id, "done"))

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._listen()
            except (redis.RedisError, OSError):
                time.sleep(0.05)

    def _listen(self) -> None:
        client = client_of(self._url, timeout=5.0)
        with client, client.pubsub() as subscription:
            subscription.psubscribe(self._start + "*")
            while not self._stopping:
                message = subscription.get_message(timeout=0.1)
                if message is None:
                    continue
                if message["type"] == "psubscribe":
                    self._ready.set()
                else:
                    self._write_down(message)

    def _write_down(self, message: dict[str, Any]) -> None:
        task_id = message["channel"].decode().removeprefix(self._start)
        position, kind, text = message["data"].decode().split(" ", 2)
        version, seq = position.split("-")
        said = Said(int(version), int(seq), kind, json.loads(text), time.monotonic())
        with self._lock:
            self._said[task_id].append(said)
