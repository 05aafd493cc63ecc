"""Step 5, expose: what the operations of the OpenAPI document are built of.

Operations, answers, problems, and the parameters and headers that several areas share. An area
with a parameter or header of its own puts it in place with `given` or `header`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_nodes.access.openapi.shapes import ID_PATTERN, POSITION_PATTERN, Schema, ref
from async_nodes.access.problems import CONTENT_TYPE
from async_nodes.core.errors import CATALOGUE

JSON: Final = "application/json"
METHODS: Final = frozenset({"get", "put", "post", "delete", "head", "patch"})
STREAM: Final = "text/event-stream"
EVERYWHERE: Final = (
    "bad_request",
    "unauthorized",
    "forbidden_origin",
    "forbidden_scope",
    "internal",
)
"""Problems that any route may answer."""

STORED: Final = ("store_unavailable", "store_busy")
"""Problems of routes that ask the store."""

FOUND: Final = ("task_not_found", "task_gone")
"""Problems of routes with a task's id in the path."""

READ_BODY: Final = ("not_json", "body_too_large", "not_acceptable_type", "invalid_request")
"""Problems of routes that take a JSON body."""

TRACING: Final = ("traceparent", "request_id")
"""Names of the parameters that any route takes over."""


def operation(name: str, summary: str, responses: Mapping[str, Any], **more: Any) -> Schema:
    """Return an operation.

    Args:
        name: its `operationId`, a verb and a noun in camel case.
        summary: one imperative phrase.
        responses: by status; the problems of every route are added.
        more: further members, such as ``parameters``, ``requestBody``, ``description``.

    """
    general = problems(*EVERYWHERE)
    for status, response in responses.items():
        told = response.get("content", {}).get(CONTENT_TYPE)
        if status in general and told is not None:
            more_told = general[status]["content"][CONTENT_TYPE]["examples"]
            told["examples"] = {**told["examples"], **more_told}
            response["description"] += f", {general[status]['description']}"
    return {"operationId": name, "summary": summary, "responses": {**general, **responses}, **more}


def simple(name: str, summary: str, schema: str, *codes: str) -> Schema:
    """Return an operation that answers 200 with a schema, or problems of these codes."""
    return operation(name, summary, {"200": answer("As asked", ref(schema)), **problems(*codes)})


def without_key(described: Schema) -> Schema:
    """Return an operation that needs no key, whatever the settings."""
    return {**described, "security": [{}]}


def answer(
    description: str, schema: Schema, media_type: str = JSON, *, named: tuple[str, ...] = ()
) -> Schema:
    """Return a response with a body.

    Args:
        description: what it tells.
        schema: of the body.
        media_type: of the body.
        named: its headers, of `HEADERS`.

    """
    made: Schema = {"description": description, "content": {media_type: {"schema": schema}}}
    return {**made, "headers": headers(*named)} if named else made


def bare(description: str, *named: str) -> Schema:
    """Return a response without a body, with these headers of `HEADERS`."""
    return (
        {"description": description, "headers": headers(*named)}
        if named
        else {"description": description}
    )


def body(schema: str, *, required: bool = True) -> Schema:
    """Return a JSON request body of a schema of the document."""
    return {"required": required, "content": {JSON: {"schema": ref(schema)}}}


def problems(*codes: str) -> Schema:
    """Return the responses for some error codes, one per status, each with its examples."""
    by_status: dict[str, list[str]] = {}
    for code in codes:
        by_status.setdefault(str(CATALOGUE[code].status), []).append(code)
    return {
        status: {
            "description": ", ".join(named),
            "content": {
                CONTENT_TYPE: {
                    "schema": ref("Problem"),
                    "examples": {
                        code: {"$ref": f"#/components/examples/problem_{code}"} for code in named
                    },
                }
            },
        }
        for status, named in sorted(by_status.items())
    }


def stream(description: str, **events: str) -> Schema:
    """Return a response that is a stream of server-sent events.

    Args:
        description: what it tells.
        events: the names of the schemas of their data, by the events' names.

    """
    event = {
        "description": "One event: its name, its id (where to resume) and its data, a JSON text.",
        "properties": {
            "event": {"type": "string", "enum": list(events)},
            "id": {"type": "string", "pattern": POSITION_PATTERN},
            "data": {"type": "string", "contentMediaType": JSON},
        },
    }
    made = answer(description, event, STREAM)
    made["content"][STREAM]["x-sse-events"] = {name: ref(kind) for name, kind in events.items()}
    return made


def headers(*names: str) -> Schema:
    """Return references to headers of `HEADERS`."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def parameter(name: str) -> Schema:
    """Return a reference to a parameter of `PARAMETERS`."""
    return {"$ref": f"#/components/parameters/{name}"}


def parameters(*names: str) -> list[Schema]:
    """Return references to parameters of `PARAMETERS`."""
    return [parameter(name) for name in names]


def header(description: str, **schema: Any) -> Schema:
    """Return a response header; a text unless the schema says otherwise."""
    return {"description": description, "schema": {"type": "string", **schema}}


def given(place: str, name: str, description: str, **schema: Any) -> Schema:
    """Return a parameter; a text unless the schema says otherwise.

    Args:
        place: ``path``, ``query`` or ``header``.
        name: as the client writes it.
        description: what it does.
        schema: of the value; an ``example`` stands for it in the samples.

    """
    example = schema.pop("example", None)
    made: Schema = {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": {"type": "string", **schema},
    }
    return made if example is None else {**made, "example": example}


HEADERS: Final[Mapping[str, Schema]] = {
    "Location": header("The task's address", format="uri-reference"),
    "Retry-After": header("Seconds after which to look, or to try, again", type="integer"),
    "ETag": header("The record's version in quotes"),
    "Preference-Applied": header("How long the answer could be held, as wait=N"),
    "Idempotency-Replayed": header("true: an earlier request had made the task"),
}

PARAMETERS: Final[Mapping[str, Schema]] = {
    "task_id": given(
        "path",
        "task_id",
        "What a submit answered.",
        pattern=ID_PATTERN,
        example="t_01JZ8Q4T5M7W9X2Y3Z6A8B0C1D",
    ),
    "node_name": given("path", "name", "A node's name.", example="echo"),
    "code": given(
        "path", "code", "An error code.", enum=list(CATALOGUE), example="invalid_request"
    ),
    "idempotency_key": given(
        "header",
        "Idempotency-Key",
        "Your name for this request: sent again, it makes no second task. Kept as long as its "
        "task. Bare or as a quoted string.",
        pattern=r'^([!#-~][!-~]{0,254}|"([!#-\[\]-~]|\\["\\])([ !#-\[\]-~]|\\["\\]){0,254}")$',
    ),
    "prefer": given("header", "Prefer", "wait=N holds the answer up to N seconds, at most 30."),
    "wait": given(
        "query",
        "wait",
        "Seconds, as in Prefer; more than 30 count as 30.",
        type="number",
        minimum=0,
    ),
    "cursor": given(
        "query",
        "cursor",
        "What the page before has answered as next.",
        minLength=1,
        maxLength=128,
    ),
    "if_none_match": given("header", "If-None-Match", "The ETag of the record you have."),
    "accept": given("header", "Accept", "text/event-stream gives the events instead."),
    "format": given(
        "query",
        "format",
        "node_state gives {id, status, timestamp}.",
        enum=["record", "node_state"],
        default="record",
    ),
    "last_event_id": given(
        "header",
        "Last-Event-ID",
        "Resume after the event of this id.",
        pattern=f"^({POSITION_PATTERN[1:-1]})?$",
    ),
    "after": given("query", "after", "The same, in the address.", pattern=POSITION_PATTERN),
    "traceparent": given("header", "traceparent", "Your trace (W3C); made when absent."),
    "request_id": given(
        "header",
        "X-Request-ID",
        "Echoed; made when absent or not 1 to 64 letters, digits, dots, dashes, underscores.",
    ),
}
