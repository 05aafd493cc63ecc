"""Step 5, expose: the OpenAPI document of dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi.pieces import (
    FOUND,
    JSON,
    READ_BODY,
    STORED,
    answer,
    bare,
    body,
    given,
    operation,
    parameter,
    parameters,
    problems,
)
from async_nodes.access.openapi.shapes import (
    COUNT,
    ID,
    NODE_NAME,
    REASON,
    TEXT,
    TIME,
    TIME_OR_NULL,
    Schema,
    array,
    members,
    nullable,
    or_null,
    ref,
)
from async_nodes.dispatch.again import EDITABLE
from async_nodes.dispatch.request import FIELDS

_CHANGES: Final[Schema] = {
    "type": "object",
    "description": "What is to be different; nothing for the same again.",
    "additionalProperties": False,
    "properties": {name: FIELDS[name].schema for name in EDITABLE},
}
_LETTER: Final = ("dead_letter_not_found", *FOUND)


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    letter = [parameter("task_id")]
    return {
        "/v1/dead-letters": {"get": _list()},
        "/v1/dead-letters/requeue": {"post": _requeue_many()},
        "/v1/dead-letters/{task_id}": {"parameters": letter, "get": _show(), "delete": _drop()},
        "/v1/dead-letters/{task_id}/requeue": {"parameters": letter, "post": _requeue()},
    }


def _list() -> Schema:
    node = given("query", "node", "A node's name; repeated: any of them.")
    return operation(
        "listDeadLetters",
        "List the tasks that nobody could do, newest first",
        {"200": answer("Dead letters", ref("DeadLetters")), **problems(*STORED)},
        parameters=[
            {**node, "schema": array(NODE_NAME, maxItems=50), "explode": True},
            given(
                "query", "limit", "How many.", type="integer", minimum=1, maximum=200, default=50
            ),
            parameter("cursor"),
        ],
    )


def _show() -> Schema:
    return operation(
        "showDeadLetter",
        "Show a dead letter with the task's record",
        {
            "200": answer("The letter", ref("DeadLetterInFull")),
            **problems(*_LETTER, *STORED),
        },
    )


def _drop() -> Schema:
    return operation(
        "dropDeadLetter",
        "Drop a dead letter; its task's record stays",
        {"204": bare("Dropped"), **problems("dead_letter_not_found", "task_not_found", *STORED)},
    )


def _requeue() -> Schema:
    accepted = answer(
        "Accepted: a new task does the same again",
        ref("Accepted"),
        named=("Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"),
    )
    refused = ("invalid_inputs", "unknown_node", "idempotency_mismatch", "queue_full")
    return operation(
        "requeueDeadLetter",
        "Send a dead letter again, with changes if they are wanted; safe to repeat",
        {
            "200": answer("Ended while the client waited", ref("Task")),
            "202": accepted,
            **problems(*_LETTER, *READ_BODY, *refused, "outcome_unknown", *STORED),
        },
        parameters=parameters("prefer", "wait"),
        requestBody={"required": False, "content": {JSON: {"schema": _CHANGES}}},
    )


def _requeue_many() -> Schema:
    return operation(
        "requeueDeadLetters",
        "Send dead letters again, the oldest first",
        {
            "200": answer("What became of them", ref("Requeued")),
            **problems(*READ_BODY, "outcome_unknown", *STORED),
        },
        requestBody=body("RequeueRequest", required=False),
    )


def _letter(**more: Schema) -> Schema:
    links = members(dict.fromkeys(("self", "task", "requeue"), TEXT))
    return members(
        {
            "task_id": ID,
            "node": TEXT,
            "buried_at": TIME,
            "reason": REASON,
            "why": members({"en": TEXT, "zh": TEXT}),
            "error": or_null("TaskError"),
            "attempt": COUNT,
            "losses": COUNT,
            "created_at": TIME,
            "expires_at": {**TIME_OR_NULL, "description": "Until when the record is kept."},
            "tags": array(TEXT),
            "links": links,
            **more,
        }
    )


SCHEMAS: Final[Mapping[str, Schema]] = {
    "DeadLetter": _letter(),
    "DeadLetterInFull": _letter(task=ref("Task")),
    "DeadLetters": members({"dead_letters": array(ref("DeadLetter")), "next": nullable("string")}),
    "RequeueRequest": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "node": nullable("string", minLength=1, description="Those of this node only."),
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "default": 50},
        },
    },
    "Requeued": members(
        {
            "requeued": array(ref("Accepted")),
            "refused": array(members({"task_id": ID, "error": ref("Problem")})),
            "left": {**COUNT, "description": "Dead letters that are there now."},
        }
    ),
}
