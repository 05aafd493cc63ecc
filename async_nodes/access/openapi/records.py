"""Step 5, expose: the schemas of a task's record, of its parts and of its events.

What is asked, the schema of a submit, comes from the table that validates it; states, reasons and
outcomes come from the state machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from async_nodes.access.openapi.examples import BY_SCHEMA
from async_nodes.access.openapi.shapes import (
    COUNT,
    ID,
    LINKS,
    OUTCOME,
    REASON,
    STATE,
    TIME,
    TIME_OR_NULL,
    VERSION,
    Schema,
    members,
    nullable,
    or_null,
    ref,
)
from async_nodes.core.errors import CATALOGUE
from async_nodes.dispatch.request import FIELDS


def _record() -> Schema:
    return members(
        {
            "task_id": ID,
            "state": STATE,
            "reason": REASON,
            "version": VERSION,
            "attempt": {**COUNT, "description": "Starts so far."},
            "losses": {**COUNT, "description": "Starts that were lost with their process."},
            "created_at": TIME,
            "started_at": TIME_OR_NULL,
            "finished_at": TIME_OR_NULL,
            "next_attempt_at": TIME_OR_NULL,
            "expires_at": {**TIME_OR_NULL, "description": "Until when an ended task is kept."},
            "output_bytes": COUNT,
            "node": {"type": "string"},
            "priority": {"type": "integer", "minimum": 0, "maximum": 9},
            "timeout_ms": {"type": "integer", "minimum": 1},
            "deadline": TIME_OR_NULL,
            "trace_id": nullable("string"),
            "parent_id": nullable("string"),
            "retry_of": nullable("string"),
            "tags": {"type": "array", "items": {"type": "string"}},
            "metadata": {"type": "object"},
            "links": LINKS,
            "inputs": {"type": "object", "description": "As sent; secrets as [redacted]."},
            "attempts": {"type": "array", "items": ref("Attempt")},
            "progress": or_null("Progress"),
            "error": or_null("TaskError"),
            "usage": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "integer"},
                "description": "What the node counted, such as tokens.",
            },
            "output": {"description": "The node's result; null until the task has succeeded."},
        },
        description="A task. Members may be added in later versions.",
    )


def _events() -> dict[str, Schema]:
    attempt = {**COUNT, "description": "Clients drop chunks of older attempts."}
    return {
        "StateEvent": members(
            {
                "state": STATE,
                "reason": REASON,
                "attempt": COUNT,
                "version": VERSION,
                "at": TIME_OR_NULL,
                "next_attempt_at": TIME_OR_NULL,
            }
        ),
        "ProgressEvent": members(
            {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "text": {"type": "string"},
                "attempt": COUNT,
            }
        ),
        "ChunkEvent": {
            "type": "object",
            "required": ["attempt", "n"],
            "properties": {
                "text": {"type": "string"},
                "data": {"description": "A chunk that is not text."},
                "attempt": attempt,
                "n": {"type": "integer", "minimum": 1, "description": "Counts in the attempt."},
            },
        },
    }


def _tasks() -> dict[str, Schema]:
    return {
        "SubmitRequest": {
            "type": "object",
            "required": ["node"],
            "additionalProperties": False,
            "properties": {name: field.schema for name, field in FIELDS.items()},
        },
        "Accepted": members(
            {
                "task_id": ID,
                "state": STATE,
                "version": VERSION,
                "created_at": TIME,
                "links": LINKS,
            }
        ),
        "Task": _record(),
        "NodeState": members(
            {"id": ID, "status": STATE, "timestamp": TIME},
            description="The task as the specification's state object.",
        ),
        "Cancel": members(
            {
                "task_id": ID,
                "state": STATE,
                "version": VERSION,
                "stopped": {"type": "boolean", "description": "Whether the work has stopped."},
            }
        ),
    }


def _parts() -> dict[str, Schema]:
    """Return what a record is made of."""
    return {
        "Attempt": members(
            {
                "attempt": {"type": "integer", "minimum": 1},
                "queued_at": TIME_OR_NULL,
                "started_at": TIME_OR_NULL,
                "finished_at": TIME_OR_NULL,
                "outcome": OUTCOME,
                "error": or_null("TaskError"),
                "versions": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 3,
                    "maxItems": 3,
                    "description": "Of the record when it was queued, started and ended.",
                },
            }
        ),
        "Progress": members(
            {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "text": {"type": "string"},
            }
        ),
        "TaskError": members(
            {
                "code": {"type": "string", "enum": list(CATALOGUE)},
                "type": {"type": "string"},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
            }
        ),
    }


def _with_examples(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    return {
        name: {**schema, "examples": [BY_SCHEMA[name]]} if name in BY_SCHEMA else schema
        for name, schema in schemas.items()
    }


SCHEMAS: Final[Mapping[str, Schema]] = _with_examples({**_tasks(), **_parts(), **_events()})
