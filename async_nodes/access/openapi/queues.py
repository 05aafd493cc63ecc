"""Step 5, expose: the OpenAPI document of queues and workers, and of what holds for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.api.controls import ACTIONS, LONGEST_REASON
from async_nodes.access.openapi.pieces import (
    FOUND,
    READ_BODY,
    STORED,
    body,
    given,
    operation,
    parameter,
    problems,
    simple,
)
from async_nodes.access.openapi.pieces import answer as answered
from async_nodes.access.openapi.shapes import (
    COUNT,
    ID,
    REASON,
    STATE,
    TEXT,
    TIME,
    TIME_OR_NULL,
    Schema,
    array,
    members,
    nullable,
    ref,
)
from async_nodes.core.priority import KINDS, LISTS
from async_nodes.core.waiting import CODES

_SUMMARIES: Final[Mapping[str, tuple[str, str]]] = {
    "pause": ("Hold the tasks of a queue that wait", "Hold the tasks of a node that wait"),
    "resume": ("End a queue's pause or drain", "End a node's pause or drain"),
    "drain": (
        "Refuse new tasks of a queue and work off those that wait",
        "Refuse new tasks of a node and work off those that wait",
    ),
    "purge": ("Cancel a queue's tasks that wait", "Cancel a node's tasks that wait"),
}
_SECONDS: Final[Schema] = {"type": "number", "minimum": 0}
_RATES: Final[Schema] = {
    "type": "object",
    "additionalProperties": _SECONDS,
    "description": "Tasks begun per second over the last minute, by queue that it takes from.",
}
IN_FORCE: Final[Mapping[str, Schema]] = {
    "state": {"type": "string", "enum": ["open", "paused", "draining"]},
    "since": TIME_OR_NULL,
    "reason": nullable("string", description="What whoever paused or drained it said."),
}
"""Members that tell what is in force for a queue or a node."""


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    queue = given(
        "path",
        "name",
        "A queue, or io or cpu for all three of a kind.",
        enum=[*LISTS, *KINDS],
        example="io.default",
    )
    worker = given("path", "worker_id", "A live worker's id.", example="io-4711-1f2e3d4c")
    made: Schema = {
        "/v1/queues": {"get": simple("listQueues", "Show the queues", "Queues", *STORED)},
        "/v1/queues/{name}": {
            "parameters": [queue],
            "get": simple(
                "showQueue",
                "Show one queue, or the three of a kind",
                "Queues",
                "not_found",
                *STORED,
            ),
        },
        "/v1/tasks/{task_id}/queue": {
            "parameters": [parameter("task_id")],
            "get": simple(
                "showPlace",
                "Show where a task waits, and why it has not started",
                "Place",
                *FOUND,
                *STORED,
            ),
        },
        "/v1/workers": {"get": simple("listWorkers", "List the live workers", "Workers", *STORED)},
        "/v1/workers/{worker_id}": {
            "parameters": [worker],
            "get": simple(
                "showWorker", "Show a worker and what it runs", "Worker", "not_found", *STORED
            ),
        },
    }
    for action in ACTIONS:
        made[f"/v1/queues/{{name}}/{action}"] = {
            "parameters": [queue],
            "post": _act(f"{action}Queue", _SUMMARIES[action][0]),
        }
        made[f"/v1/nodes/{{name}}/{action}"] = {
            "parameters": [parameter("node_name")],
            "post": _act(f"{action}Node", _SUMMARIES[action][1]),
        }
    return made


def _act(name: str, summary: str) -> Schema:
    return operation(
        name,
        summary,
        {
            "200": answered("What is in force now, and how many tasks it touched", ref("InForce")),
            **problems("not_found", *READ_BODY, *STORED),
        },
        requestBody=body("ControlRequest", required=False),
    )


def _queue() -> Schema:
    return members(
        {
            "name": {"type": "string", "enum": list(LISTS)},
            "kind": {"type": "string", "enum": list(KINDS)},
            **IN_FORCE,
            "depth": {**COUNT, "description": "Messages in the list."},
            "unclaimed": {
                **COUNT,
                "description": "Tasks whose message is out, those on their way to a body included.",
            },
            "parked": {**COUNT, "description": "Tasks that wait to be let in."},
            "held": {**COUNT, "description": "Tasks that the pause holds."},
            "delayed": {**COUNT, "description": "Tasks whose first attempt is yet to be due."},
            "backoff": {**COUNT, "description": "Tasks whose next attempt is yet to be due."},
            "oldest_seconds": nullable(
                "number", minimum=0, description="Since the oldest of the unclaimed was dispatched."
            ),
            "rate": {
                **_SECONDS,
                "description": "Tasks begun per second over the last minute, by all workers.",
            },
            "workers": {**COUNT, "description": "Live workers that take from it."},
            "slots": nullable(
                "integer",
                minimum=0,
                description="Tasks that they run at once; null when one does not tell.",
            ),
            "running": {**COUNT, "description": "Tasks that they run now, of any queue."},
        }
    )


def _worker() -> dict[str, Schema]:
    return {
        "worker_id": TEXT,
        "kind": {"type": "string", "enum": list(KINDS)},
        "host": nullable("string"),
        "pid": nullable("integer"),
        "version": nullable("string"),
        "transport": nullable("string", description="fast or stock: how its messages come."),
        "started_at": TIME_OR_NULL,
        "lease_seconds": {**_SECONDS, "description": "Left until it counts as dead."},
        "concurrency": nullable("integer", minimum=0, description="Tasks that it runs at once."),
        "running": COUNT,
        "free": nullable("integer", minimum=0, description="Slots that are free."),
        "rates": _RATES,
        "nodes": nullable("integer", minimum=0, description="Nodes that it knows."),
        "stalls": nullable(
            "integer", minimum=0, description="How often its event loop stood still."
        ),
    }


def _place() -> Schema:
    return members(
        {
            "task_id": ID,
            "state": STATE,
            "reason": REASON,
            "queue": {"type": "string", "enum": list(LISTS)},
            "line": {
                "type": ["string", "null"],
                "enum": ["queue", "gate", "hold", None],
                "description": "Where it waits: in the queue, to be let in, or for a pause to end.",
            },
            "position": nullable("integer", minimum=1, description="Its place in that line."),
            "length": {**COUNT, "description": "Of that line."},
            "why": members(
                {"code": {"type": "string", "enum": list(CODES)}, "en": TEXT, "zh": TEXT}
            ),
            "eta_seconds": nullable(
                "number", minimum=0, description="Until it starts, as far as that can be told."
            ),
        }
    )


def _schemas() -> dict[str, Schema]:
    running = members(
        {"task_id": ID, "node": TEXT, "attempt": COUNT, "started_at": TIME, "seconds": _SECONDS}
    )
    return {
        "Queue": _queue(),
        "Queues": members(
            {
                "queues": array(ref("Queue")),
                "exact": {
                    "type": "boolean",
                    "description": "false: there may be more delayed and backing off than told.",
                },
            }
        ),
        "Place": _place(),
        "WorkerBrief": members(_worker()),
        "Workers": members({"workers": array(ref("WorkerBrief"))}),
        "Worker": members(
            {
                **_worker(),
                "tasks": array(running, description="Some of what it runs, the longest first."),
            }
        ),
        "ControlRequest": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "reason": {
                    "type": ["string", "null"],
                    "minLength": 1,
                    "maxLength": LONGEST_REASON,
                    "description": "Shown to whoever asks why tasks wait or are refused.",
                }
            },
            "examples": [{"reason": "the model's quota is used up"}],
        },
        "InForce": members(
            {
                "scopes": array(members({"scope": TEXT, **IN_FORCE, "held": COUNT})),
                "touched": {
                    **COUNT,
                    "description": "Tasks held (pause), put back (resume, drain) or cancelled.",
                },
                "more": {
                    "type": "boolean",
                    "description": "true: the time was up. Ask again; resume goes on by itself.",
                },
            }
        ),
    }


SCHEMAS: Final[Mapping[str, Schema]] = _schemas()
