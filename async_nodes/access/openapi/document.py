"""Step 5, expose: the OpenAPI document as a whole, from one module per area of routes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from async_nodes.access.openapi import (
    breakers,
    dead_letters,
    ended,
    feed,
    files,
    logs,
    many,
    ops,
    queues,
    schedules,
    tasks,
    usage,
)
from async_nodes.access.openapi.pieces import HEADERS, METHODS, PARAMETERS
from async_nodes.access.openapi.samples import samples
from async_nodes.access.openapi.shapes import Schema
from async_nodes.access.problems import CONTENT_TYPE
from async_nodes.access.problems import document as problem
from async_nodes.core.errors import CATALOGUE, AsyncNodesError
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


AREAS: Final[Mapping[str, Area]] = {
    "Tasks": tasks,
    "Ended tasks": ended,
    "Many tasks": many,
    "Events of many tasks": feed,
    "Logs": logs,
    "Schedules": schedules,
    "Dead letters": dead_letters,
    "Usage": usage,
    "Queues and workers": queues,
    "Breakers": breakers,
    "Files": files,
    "The service": ops,
}
"""By title, in the order in which they are shown."""


def document(nodes: Iterable[str]) -> Schema:
    """Return the document.

    Args:
        nodes: names to offer as examples.

    """
    components: Schema = {
        "schemas": {
            name: schema for area in AREAS.values() for name, schema in area.SCHEMAS.items()
        },
        "parameters": dict(PARAMETERS),
        "headers": dict(HEADERS),
        "examples": {},
        "securitySchemes": {
            "key": {
                "type": "http",
                "scheme": "bearer",
                "description": "Needed where ASYNC_NODES_API_KEY is set or ASYNC_NODES_API_KEYS is "
                "true. Reading needs the scope read, tasks, files and schedules run, queues, nodes "
                "and dead letters admin, /metrics metrics.",
            }
        },
    }
    paths = _paths(list(nodes), components)
    components["examples"] = {f"problem_{code}": _problem(code) for code in _told(paths)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "async_nodes",
            "version": __version__,
            "summary": "Run the slow nodes of an LLM workflow outside the request that asked.",
            "description": "Unknown members of answers are to be ignored; unknown members of "
            "requests are refused. Every error is a problem document (RFC 9457).",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "tags": [{"name": title} for title in AREAS],
        "paths": paths,
        "components": components,
        "security": [{"key": []}, {}],
        "x-problem-codes": {
            kind.code: {"status": kind.status, "retryable": kind.retryable, "title": kind.title}
            for kind in CATALOGUE.values()
        },
    }


def resolver(components: Schema) -> Callable[[Schema], Schema]:
    """Return a function that gives what a piece stands for: itself, or what it refers to."""

    def resolve(piece: Schema) -> Schema:
        if "$ref" not in piece:
            return piece
        _, _, kind, name = piece["$ref"].split("/")
        found: Schema = components[kind][name]
        return found

    return resolve


def _paths(nodes: list[str], components: Schema) -> Schema:
    made: Schema = {}
    resolve = resolver(components)
    for title, area in AREAS.items():
        for path, item in area.paths(nodes).items():
            there = made.setdefault(path, {})
            there.update(item)
            for method in METHODS & item.keys():
                operation = there[method] = dict(item[method])
                operation["tags"] = [title]
                operation.setdefault("x-codeSamples", samples(path, method, there, resolve))
                operation.pop("x-sample", None)
    return made


def _told(paths: Schema) -> list[str]:
    """Return the codes that some operation may answer, in the catalogue's order."""
    told = {
        code
        for item in paths.values()
        for method in METHODS & item.keys()
        for response in item[method]["responses"].values()
        for code in response.get("content", {}).get(CONTENT_TYPE, {}).get("examples", ())
    }
    return [code for code in CATALOGUE if code in told]


def _problem(code: str) -> Schema:
    """Return an example of a problem: what the catalogue alone says."""
    kind = CATALOGUE[code]
    return {"summary": kind.title, "value": problem(AsyncNodesError(code))}
