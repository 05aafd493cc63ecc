"""Step 5, expose: the OpenAPI document of many tasks at once: submit a batch, list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from async_nodes.access.openapi import examples, records
from async_nodes.access.openapi.pieces import (
    JSON,
    READ_BODY,
    STORED,
    TRACING,
    answer,
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
    ID_PATTERN,
    LINKS,
    NODE_NAME,
    STATE,
    TEXT,
    TIME,
    VERSION,
    Schema,
    array,
    members,
    nullable,
    ref,
)
from async_nodes.dispatch.batch import MAX_BATCH, MAX_ITEMS
from async_nodes.dispatch.request import FIELDS, KEY, MAX_KEY, MAX_TAG, MAX_TAGS
from async_nodes.storage.listing import MOST_LOOKED

_LEFT_OUT: Final = ("inputs", "output", "attempts", "metadata")


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    return {"/v1/tasks/batch": {"post": _batch()}, "/v1/tasks": {"get": _list()}}


def _batch() -> Schema:
    asked = body("BatchRequest")
    asked["content"][JSON]["example"] = {"tasks": [examples.SUBMITS["echo"]] * 2}
    return operation(
        "submitTasks",
        "Submit many tasks in one request, each accepted or refused by itself",
        {
            "200": answer("What became of each, in their order", ref("Batch")),
            **problems(*READ_BODY, *STORED),
        },
        description=f"At most {MAX_ITEMS} tasks and {MAX_BATCH >> 20} MiB. With an Idempotency-Key "
        "the item at index i has the key `<key>/<i>`, unless it brings one of its own.",
        parameters=parameters("idempotency_key", *TRACING),
        requestBody=asked,
    )


def _list() -> Schema:
    return operation(
        "listTasks",
        "List tasks, newest first: those that pass the filters, or those named by ids",
        {"200": answer("A page", ref("Tasks")), **problems(*STORED)},
        description=f"A request looks at {MOST_LOOKED} tasks at most: a page may be short, or "
        "empty, and have a next all the same.",
        parameters=[
            _several("state", "A state; repeated: any of them.", STATE),
            _several("node", "A node's name; repeated: any of them.", NODE_NAME),
            _several(
                "tag",
                "A tag; repeated: all of them.",
                {**TEXT, "minLength": 1, "maxLength": MAX_TAG},
                MAX_TAGS,
            ),
            given("query", "created_after", "Made later than this.", format="date-time"),
            given("query", "created_before", "Made earlier than this.", format="date-time"),
            given(
                "query", "limit", "How many.", type="integer", minimum=1, maximum=200, default=50
            ),
            parameter("cursor"),
            given(
                "query",
                "ids",
                "At most 200 ids with commas between them, and no filter beside them.",
                pattern=f"{ID_PATTERN[:-1]}(,{ID_PATTERN[1:-1]})*$",
            ),
            given(
                "query",
                "fields",
                f"brief leaves out {', '.join(_LEFT_OUT)}; full shows whole records, in pages of "
                "about 8 MiB at most.",
                enum=["brief", "full"],
                default="brief",
            ),
        ],
        **{"x-sample": {"query": "state=Failed&state=Cancelled&limit=20"}},
    )


def _several(name: str, description: str, value: Schema, most: int = 50) -> Schema:
    """Return a parameter of the query that may be repeated."""
    made = given("query", name, description)
    return {**made, "schema": array(value, maxItems=most), "explode": True}


def _item() -> Schema:
    properties: dict[str, Any] = {name: field.schema for name, field in FIELDS.items()}
    properties[KEY] = {
        "type": "string",
        "minLength": 1,
        "maxLength": MAX_KEY,
        "description": "As the header Idempotency-Key, for this task alone.",
    }
    return {
        "type": "object",
        "required": ["node"],
        "additionalProperties": False,
        "properties": properties,
    }


def _summary() -> Schema:
    task = records.SCHEMAS["Task"]
    shown = {name: part for name, part in task["properties"].items() if name not in _LEFT_OUT}
    return members(shown, description="A task in brief.")


def _results() -> dict[str, Schema]:
    return {
        "BatchAccepted": members(
            {
                "index": COUNT,
                "status": {"type": "integer", "const": 202},
                "task_id": ID,
                "state": STATE,
                "version": VERSION,
                "created_at": TIME,
                "links": LINKS,
                "replayed": {
                    "type": "boolean",
                    "description": "An earlier request with the same key had made the task.",
                },
            }
        ),
        "BatchRefused": {
            "type": "object",
            "required": ["index", "status", "error"],
            "properties": {
                "index": COUNT,
                "status": {"type": "integer", "minimum": 400},
                "error": ref("Problem"),
                "retry_after": {
                    "type": "number",
                    "description": "Seconds after which the item may be sent again.",
                },
            },
        },
    }


SCHEMAS: Final[Mapping[str, Schema]] = {
    "BatchRequest": {
        "type": "object",
        "required": ["tasks"],
        "additionalProperties": False,
        "properties": {"tasks": array(ref("BatchItem"), minItems=1, maxItems=MAX_ITEMS)},
    },
    "BatchItem": _item(),
    "Batch": members(
        {
            "accepted": COUNT,
            "refused": COUNT,
            "results": array({"oneOf": [ref("BatchAccepted"), ref("BatchRefused")]}),
        }
    ),
    **_results(),
    "Summary": _summary(),
    "Tasks": {
        "type": "object",
        "required": ["tasks", "next"],
        "properties": {
            "tasks": array({"anyOf": [ref("Task"), ref("Summary")]}),
            "next": nullable("string", description="The cursor of the next page, or null."),
            "missing": array(ID, description="Of the ids asked for, those without a task."),
            "left": array(ID, description="Of the ids asked for, those to ask for again."),
        },
    },
}
