"""Step 5, expose: the OpenAPI document of schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from async_nodes.access.openapi.pieces import (
    JSON,
    READ_BODY,
    STORED,
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
    TEXT,
    TIME,
    TIME_OR_NULL,
    Schema,
    array,
    members,
    nullable,
    ref,
)
from async_nodes.core.schedule import Missed, Overlap
from async_nodes.dispatch.schedules import FIELDS, NAME_PATTERN

_TASK: Final = ("invalid_inputs", "unknown_node")
_EXAMPLE: Final[Mapping[str, Any]] = {
    "name": "nightly",
    "cron": "30 2 * * *",
    "timezone": "Asia/Shanghai",
    "task": {"node": "echo", "inputs": {"report": "daily"}},
}


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    name = given(
        "path", "name", "A schedule's name.", pattern=f"^{NAME_PATTERN}$", example="nightly"
    )
    one = {"parameters": [name]}
    return {
        "/v1/schedules": {"post": _create(), "get": _list()},
        "/v1/schedules/{name}": {
            **one,
            "get": _of_one("showSchedule", "Show a schedule with its ticks to come"),
            "put": _replace(),
            "delete": _delete(),
        },
        "/v1/schedules/{name}/pause": {
            **one,
            "post": _of_one("pauseSchedule", "Stop a schedule until it is resumed", *READ_BODY),
        },
        "/v1/schedules/{name}/resume": {
            **one,
            "post": _of_one(
                "resumeSchedule",
                "Let a paused schedule go on with its next tick",
                *READ_BODY,
                *_TASK,
            ),
        },
        "/v1/schedules/{name}/trigger": {**one, "post": _trigger()},
    }


def _schedule(description: str) -> Schema:
    return answer(description, ref("Schedule"), named=("ETag",))


def _create() -> Schema:
    return operation(
        "createSchedule",
        "Create a schedule",
        {
            "201": answer("Created", ref("Schedule"), named=("Location", "ETag")),
            **problems(*READ_BODY, *_TASK, "schedule_exists", "schedule_limit", *STORED),
        },
        requestBody={
            "required": True,
            "content": {JSON: {"schema": ref("ScheduleRequest"), "example": dict(_EXAMPLE)}},
        },
    )


def _list() -> Schema:
    return operation(
        "listSchedules",
        "List the schedules by name",
        {"200": answer("Schedules", ref("Schedules")), **problems(*STORED)},
        parameters=[
            given(
                "query", "limit", "How many.", type="integer", minimum=1, maximum=200, default=50
            ),
            parameter("cursor"),
        ],
    )


def _of_one(name: str, summary: str, *codes: str) -> Schema:
    told = problems("schedule_not_found", *codes, *STORED)
    return operation(name, summary, {"200": _schedule("As it is now"), **told})


_IF_MATCH: Final[Schema] = given(
    "header",
    "If-Match",
    "The ETag that you have read: with another nothing is changed.",
    pattern=r'^(\*|"[1-9][0-9]{0,14}")?$',
)


def _replace() -> Schema:
    changed = {name: value for name, value in _EXAMPLE.items() if name != "name"}
    return operation(
        "replaceSchedule",
        "Give a schedule another definition",
        {
            "200": _schedule("As it is now"),
            **problems(*READ_BODY, *_TASK, "schedule_not_found", "version_mismatch", *STORED),
        },
        parameters=[_IF_MATCH],
        requestBody={
            "required": True,
            "content": {JSON: {"schema": ref("ScheduleReplacement"), "example": changed}},
        },
    )


def _delete() -> Schema:
    return operation(
        "deleteSchedule",
        "Delete a schedule; tasks that it has made stay",
        {
            "204": bare("Deleted"),
            **problems("schedule_not_found", "version_mismatch", *STORED),
        },
        parameters=[_IF_MATCH],
    )


def _trigger() -> Schema:
    return operation(
        "triggerSchedule",
        "Send a schedule's task now, paused or not",
        {
            "200": answer("Ended while the client waited", ref("Task")),
            "202": answer(
                "Accepted; the task is stored",
                ref("Accepted"),
                named=("Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"),
            ),
            **problems(
                "schedule_not_found", *READ_BODY, *_TASK, "idempotency_mismatch", "draining",
                "outcome_unknown", *STORED,
            ),
        },
        parameters=parameters("idempotency_key", "prefer", "wait"),
    )  # fmt: skip


_SECONDS: Final[Schema] = {"type": "number", "minimum": 0}
_ASKED: Final[Mapping[str, Schema]] = {
    name: {**ref("SubmitRequest"), **field.schema} if name == "task" else dict(field.schema)
    for name, field in FIELDS.items()
}


def _request(*required: str) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": dict(_ASKED),
    }


_BRIEF: Final[Mapping[str, Schema]] = {
    "name": TEXT,
    "cron": nullable("string"),
    "every": nullable("number"),
    "timezone": TEXT,
    "starts_at": TIME_OR_NULL,
    "ends_at": TIME_OR_NULL,
    "jitter": _SECONDS,
    "task": {"type": "object", "description": "As it was given; secret inputs as [redacted]."},
    "missed": {"type": "string", "enum": [policy.value for policy in Missed]},
    "overlap": {"type": "string", "enum": [policy.value for policy in Overlap]},
    "paused": {"type": "boolean"},
    "reason": {
        "oneOf": [members({"code": TEXT, "detail": TEXT}), {"type": "null"}],
        "description": "Why it was paused by the service: its task cannot be sent any more.",
    },
    "next_at": nullable(
        "string", format="date-time", description="When it fires next, jitter included."
    ),
    "last_at": nullable("string", format="date-time", description="The last tick that was fired."),
    "last_task_id": nullable("string"),
    "counts": members(
        {"fired": COUNT, "missed": COUNT, "skipped": COUNT},
        description="Ticks that gave a task; that nobody fired in time; that came while the task "
        "before had not ended.",
    ),
    "version": {"type": "integer", "minimum": 1, "description": "Of the definition; its ETag."},
    "created_at": TIME,
    "updated_at": TIME,
    "links": members(
        {
            **dict.fromkeys(("self", "pause", "resume", "trigger"), TEXT),
            "last_task": nullable("string"),
        }
    ),
}

SCHEMAS: Final[Mapping[str, Schema]] = {
    "ScheduleRequest": _request("name", "task"),
    "ScheduleReplacement": _request("task"),
    "ScheduleInBrief": members(_BRIEF),
    "Schedule": members(
        {**_BRIEF, "preview": array(TIME, description="The next times at which it fires.")}
    ),
    "Schedules": members({"schedules": array(ref("ScheduleInBrief")), "next": nullable("string")}),
}
