"""Step 5, expose: the OpenAPI 3.1 document, built from the tables that do the work.

The fields of a submit come from its validation, the problems from the catalogue, the examples of
nodes from the registry; a test holds the paths to the app's own routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from async_nodes.access.problems import CONTENT_TYPE
from async_nodes.access.schemas import ID_PATTERN, POSITION_PATTERN, SCHEMAS, ref
from async_nodes.core.errors import CATALOGUE
from async_nodes.version import __version__

Schema = dict[str, Any]

EVERYWHERE: Final = ("bad_request", "unauthorized", "forbidden_origin", "internal")
STORED: Final = ("store_unavailable", "store_busy")
FOUND: Final = ("task_not_found", "task_gone")


def document(nodes: Iterable[str]) -> Schema:
    """Return the document.

    Args:
        nodes: names to offer as examples.

    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "async_nodes",
            "version": __version__,
            "summary": "Run the slow nodes of an LLM workflow outside the request that asked.",
            "description": "Unknown members of answers are to be ignored; unknown members of "
            "requests are refused. Every error is a problem document (RFC 9457).",
        },
        "paths": _paths(list(nodes)),
        "components": {
            "schemas": dict(SCHEMAS),
            "parameters": PARAMETERS,
            "headers": HEADERS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed where ASYNC_NODES_API_KEY is set.",
                }
            },
        },
        "security": [{"key": []}, {}],
        "x-problem-codes": {
            kind.code: {"status": kind.status, "retryable": kind.retryable, "title": kind.title}
            for kind in CATALOGUE.values()
        },
    }


def _paths(nodes: list[str]) -> Schema:
    task = [_parameter("task_id")]
    return {
        "/v1/tasks": {"post": _submit(nodes)},
        "/v1/tasks/{task_id}": {"parameters": task, "get": _read()},
        "/v1/tasks/{task_id}/events": {"parameters": task, "get": _follow()},
        "/v1/tasks/{task_id}/cancel": {"parameters": task, "post": _cancel()},
        "/v1/nodes": {"get": _simple("listNodes", "List the nodes", "Nodes")},
        "/v1/nodes/{name}": {
            "parameters": [_parameter("node_name")],
            "get": _simple("showNode", "Show one node", "Node", "not_found"),
        },
        "/healthz": {"get": _open(_simple("live", "Tell that the process serves", "Health"))},
        "/readyz": {"get": _open(_ready())},
        "/metrics": {
            "get": _operation(
                "metrics",
                "Show metrics in Prometheus' text format",
                {"200": _answer("Metrics", {"type": "string"}, "text/plain")},
            )
        },
        "/openapi.json": {
            "get": _operation(
                "openapi", "Show this document", {"200": _answer("OpenAPI", {"type": "object"})}
            )
        },
        "/problems": {"get": _simple("listProblems", "List the error codes", "ProblemKinds")},
        "/problems/{code}": {
            "parameters": [_parameter("code")],
            "get": _simple("showProblem", "Explain an error code", "ProblemKind", "not_found"),
        },
    }


def _submit(nodes: list[str]) -> Schema:
    accepted = _answer("Accepted; the task is stored", ref("Accepted"))
    accepted["headers"] = _headers(
        "Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"
    )
    refused = ("not_json", "body_too_large", "not_acceptable_type", "invalid_request")
    return {
        **_operation(
            "submitTask",
            "Submit a task",
            {
                "200": _record("Ended while the client waited"),
                "202": accepted,
                **_problems(
                    *refused,
                    "invalid_inputs",
                    "unknown_node",
                    "idempotency_mismatch",
                    "queue_full",
                    "outcome_unknown",
                    *STORED,
                ),
            },
        ),
        "parameters": [
            _parameter(name) for name in ("idempotency_key", "prefer", "wait", *_TRACING)
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": ref("SubmitRequest"),
                    "examples": {name: {"value": {"node": name, "inputs": {}}} for name in nodes},
                }
            },
        },
    }


def _read() -> Schema:
    read = _record("The record, or its state object")
    read["content"]["application/json"]["schema"] = {"oneOf": [ref("Task"), ref("NodeState")]}
    read["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        **_operation(
            "readTask",
            "Read a task; with a wait, as soon as it has ended or, with If-None-Match, changed",
            {
                "200": read,
                "304": {"description": "Not changed", "headers": _headers("ETag")},
                **_problems(*FOUND, *STORED),
            },
        ),
        "parameters": [
            _parameter(name)
            for name in ("if_none_match", "accept", "prefer", "wait", "format", *_TRACING)
        ],
    }


def _follow() -> Schema:
    stream = _answer("The events from the client's position on", {"type": "string"}, _STREAM)
    stream["content"][_STREAM]["x-sse-events"] = {
        "state": ref("StateEvent"),
        "progress": ref("ProgressEvent"),
        "chunk": ref("ChunkEvent"),
        "done": ref("Task"),
        "reset": ref("Task"),
    }
    return {
        **_operation(
            "followTask",
            "Stream a task's events (server-sent events)",
            {
                "200": stream,
                "204": {"description": "The client has seen everything"},
                **_problems(*FOUND, *STORED),
            },
        ),
        "parameters": [_parameter("last_event_id"), _parameter("after")],
    }


def _cancel() -> Schema:
    asked = _answer("The worker was asked to stop", ref("Cancel"))
    asked["headers"] = _headers("Retry-After", "Preference-Applied")
    return {
        **_operation(
            "cancelTask",
            "Cancel a task",
            {
                "200": _answer("Cancelled", ref("Cancel")),
                "202": asked,
                **_problems(
                    *FOUND,
                    "task_finished",
                    "not_json",
                    "body_too_large",
                    "not_acceptable_type",
                    "invalid_request",
                    "outcome_unknown",
                    *STORED,
                ),
            },
        ),
        "parameters": [_parameter("prefer"), _parameter("wait")],
    }


def _ready() -> Schema:
    return _operation(
        "ready",
        "Tell whether tasks would be accepted and run",
        {
            "200": _answer("Ready", ref("Readiness")),
            "503": _answer("Not ready; says what is missing", ref("Readiness")),
        },
    )


# -- pieces ----------------------------------------------------------------------------------------

_STREAM: Final = "text/event-stream"
_TRACING: Final = ("traceparent", "request_id")


def _operation(name: str, summary: str, responses: Mapping[str, Any]) -> Schema:
    general = _problems(*EVERYWHERE)
    for status, response in responses.items():
        if status in general and CONTENT_TYPE in response.get("content", {}):
            response["description"] += f", {general[status]['description']}"
    return {"operationId": name, "summary": summary, "responses": {**general, **responses}}


def _simple(name: str, summary: str, schema: str, *codes: str) -> Schema:
    responses = {"200": _answer(schema, ref(schema)), **_problems(*codes)}
    return _operation(name, summary, responses)


def _open(operation: Schema) -> Schema:
    """Return an operation that needs no key, whatever the settings."""
    return {**operation, "security": [{}]}


def _answer(description: str, schema: Schema, media_type: str = "application/json") -> Schema:
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _record(description: str) -> Schema:
    answer = _answer(description, ref("Task"))
    answer["headers"] = _headers("ETag", "Preference-Applied")
    return answer


def _problems(*codes: str) -> Schema:
    """Return the responses for some error codes, one per status."""
    by_status: dict[str, list[str]] = {}
    for code in codes:
        by_status.setdefault(str(CATALOGUE[code].status), []).append(code)
    return {
        status: _answer(", ".join(named), ref("Problem"), CONTENT_TYPE)
        for status, named in sorted(by_status.items())
    }


def _headers(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _header(description: str, **schema: Any) -> Schema:
    return {"description": description, "schema": {"type": "string", **schema}}


HEADERS: Final[Mapping[str, Schema]] = {
    "Location": _header("The task's address", format="uri-reference"),
    "Retry-After": _header("Seconds after which to look, or to try, again", type="integer"),
    "ETag": _header("The record's version in quotes"),
    "Preference-Applied": _header("How long the answer could be held, as wait=N"),
    "Idempotency-Replayed": _header("true: an earlier request had made the task"),
}


def _given(place: str, name: str, description: str, **schema: Any) -> Schema:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": "string", **schema},
    }


PARAMETERS: Final[Mapping[str, Schema]] = {
    "task_id": _given("path", "task_id", "What a submit answered.", pattern=ID_PATTERN),
    "node_name": _given("path", "name", "A node's name."),
    "code": _given("path", "code", "An error code.", enum=list(CATALOGUE)),
    "idempotency_key": _given(
        "header",
        "Idempotency-Key",
        "Your name for this request: sent again, it makes no second task. Kept as long as its "
        "task. Bare or as a quoted string.",
        maxLength=255,
    ),
    "prefer": _given("header", "Prefer", "wait=N holds the answer up to N seconds, at most 30."),
    "wait": _given("query", "wait", "Seconds, as in Prefer.", type="number", minimum=0, maximum=30),
    "if_none_match": _given("header", "If-None-Match", "The ETag of the record you have."),
    "accept": _given("header", "Accept", "text/event-stream gives the events instead."),
    "format": _given(
        "query",
        "format",
        "node_state gives {id, status, timestamp}.",
        enum=["record", "node_state"],
        default="record",
    ),
    "last_event_id": _given(
        "header", "Last-Event-ID", "Resume after this event.", pattern=POSITION_PATTERN
    ),
    "after": _given("query", "after", "The same, in the address.", pattern=POSITION_PATTERN),
    "traceparent": _given("header", "traceparent", "Your trace (W3C); made when absent."),
    "request_id": _given(
        "header", "X-Request-ID", "Echoed; made when absent.", pattern="^[A-Za-z0-9._-]{1,64}$"
    ),
}
