"""Step 5, expose: the OpenAPI document as a whole, from one module per area of routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from async_nodes.access.openapi import dead_letters, feed, files, logs, ops, tasks, usage
from async_nodes.access.openapi.pieces import HEADERS, PARAMETERS
from async_nodes.access.openapi.shapes import Schema
from async_nodes.core.errors import CATALOGUE
from async_nodes.version import __version__


class Area(Protocol):
    """What a module of an area has.

    Attributes:
        SCHEMAS: of its requests and answers, by name.

    """

    @property
    def SCHEMAS(self) -> Mapping[str, Schema]:  # noqa: N802 - a constant of a module
        """Return its schemas by name."""

    def paths(self, nodes: Sequence[str], /) -> Schema:
        """Return its paths; an area may add methods to the path of another."""


AREAS: Final[tuple[Area, ...]] = (
    tasks,
    feed,
    logs,
    dead_letters,
    usage,
    files,
    ops,
)
"""In the order in which they are shown."""


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
            "schemas": {name: schema for area in AREAS for name, schema in area.SCHEMAS.items()},
            "parameters": dict(PARAMETERS),
            "headers": dict(HEADERS),
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
    made: Schema = {}
    for area in AREAS:
        for path, item in area.paths(nodes).items():
            made.setdefault(path, {}).update(item)
    return made
