"""A task's record as the variables of a Dify node. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from node_client.errors import AsyncNodesTaskCancelled, AsyncNodesTaskFailed

INLINE = 1 << 20
"""Bytes of an output that is given to Dify as a value; a larger one is a file. Dify's daemon ends
the plugin that writes a line of more than 5 MiB."""

MOST_FILES = 10
FILE_ID = re.compile(r"f_[0-9A-HJKMNP-TV-Z]{26}")


def variables(record: dict[str, Any], output: Any = None) -> dict[str, Any]:
    """Return every variable that the tools declare, but the one that streams."""
    error = record.get("error") or {}
    return {
        "task_id": record["task_id"],
        "status": str(record["state"]).lower(),
        "result": output if isinstance(output, dict) else {"value": output},
        "error_code": error.get("code") or "",
        "error_message": error.get("message") or "",
        "attempts": record.get("attempt") or 0,
        "elapsed_ms": elapsed_ms(record),
        "result_url": "",
    }


def elapsed_ms(record: dict[str, Any]) -> int:
    """Return the milliseconds from the submit to the end, or 0 before that."""
    created, finished = record.get("created_at"), record.get("finished_at")
    if not created or not finished:
        return 0
    span = datetime.fromisoformat(finished) - datetime.fromisoformat(created)
    return max(0, round(span.total_seconds() * 1000))


def as_text(record: dict[str, Any], output: Any) -> str:
    """Return what stands for the whole outcome as text."""
    if isinstance(output, str):
        return output
    if output is not None:
        return json.dumps(output, ensure_ascii=False)
    error = record.get("error")
    if error:
        return f"{error.get('message') or error.get('code')}"
    return f"{str(record['state']).lower()} {record['task_id']}"


def check(record: dict[str, Any]) -> None:
    """Raise what a task ended with, where that was no success."""
    error = record.get("error") or {}
    if record["state"] == "Failed":
        said = error.get("message") or "the task failed"
        message = f"{said} [{error.get('code')}] (task {record['task_id']})"
        raise AsyncNodesTaskFailed(message)
    if record["state"] == "Cancelled":
        raise AsyncNodesTaskCancelled(f"the task {record['task_id']} was cancelled")


def files_in(output: Any) -> Iterator[dict[str, Any]]:
    """Yield the service's files that an output names."""
    waiting = [output]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            name = value.get("file_id")
            if isinstance(name, str) and FILE_ID.fullmatch(name):
                yield value
            else:
                waiting += reversed(list(value.values()))
        elif isinstance(value, list):
            waiting += reversed(value)
