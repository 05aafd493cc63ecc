"""Step 5, expose: the OpenAPI document of the routes about the service itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from async_nodes.access.openapi.pieces import (
    answer,
    given,
    operation,
    parameter,
    problems,
    simple,
    without_key,
)
from async_nodes.access.openapi.shapes import (
    FAULTS,
    ID,
    TEXT,
    TIME_OR_NULL,
    Schema,
    members,
    nullable,
    ref,
)
from async_nodes.access.problems import description, document
from async_nodes.core.errors import CATALOGUE, AsyncNodesError
from async_nodes.dispatch.request import FIELDS
from async_nodes.version import __version__

PAGE: Final = "text/html"
LANGUAGE: Final = given(
    "query", "lang", "Language of the page; else that of Accept-Language.", enum=["en", "zh"]
)
_METRICS: Final = 'async_nodes_http_requests_total{route="/v1/tasks"} 17.0'
_IDENTITY: Final[dict[str, Schema]] = {
    "pid": {"type": "integer", "description": "The process that answered."},
    "process": nullable("integer", description="Which of several it is, from 0; null: the only."),
}
_OPENAPI: Final[Schema] = {
    "type": "object",
    "required": ["openapi", "info", "paths"],
    "examples": [{"openapi": "3.1.0", "info": {"title": "async_nodes"}, "paths": {}}],
}


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    page = {"type": "string", "examples": ["<!doctype html>…"]}
    return {
        "/": {"get": _index()},
        "/docs": {
            "get": without_key(
                operation(
                    "listOperations",
                    "Show what can be asked, as a page for people",
                    {"200": answer("The page", page, PAGE)},
                    parameters=[LANGUAGE],
                )
            )
        },
        "/docs/{name}": {
            "parameters": [
                given("path", "name", "An operation's operationId.", example="submitTask")
            ],
            "get": without_key(
                operation(
                    "showOperation",
                    "Explain one operation, as a page for people",
                    {"200": answer("The page", page, PAGE), **problems("not_found")},
                    parameters=[LANGUAGE],
                )
            ),
        },
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
                {"200": answer("As asked", {**TEXT, "examples": [_METRICS]}, "text/plain")},
            )
        },
        "/openapi.json": {
            "get": operation("openapi", "Show this document", {"200": answer("As asked", _OPENAPI)})
        },
        "/dify/openapi.json": {"get": _for_dify()},
        "/problems": {"get": simple("listProblems", "List the error codes", "ProblemKinds")},
        "/problems/{code}": {
            "parameters": [parameter("code")],
            "get": _explained(),
        },
    }


def _for_dify() -> Schema:
    where = "Where Dify reaches the service; else the address of this request."
    server = given("query", "server", where, example="http://async-nodes:8000")
    return without_key(
        operation(
            "openapiOfDify",
            "Show the few short calls that Dify can import as custom tools",
            {"200": answer("As asked", _OPENAPI), **problems("invalid_request")},
            parameters=[server],
        )
    )


def _index() -> Schema:
    shown = answer("The addresses; for a browser, a page", ref("Index"))
    shown["content"][PAGE] = {"schema": TEXT}
    return without_key(
        operation("index", "Show where to go from here", {"200": shown}, parameters=[LANGUAGE])
    )


def _explained() -> Schema:
    made = simple("showProblem", "Explain an error code", "ProblemKind", "not_found")
    made["responses"]["200"]["content"][PAGE] = {"schema": TEXT}
    return made


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
                "state": {
                    "type": "string",
                    "enum": ["open", "paused", "draining", "unknown"],
                    "description": "unknown: the store does not answer.",
                },
                "since": TIME_OR_NULL,
                "reason": nullable("string", description="What whoever paused or drained it said."),
                "held": nullable("integer", minimum=0, description="Tasks that the pause holds."),
            }
        ),
        "Nodes": members({"nodes": {"type": "array", "items": ref("Node")}}),
        "Health": members({"status": {"type": "string", "const": "ok"}, **_IDENTITY}),
        "Readiness": members(
            {
                "status": {"type": "string", "enum": ["ready", "not_ready"]},
                "missing": {"type": "array", "items": {"type": "string"}},
                "checks": {"type": "object", "additionalProperties": check},
                **_IDENTITY,
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
        "Index": members(
            {
                "name": TEXT,
                "version": TEXT,
                "links": {
                    "type": "object",
                    "additionalProperties": {"type": "string", "format": "uri-reference"},
                },
            }
        ),
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


def _kinds() -> dict[str, Any]:
    kind = description(CATALOGUE["invalid_request"])
    node = {
        "name": "echo",
        "kind": "io",
        "description": "Return the inputs as they are.",
        "streams": False,
        "timeout_ms": 300_000,
        "retry_policy": None,
        "redacts": [],
        "inputs": {"type": "object", "properties": {}, "additionalProperties": True},
        "state": "open",
        "since": None,
        "reason": None,
        "held": 0,
    }
    error = AsyncNodesError("invalid_request", "there is no field 'inptus'", pointer="/inptus")
    return {
        "Node": node,
        "Nodes": {"nodes": [node]},
        "Health": {"status": "ok", "pid": 4711, "process": 0},
        "Readiness": {
            "status": "ready",
            "missing": [],
            "checks": {"store": {"ok": True, "detail": "ok"}},
            "pid": 4711,
            "process": 0,
        },
        "ProblemKind": kind,
        "ProblemKinds": {"problems": [kind]},
        "Problem": document(error, path="/v1/tasks", trace_id="4bf92f3577b34da6a3ce929d0e0e4736"),
        "Index": {
            "name": "async_nodes",
            "version": __version__,
            "links": {"openapi": "/openapi.json", "docs": "/docs"},
        },
    }


def _with_examples(schemas: Mapping[str, Schema]) -> dict[str, Schema]:
    examples = _kinds()
    return {name: {**schema, "examples": [examples[name]]} for name, schema in schemas.items()}


SCHEMAS: Final[Mapping[str, Schema]] = _with_examples(_service())
