"""Step 5, expose: the OpenAPI document of the feed of many tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi.pieces import (
    STORED,
    STREAM,
    answer,
    given,
    operation,
    problems,
)
from async_nodes.access.openapi.shapes import (
    COUNT,
    ID,
    NODE_NAME,
    REASON,
    STATE,
    TEXT,
    TIME,
    TIME_OR_NULL,
    VERSION,
    Schema,
    array,
    members,
    ref,
)
from async_nodes.dispatch.request import MAX_TAG, MAX_TAGS

_PLACE_PATTERN = "^[0-9]{1,15}-[0-9]{1,15}$"


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    stream = answer("The changes from the client's place on", TEXT, STREAM)
    stream["content"][STREAM]["x-sse-events"] = {
        "state": ref("Change"),
        "reset": ref("FeedReset"),
    }
    follow = operation(
        "followTasks",
        "Stream the changes of state of many tasks (server-sent events)",
        {"200": stream, **problems(*STORED)},
        parameters=[
            _several("node", "A node's name; repeated: any of them.", NODE_NAME),
            _several(
                "tag",
                "A tag; repeated: all of them.",
                {**TEXT, "minLength": 1, "maxLength": MAX_TAG},
                MAX_TAGS,
            ),
            _several("state", "A state; repeated: any of them.", STATE),
            given(
                "header",
                "Last-Event-ID",
                "Resume after the event of this id.",
                pattern=f"^({_PLACE_PATTERN[1:-1]})?$",
            ),
            given("query", "after", "The same, in the address.", pattern=_PLACE_PATTERN),
        ],
    )
    return {"/v1/events": {"get": follow}}


def _several(name: str, description: str, value: Schema, most: int = 50) -> Schema:
    """Return a parameter of the query that may be repeated."""
    made = given("query", name, description)
    return {**made, "schema": array(value, maxItems=most), "explode": True}


SCHEMAS: Final[Mapping[str, Schema]] = {
    "Change": members(
        {
            "task_id": ID,
            "node": TEXT,
            "state": STATE,
            "reason": REASON,
            "attempt": COUNT,
            "version": VERSION,
            "at": TIME,
            "next_attempt_at": TIME_OR_NULL,
            "tags": array(TEXT),
        },
        description="A task has entered a state, or has another reason for it.",
    ),
    "FeedReset": members(
        {"missed_after": {"type": "string", "pattern": _PLACE_PATTERN}},
        description="What happened after this place is not kept: read the tasks again.",
    ),
}
