"""Step 5, expose: the OpenAPI document of a task's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi.pieces import (
    FOUND,
    STORED,
    STREAM,
    answer,
    bare,
    given,
    operation,
    parameter,
    parameters,
    problems,
)
from async_nodes.access.openapi.shapes import (
    COUNT,
    ID,
    POSITION_PATTERN,
    STATE,
    TEXT,
    TIME,
    Schema,
    array,
    members,
    ref,
)
from async_nodes.core.log_levels import LEVELS


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    lines = answer("The lines after the client's position", ref("LogPage"))
    lines["content"][STREAM] = {
        "schema": TEXT,
        "x-sse-events": {"log": ref("LogLine"), "done": ref("LogEnd")},
    }
    read = operation(
        "readLogs",
        "Read what a task has logged, or follow it (server-sent events)",
        {
            "200": lines,
            "204": bare("The client has seen everything"),
            **problems(*FOUND, *STORED),
        },
        parameters=[
            *parameters("accept", "last_event_id", "after"),
            given("query", "level", "This level and above.", enum=list(LEVELS)),
        ],
    )
    return {"/v1/tasks/{task_id}/logs": {"parameters": [parameter("task_id")], "get": read}}


SCHEMAS: Final[Mapping[str, Schema]] = {
    "LogLine": members(
        {
            "at": TIME,
            "level": {"type": "string", "enum": list(LEVELS)},
            "text": TEXT,
            "attempt": COUNT,
            "n": {"type": "integer", "minimum": 1, "description": "Counts in the attempt."},
        }
    ),
    "LogPage": members(
        {
            "lines": array(ref("LogLine")),
            "next": {"type": "string", "pattern": POSITION_PATTERN},
            "complete": {"type": "boolean", "description": "Whether the task has ended."},
        }
    ),
    "LogEnd": members({"task_id": ID, "state": STATE}),
}
