"""Step 5, expose: the OpenAPI document of the routes about the service itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi.pieces import (
    answer,
    operation,
    parameter,
    simple,
    without_key,
)
from async_nodes.access.openapi.shapes import FAULTS, ID, TEXT, Schema, members, ref
from async_nodes.core.errors import CATALOGUE
from async_nodes.dispatch.request import FIELDS


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    return {
        "/v1/nodes": {"get": simple("listNodes", "List the nodes", "Nodes")},
        "/v1/nodes/{name}": {
            "parameters": [parameter("node_name")],
            "get": simple("showNode", "Show one node", "Node", "not_found"),
        },
        "/healthz": {"get": without_key(simple("live", "Tell that the process serves", "Health"))},
        "/readyz": {"get": without_key(_ready())},
        "/metrics": {
            "get": operation(
                "metrics",
                "Show metrics in Prometheus' text format",
                {"200": answer("Metrics", TEXT, "text/plain")},
            )
        },
        "/openapi.json": {
            "get": operation(
                "openapi", "Show this document", {"200": answer("OpenAPI", {"type": "object"})}
            )
        },
        "/problems": {"get": simple("listProblems", "List the error codes", "ProblemKinds")},
        "/problems/{code}": {
            "parameters": [parameter("code")],
            "get": simple("showProblem", "Explain an error code", "ProblemKind", "not_found"),
        },
    }


def _ready() -> Schema:
    return operation(
        "ready",
        "Tell whether tasks would be accepted and run",
        {
            "200": answer("Ready", ref("Readiness")),
            "503": answer("Not ready; says what is missing", ref("Readiness")),
        },
    )


def _service() -> dict[str, Schema]:
    check = members({"ok": {"type": "boolean"}, "detail": {"type": "string"}})
    return {
        "Node": members(
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
        "Nodes": members({"nodes": {"type": "array", "items": ref("Node")}}),
        "Health": members({"status": {"type": "string", "const": "ok"}}),
        "Readiness": members(
            {
                "status": {"type": "string", "enum": ["ready", "not_ready"]},
                "missing": {"type": "array", "items": {"type": "string"}},
                "checks": {"type": "object", "additionalProperties": check},
                "pid": {"type": "integer", "description": "The process that answered."},
            }
        ),
        "ProblemKind": members(
            {
                "type": {"type": "string"},
                "code": {"type": "string", "enum": list(CATALOGUE)},
                "status": {"type": "integer"},
                "retryable": {"type": "boolean"},
                "title": members({"en": {"type": "string"}, "zh": {"type": "string"}}),
                "hint": members({"en": {"type": "string"}, "zh": {"type": "string"}}),
            }
        ),
        "ProblemKinds": members({"problems": {"type": "array", "items": ref("ProblemKind")}}),
        "Problem": _problem(),
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
            "task_id": ID,
            "pointer": {"type": "string"},
            "errors": FAULTS,
            "suggestion": {"type": "string"},
        },
    }


SCHEMAS: Final[Mapping[str, Schema]] = _service()
