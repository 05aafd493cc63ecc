"""Step 5, expose: the few short calls that Dify can import as custom tools, without a plugin.

Dify reads less than OpenAPI: the first server's address, each operation's name, description and
parameters, and the members of a JSON body, which must stand in the operation itself. It takes
``type: object`` as text that is JSON. A call of such a tool may take 60 seconds.
"""

from __future__ import annotations

from typing import Any, Final

from async_nodes.access.openapi.shapes import Schema
from async_nodes.version import __version__

LONGEST_WAIT: Final = 30
_ID: Final[Schema] = {
    "name": "task_id",
    "in": "path",
    "required": True,
    "description": "The task's id, as submit_task has given it.",
    "schema": {"type": "string"},
}
_WAIT: Final[Schema] = {
    "name": "wait",
    "in": "query",
    "required": False,
    "description": f"Seconds to wait for the end, at most {LONGEST_WAIT}; what has not ended by "
    "then is answered as it is.",
    "schema": {"type": "integer", "minimum": 0, "maximum": LONGEST_WAIT, "default": 0},
}
_SUBMIT: Final[Schema] = {
    "type": "object",
    "required": ["node"],
    "properties": {
        "node": {"type": "string", "description": "What to run; list_nodes tells what there is."},
        "inputs": {
            "type": "object",
            "description": 'The node\'s inputs, a JSON object like {"text": "hello"}.',
        },
        "priority": {
            "type": "integer",
            "minimum": 0,
            "maximum": 9,
            "default": 5,
            "description": "0 is the most urgent.",
        },
    },
}


def document(server: str) -> Schema:
    """Return the document.

    Args:
        server: where the service is reached, without a slash at its end.

    """
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "async_nodes",
            "version": __version__,
            "description": "Run slow work outside of Dify: submit it, go on, fetch the result.",
        },
        "servers": [{"url": server}],
        "security": [{"key": []}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "paths": _paths(),
    }


def _paths() -> Schema:
    body = {"required": True, "content": {"application/json": {"schema": _SUBMIT}}}
    return {
        "/v1/tasks": {
            "post": _operation(
                "submit_task",
                "Submit a task. Answers with its task_id at once, or with the result where it is "
                "given time to wait and the task ends in it.",
                [_WAIT],
                requestBody=body,
            )
        },
        "/v1/tasks/{task_id}": {
            "get": _operation(
                "get_task",
                "Tell how far a task is: its state, and its output once that is Succeeded.",
                [_ID, _WAIT],
            )
        },
        "/v1/tasks/{task_id}/result": {
            "get": _operation(
                "get_result",
                "Give the output of a task that has succeeded, also where it is large.",
                [_ID, _WAIT],
            )
        },
        "/v1/tasks/{task_id}/cancel": {
            "post": _operation("cancel_task", "Cancel a task that has not ended.", [_ID])
        },
        "/v1/nodes": {"get": _operation("list_nodes", "List what can be run.", [])},
    }


def _operation(name: str, description: str, parameters: list[Schema], **more: Any) -> Schema:
    return {
        "operationId": name,
        "summary": description.partition(".")[0],
        "description": description,
        "parameters": parameters,
        **more,
        "responses": {"default": {"description": "JSON; an error says what to do"}},
    }
