"""Step 5, expose: examples of what tasks look like on the wire, of one task all the way.

They are shown in the document and on the pages; a test holds them to their schemas.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

ID: Final = "t_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D"
"""Of no task; the samples have it where a reader puts one's own."""

LINKS: Final = {
    "self": f"/v1/tasks/{ID}",
    "events": f"/v1/tasks/{ID}/events",
    "result": f"/v1/tasks/{ID}/result",
    "logs": f"/v1/tasks/{ID}/logs",
    "cancel": f"/v1/tasks/{ID}/cancel",
}

SUBMITS: Final[Mapping[str, dict[str, Any]]] = {
    "echo": {"node": "echo", "inputs": {"text": "hello"}},
    "with everything": {
        "node": "echo",
        "inputs": {"text": "hello"},
        "priority": "high",
        "timeout_ms": 30_000,
        "retry_policy": {"max_attempts": 5, "initial_ms": 200},
        "delay": 0.5,
        "ttl": 3_600,
        "tags": ["demo"],
        "metadata": {"order": 17},
    },
    "text.chunk": {"node": "text.chunk", "inputs": {"text": "One. Two.", "size": 5}},
}

ACCEPTED: Final[dict[str, Any]] = {
    "task_id": ID,
    "state": "Pending",
    "version": 1,
    "created_at": "2026-07-04T12:00:00.000Z",
    "links": LINKS,
}

ATTEMPT: Final[dict[str, Any]] = {
    "attempt": 1,
    "queued_at": "2026-07-04T12:00:00.000Z",
    "started_at": "2026-07-04T12:00:00.004Z",
    "finished_at": "2026-07-04T12:00:00.009Z",
    "outcome": "succeeded",
    "error": None,
    "versions": [1, 2, 3],
}

TASK: Final[dict[str, Any]] = {
    "task_id": ID,
    "state": "Succeeded",
    "reason": None,
    "version": 3,
    "attempt": 1,
    "losses": 0,
    "created_at": "2026-07-04T12:00:00.000Z",
    "started_at": "2026-07-04T12:00:00.004Z",
    "finished_at": "2026-07-04T12:00:00.009Z",
    "next_attempt_at": None,
    "expires_at": "2026-07-05T12:00:00.009Z",
    "output_bytes": 16,
    "node": "echo",
    "priority": 5,
    "timeout_ms": 300_000,
    "deadline": None,
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "parent_id": None,
    "retry_of": None,
    "tags": ["demo"],
    "metadata": {"order": 17},
    "links": LINKS,
    "inputs": {"text": "hello"},
    "attempts": [ATTEMPT],
    "progress": None,
    "error": None,
    "usage": None,
    "output": {"text": "hello"},
}

ERROR: Final[dict[str, Any]] = {
    "code": "node_failed",
    "type": "ValueError",
    "message": "there is no page 3",
    "retryable": False,
}

STATE_EVENT: Final[dict[str, Any]] = {
    "state": "Running",
    "reason": None,
    "attempt": 1,
    "version": 2,
    "at": "2026-07-04T12:00:00.004Z",
    "next_attempt_at": None,
}

PROGRESS_EVENT: Final[dict[str, Any]] = {"fraction": 0.5, "text": "page 1 of 2", "attempt": 1}

CHUNK_EVENT: Final[dict[str, Any]] = {"text": "Hel", "attempt": 1, "n": 1}


def wire(position: str, event: str, data: Mapping[str, Any]) -> str:
    """Return an event as it goes over the wire."""
    text = json.dumps(data, separators=(",", ":"))
    return f"id: {position}\nevent: {event}\ndata: {text}\n\n"


STREAM_OF_A_TASK: Final = (
    "retry: 2000\n\n"
    + wire("2-0", "state", STATE_EVENT)
    + wire("2-1", "progress", PROGRESS_EVENT)
    + wire("2-2", "chunk", CHUNK_EVENT)
    + wire("3-0", "done", TASK)
)

BY_SCHEMA: Final[Mapping[str, dict[str, Any]]] = {
    "Accepted": ACCEPTED,
    "Task": TASK,
    "NodeState": {"id": ID, "status": "Succeeded", "timestamp": "2026-07-04T12:00:00.009Z"},
    "Cancel": {"task_id": ID, "state": "Cancelled", "version": 3, "stopped": True},
    "Attempt": ATTEMPT,
    "Progress": {"fraction": 0.5, "text": "page 1 of 2"},
    "TaskError": ERROR,
    "StateEvent": STATE_EVENT,
    "ProgressEvent": PROGRESS_EVENT,
    "ChunkEvent": CHUNK_EVENT,
    "SubmitRequest": SUBMITS["echo"],
}
