"""Step 5, expose: the OpenAPI document of the routes of one task. Submit, read, follow, cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from async_nodes.access.openapi import examples, records
from async_nodes.access.openapi.pieces import (
    FOUND,
    JSON,
    READ_BODY,
    STORED,
    STREAM,
    TRACING,
    answer,
    bare,
    body,
    operation,
    parameter,
    parameters,
    problems,
    stream,
)
from async_nodes.access.openapi.shapes import Schema, ref

SCHEMAS: Final = records.SCHEMAS


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: names to offer as examples.

    """
    task = [parameter("task_id")]
    return {
        "/v1/tasks": {"post": _submit(nodes)},
        "/v1/tasks/{task_id}": {"parameters": task, "get": _read()},
        "/v1/tasks/{task_id}/events": {"parameters": task, "get": _follow()},
        "/v1/tasks/{task_id}/cancel": {"parameters": task, "post": _cancel()},
    }


def _submit(nodes: Sequence[str]) -> Schema:
    asked = body("SubmitRequest")
    asked["content"][JSON]["examples"] = {
        name: {"value": value} for name, value in examples.SUBMITS.items() if value["node"] in nodes
    }
    accepted = answer(
        "Accepted; the task is stored",
        ref("Accepted"),
        named=("Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"),
    )
    refused = ("invalid_inputs", "unknown_node", "idempotency_mismatch", "queue_full")
    return operation(
        "submitTask",
        "Submit a task",
        {
            "200": _record("Ended while the client waited"),
            "202": accepted,
            **problems(*READ_BODY, *refused, "outcome_unknown", *STORED),
        },
        parameters=parameters("idempotency_key", "prefer", "wait", *TRACING),
        requestBody=asked,
    )


def _read() -> Schema:
    read = _record("The record, or its state object")
    read["content"][JSON]["schema"] = {"oneOf": [ref("Task"), ref("NodeState")]}
    read["content"][STREAM] = _follow()["responses"]["200"]["content"][STREAM]
    return operation(
        "readTask",
        "Read a task; with a wait, as soon as it has ended or, with If-None-Match, changed",
        {
            "200": read,
            "304": bare("Not changed", "ETag"),
            **problems(*FOUND, *STORED),
        },
        parameters=parameters("if_none_match", "accept", "prefer", "wait", "format", *TRACING),
    )


def _follow() -> Schema:
    events = stream(
        "The events from the client's position on",
        state="StateEvent",
        progress="ProgressEvent",
        chunk="ChunkEvent",
        done="Task",
        reset="Task",
    )
    events["content"][STREAM]["example"] = examples.STREAM_OF_A_TASK
    return operation(
        "followTask",
        "Stream a task's events (server-sent events)",
        {
            "200": events,
            "204": bare("The client has seen everything"),
            **problems(*FOUND, *STORED),
        },
        parameters=parameters("last_event_id", "after"),
    )


def _cancel() -> Schema:
    return operation(
        "cancelTask",
        "Cancel a task",
        {
            "200": answer("Cancelled", ref("Cancel")),
            "202": answer(
                "The worker was asked to stop",
                ref("Cancel"),
                named=("Retry-After", "Preference-Applied"),
            ),
            **problems(*FOUND, "task_finished", *READ_BODY, "outcome_unknown", *STORED),
        },
        parameters=parameters("prefer", "wait"),
        **{"x-sample": {"query": "wait=5"}},
    )


def _record(description: str) -> Schema:
    return answer(description, ref("Task"), named=("ETag", "Preference-Applied"))
