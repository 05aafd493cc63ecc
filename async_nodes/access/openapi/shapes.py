"""Step 5, expose: what the schemas of the OpenAPI document are built of.

Small functions that return a piece of JSON schema, and the pieces that many schemas share. Knows
the catalogue of errors and the state machine, no route.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from async_nodes.core.states import NodeState, Outcome, Reason

Schema = dict[str, Any]

ID_PATTERN: Final = "^t_[0-9A-HJKMNP-TV-Z]{26}$"
POSITION_PATTERN: Final = "^[0-9]{1,10}-[0-9]{1,10}$"


def ref(name: str) -> Schema:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def members(properties: Mapping[str, Any], **more: Any) -> Schema:
    """Return the schema of an object that has all these members."""
    return {"type": "object", "required": list(properties), "properties": properties, **more}


def array(items: Schema, **more: Any) -> Schema:
    """Return the schema of an array."""
    return {"type": "array", "items": items, **more}


def nullable(kind: str, **more: Any) -> Schema:
    """Return the schema of a value of a simple type that may be null."""
    return {"type": [kind, "null"], **more}


def or_null(name: str) -> Schema:
    """Return a reference to a schema of the document, where null may stand too."""
    return {"oneOf": [ref(name), {"type": "null"}]}


TEXT: Final[Schema] = {"type": "string"}
NODE_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 128}
ID: Final[Schema] = {"type": "string", "pattern": ID_PATTERN}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
VERSION: Final[Schema] = {
    "type": "integer",
    "minimum": 1,
    "description": "Rises with every change of the record; also its ETag.",
}
STATE: Final[Schema] = {"type": "string", "enum": [state.value for state in NodeState]}
REASON: Final[Schema] = {
    "type": ["string", "null"],
    "enum": [*(reason.value for reason in Reason if reason.value), None],
    "description": "Why the task is in this state, where the state alone does not tell.",
}
OUTCOME: Final[Schema] = {"type": "string", "enum": [outcome.value for outcome in Outcome]}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
TIME_OR_NULL: Final[Schema] = nullable("string", format="date-time")
LINKS: Final[Schema] = members(
    {
        name: {"type": "string", "format": "uri-reference"}
        for name in ("self", "events", "result", "logs", "cancel")
    }
)
FAULTS: Final[Schema] = array(
    members({"pointer": TEXT, "detail": TEXT}),
    description="Every fault of the request, each with the JSON pointer of its place.",
)
