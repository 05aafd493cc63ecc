"""Step 5, expose: the OpenAPI document of the breakers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.api.breakers import KINDS, MODES
from async_nodes.access.openapi.pieces import (
    READ_BODY,
    STORED,
    answer,
    body,
    given,
    operation,
    problems,
    simple,
)
from async_nodes.access.openapi.shapes import (
    COUNT,
    TEXT,
    TIME_OR_NULL,
    Schema,
    array,
    members,
    nullable,
    ref,
)
from async_nodes.core.breaker import Cause, State

_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    name = given(
        "path",
        "name",
        "node:<name>, key:<key> or endpoint:<host>:<port>.",
        example="node:echo",
    )
    forced = operation(
        "forceBreaker",
        "Force a breaker open or closed, or let it decide again",
        {
            "200": answer("The breaker as it is now", ref("Breaker")),
            **problems("breaker_not_found", *READ_BODY, *STORED),
        },
        requestBody=body("BreakerRequest"),
    )
    return {
        "/v1/breakers": {"get": simple("listBreakers", "List the breakers", "Breakers", *STORED)},
        "/v1/breakers/{name}": {
            "parameters": [name],
            "get": simple("showBreaker", "Show a breaker", "Breaker", "breaker_not_found", *STORED),
            "post": forced,
        },
    }


def _breaker() -> Schema:
    return members(
        {
            "name": TEXT,
            "kind": {"type": "string", "enum": list(KINDS)},
            "nodes": array(TEXT, description="Nodes that declare it."),
            "state": {"type": "string", "enum": [one.value for one in State]},
            "mode": {
                "type": "string",
                "enum": list(MODES),
                "description": "auto: it decides by itself; otherwise what it is forced to be.",
            },
            "cause": {"type": "string", "enum": [one.value for one in Cause]},
            "since": TIME_OR_NULL,
            "until": {**TIME_OR_NULL, "description": "When an open one may be half-open."},
            "degraded": nullable("string", description="The mode that its node is in."),
            "trials": array({"type": "boolean"}, description="The last results in half-open."),
            "windows_over": {
                **COUNT,
                "description": "Windows in a row over both thresholds of load and latency.",
            },
            "load": {**_NUMBER, "maximum": 1, "description": "The smoothed utilisation s."},
            "measured": members(
                {
                    "calls": COUNT,
                    "failures": COUNT,
                    "failure_rate": {**_NUMBER, "maximum": 1},
                    "rate": {**_NUMBER, "description": "Calls per second."},
                    "p95_seconds": _NUMBER,
                }
            ),
            "thresholds": members(
                {
                    "window_seconds": _NUMBER,
                    "failures": COUNT,
                    "failure_rate": {**_NUMBER, "maximum": 1},
                    "rate": nullable("number", minimum=0, description="Calls per second."),
                    "p95_seconds": nullable("number", minimum=0),
                }
            ),
        }
    )


SCHEMAS: Final[Mapping[str, Schema]] = {
    "Breaker": _breaker(),
    "Breakers": members({"breakers": array(ref("Breaker"))}),
    "BreakerRequest": {
        "type": "object",
        "additionalProperties": False,
        "required": ["mode"],
        "properties": {
            "mode": {
                "type": "string",
                "enum": list(MODES),
                "description": "open refuses all calls, closed lets all through.",
            }
        },
        "examples": [{"mode": "auto"}],
    },
}
