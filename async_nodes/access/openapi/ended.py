"""Step 5, expose: the OpenAPI document of what can be done with an ended task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi import examples
from async_nodes.access.openapi.pieces import (
    FOUND,
    JSON,
    READ_BODY,
    STORED,
    TRACING,
    answer,
    bare,
    body,
    given,
    header,
    operation,
    parameter,
    parameters,
    problems,
)
from async_nodes.access.openapi.shapes import Schema, members, ref
from async_nodes.dispatch.again import EDITABLE
from async_nodes.dispatch.request import FIELDS


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    task = [parameter("task_id")]
    return {
        "/v1/tasks/{task_id}/result": {"parameters": task, "get": _result()},
        "/v1/tasks/{task_id}/retry": {"parameters": task, "post": _retry()},
        "/v1/tasks/{task_id}": {"parameters": task, "delete": _delete()},
    }


def _result() -> Schema:
    any_json: Schema = {"description": "The output, as the node gave it."}
    whole = answer("The output", any_json, named=("ETag", "Preference-Applied"))
    part = answer("The part asked for", {"description": "Bytes of the output."}, named=("ETag",))
    ranges = {"Accept-Ranges": header("bytes: the header Range is heeded")}
    whole["headers"].update(ranges)
    part["headers"].update(
        ranges, **{"Content-Range": header("Which bytes, of how many, as bytes 0-99/1000")}
    )
    whole["content"][JSON]["example"] = examples.TASK["output"]
    return operation(
        "readResult",
        "Read a task's output alone, whole or in part, however large it is",
        {
            "200": whole,
            "206": part,
            "304": bare("Not changed", "ETag"),
            **problems(
                *FOUND,
                "task_not_finished",
                "task_has_no_result",
                "range_not_satisfiable",
                *STORED,
            ),
        },
        parameters=[
            given("header", "Range", "bytes=0-99: one part of the output."),
            given("header", "If-Range", "The ETag of the parts you have; others give the whole."),
            *parameters("if_none_match", "prefer", "wait", *TRACING),
        ],
    )


def _retry() -> Schema:
    asked = body("RetryRequest", required=False)
    asked["content"][JSON]["examples"] = {
        "the same again": {"value": {}},
        "more time": {"value": {"timeout_ms": 60_000, "priority": "high"}},
    }
    refused = ("invalid_inputs", "unknown_node", "idempotency_mismatch", "queue_full")
    return operation(
        "retryTask",
        "Run an ended task again: a new task with the same inputs, or with changes",
        {
            "200": answer("Ended while the client waited", ref("Task")),
            "202": answer(
                "Accepted; the new task is stored",
                ref("Retried"),
                named=("Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"),
            ),
            **problems(
                *FOUND, "task_not_finished", *READ_BODY, *refused, "outcome_unknown", *STORED
            ),
        },
        parameters=parameters("idempotency_key", "prefer", "wait", *TRACING),
        requestBody=asked,
    )


def _delete() -> Schema:
    return operation(
        "deleteTask",
        "Delete a task that has ended; from then on it is gone",
        {
            "204": bare("Deleted"),
            **problems(*FOUND, "task_not_finished", "outcome_unknown", *STORED),
        },
    )


SCHEMAS: Final[Mapping[str, Schema]] = {
    "RetryRequest": {
        "type": "object",
        "additionalProperties": False,
        "description": "What is to be different; a deadline is not carried over. A secret input "
        "that reads [redacted] stays what it was.",
        "properties": {name: FIELDS[name].schema for name in EDITABLE},
    },
    "Retried": {
        "allOf": [ref("Accepted"), members({"retry_of": {"type": "string"}})],
    },
}
