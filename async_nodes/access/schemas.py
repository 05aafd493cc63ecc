"""Step 5, expose: the JSON schemas of everything that is answered.

What is asked, the schema of a submit, comes from the table that validates it; states, reasons and
outcomes come from the state machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_nodes.core.errors import CATALOGUE
from async_nodes.core.states import NodeState, Outcome, Reason
from async_nodes.dispatch.request import FIELDS

Schema = dict[str, Any]

ID_PATTERN: Final = "^t_[0-9A-HJKMNP-TV-Z]{26}$"
POSITION_PATTERN: Final = "^[0-9]+-[0-9]+$"


def ref(name: str) -> Schema:
    """Return a reference to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Mapping[str, Any], **more: Any) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties, **more}


def _nullable(kind: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], **more}


def _or_null(name: str) -> Schema:
    return {"oneOf": [ref(name), {"type": "null"}]}


_ID: Final[Schema] = {"type": "string", "pattern": ID_PATTERN}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_VERSION: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "description": "Rises with every change of the record; also its ETag.",
}
_STATE: Final[Schema] = {"type": "string", "enum": [state.value for state in NodeState]}
_REASON: Final[Schema] = {
    "type": ["string", "null"],
    "enum": [*(reason.value for reason in Reason if reason.value), None],
    "description": "Why the task is in this state, where the state alone does not tell.",
}
_OUTCOME: Final[Schema] = {"type": "string", "enum": [outcome.value for outcome in Outcome]}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_TIME_OR_NULL: Final[Schema] = _nullable("string", format="date-time")
_LINKS: Final[Schema] = _object(
    {
        name: {"type": "string", "format": "uri-reference"}
        for name in ("self", "events", "result", "logs", "cancel")
    }
)
_FAULTS: Final[Schema] = {
    "type": "array",
    "description": "Every fault of the request, each with the JSON pointer of its place.",
    "items": _object({"pointer": {"type": "string"}, "detail": {"type": "string"}}),
}


def _record() -> Schema:
    return _object(
        {
            "task_id": _ID,
            "state": _STATE,
            "reason": _REASON,
            "version": _VERSION,
            "attempt": {**_COUNT, "description": "Starts so far."},
            "losses": {**_COUNT, "description": "Starts that were lost with their process."},
            "created_at": _TIME,
            "started_at": _TIME_OR_NULL,
            "finished_at": _TIME_OR_NULL,
            "next_attempt_at": _TIME_OR_NULL,
            "expires_at": {**_TIME_OR_NULL, "description": "Until when an ended task is kept."},
            "output_bytes": _COUNT,
            "node": {"type": "string"},
            "priority": {"type": "integer", "minimum": 0, "maximum": 9},
            "timeout_ms": {"type": "integer", "minimum": 1},
            "deadline": _TIME_OR_NULL,
            "trace_id": _nullable("string"),
            "parent_id": _nullable("string"),
            "retry_of": _nullable("string"),
            "tags": {"type": "array", "items": {"type": "string"}},
            "metadata": {"type": "object"},
            "links": _LINKS,
            "inputs": {"type": "object", "description": "As sent; secrets as [redacted]."},
            "attempts": {"type": "array", "items": ref("Attempt")},
            "progress": _or_null("Progress"),
            "error": _or_null("TaskError"),
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
    attempt = {**_COUNT, "description": "Clients drop chunks of older attempts."}
    return {
        "StateEvent": _object(
            {
                "state": _STATE,
                "reason": _REASON,
                "attempt": _COUNT,
                "version": _VERSION,
                "at": _TIME_OR_NULL,
                "next_attempt_at": _TIME_OR_NULL,
            }
        ),
        "ProgressEvent": _object(
            {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "text": {"type": "string"},
                "attempt": _COUNT,
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


def _problem() -> Schema:
    return {
        "type": "object",
        "description": "RFC 9457; further members depend on the code.",
        "required": ["type", "title", "status", "detail", "code", "retryable"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string", "description": "In the language of Accept-Language."},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string", "format": "uri-reference"},
            "code": {"type": "string", "enum": list(CATALOGUE)},
            "retryable": {"type": "boolean"},
            "hint": {"type": "string"},
            "trace_id": {"type": "string"},
            "task_id": _ID,
            "pointer": {"type": "string"},
            "errors": _FAULTS,
            "suggestion": {"type": "string"},
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
        "Accepted": _object(
            {
                "task_id": _ID,
                "state": _STATE,
                "version": _VERSION,
                "created_at": _TIME,
                "links": _LINKS,
            }
        ),
        "Task": _record(),
        "NodeState": _object(
            {"id": _ID, "status": _STATE, "timestamp": _TIME},
            description="The task as the specification's state object.",
        ),
        "Cancel": _object(
            {
                "task_id": _ID,
                "state": _STATE,
                "version": _VERSION,
                "stopped": {"type": "boolean", "description": "Whether the work has stopped."},
            }
        ),
    }


def _parts() -> dict[str, Schema]:
    """Return what a record is made of."""
    return {
        "Attempt": _object(
            {
                "attempt": {"type": "integer", "minimum": 1},
                "queued_at": _TIME_OR_NULL,
                "started_at": _TIME_OR_NULL,
                "finished_at": _TIME_OR_NULL,
                "outcome": _OUTCOME,
                "error": _or_null("TaskError"),
                "versions": {
                    "type": "array",
                    "items": {"type": "integer"},
                    "minItems": 3,
                    "maxItems": 3,
                    "description": "Of the record when it was queued, started and ended.",
                },
            }
        ),
        "Progress": _object(
            {
                "fraction": {"type": "number", "minimum": 0, "maximum": 1},
                "text": {"type": "string"},
            }
        ),
        "TaskError": _object(
            {
                "code": {"type": "string", "enum": list(CATALOGUE)},
                "type": {"type": "string"},
                "message": {"type": "string"},
                "retryable": {"type": "boolean"},
            }
        ),
    }


def _service() -> dict[str, Schema]:
    check = _object({"ok": {"type": "boolean"}, "detail": {"type": "string"}})
    return {
        "Node": _object(
            {
                "name": {"type": "string"},
                "kind": {"type": "string", "enum": ["io", "cpu"]},
                "description": {"type": "string"},
                "streams": {"type": "boolean"},
                "timeout_ms": {"type": "integer"},
                "retry_policy": {"oneOf": [FIELDS["retry_policy"].schema, {"type": "null"}]},
                "redacts": {"type": "array", "items": {"type": "string"}},
                "inputs": {"type": "object", "description": "JSON schema of the inputs."},
            }
        ),
        "Nodes": _object({"nodes": {"type": "array", "items": ref("Node")}}),
        "Health": _object({"status": {"type": "string", "const": "ok"}}),
        "Readiness": _object(
            {
                "status": {"type": "string", "enum": ["ready", "not_ready"]},
                "missing": {"type": "array", "items": {"type": "string"}},
                "checks": {"type": "object", "additionalProperties": check},
                "pid": {"type": "integer", "description": "The process that answered."},
            }
        ),
        "ProblemKind": _object(
            {
                "type": {"type": "string"},
                "code": {"type": "string", "enum": list(CATALOGUE)},
                "status": {"type": "integer"},
                "retryable": {"type": "boolean"},
                "title": _object({"en": {"type": "string"}, "zh": {"type": "string"}}),
                "hint": _object({"en": {"type": "string"}, "zh": {"type": "string"}}),
            }
        ),
        "ProblemKinds": _object({"problems": {"type": "array", "items": ref("ProblemKind")}}),
        "Problem": _problem(),
    }


SCHEMAS: Final[Mapping[str, Schema]] = {**_tasks(), **_parts(), **_events(), **_service()}
