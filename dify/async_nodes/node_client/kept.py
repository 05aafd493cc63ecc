"""What was delivered about tasks, in the little that Dify stores for a plugin."""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any, Protocol

MOST = 200
"""Deliveries that are kept, the newest ones."""

ROOM = 32 << 10
"""Bytes of each: together less than the 10 MiB that the manifest asks for."""

INDEX = "index"


class Storage(Protocol):
    """Dify's storage of a plugin, as far as it is needed."""

    def get(self, key: str) -> bytes:
        """Return a value."""

    def set(self, key: str, val: bytes) -> None:
        """Keep a value."""

    def delete(self, key: str) -> None:
        """Remove a value."""

    def exist(self, key: str) -> bool:
        """Tell whether there is one."""


_changing = threading.Lock()


def find(storage: Storage, task_id: str) -> bytes:
    """Return what was delivered about a task; nothing where nothing was."""
    return storage.get(task_id) if storage.exist(task_id) else b""


def knows(storage: Storage, message: str) -> bool:
    """Tell whether a message was taken before."""
    return any(digest == _digest(message) for _, digest in _index(storage))


def keep(storage: Storage, message: str, data: dict[str, Any]) -> None:
    """Keep what a message says about a task, in place of the oldest where there is no room."""
    task_id = data["task_id"]
    written = json.dumps(data).encode()
    if len(written) > ROOM:
        short = {name: data[name] for name in ("task_id", "state", "node") if name in data}
        written = json.dumps({**short, "output": None, "left_out": True}).encode()[:ROOM]
    with _changing:
        index = _index(storage)
        storage.set(task_id, written)
        index.append([task_id, _digest(message)])
        old, index = index[:-MOST], index[-MOST:]
        storage.set(INDEX, json.dumps(index).encode())
        for name in {name for name, _ in old} - {name for name, _ in index}:
            storage.delete(name)


def _index(storage: Storage) -> list[list[str]]:
    """Return the task and the digest of each message, the oldest first."""
    return json.loads(storage.get(INDEX)) if storage.exist(INDEX) else []


def _digest(message: str) -> str:
    return hashlib.sha256(message.encode("utf-8", "surrogatepass")).hexdigest()[:32]
