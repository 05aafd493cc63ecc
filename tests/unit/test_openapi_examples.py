"""Every example of the OpenAPI document is one that its own schema admits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs
import pytest

from async_nodes.access.openapi.document import document, resolver
from async_nodes.access.openapi.pieces import METHODS, STREAM
from async_nodes.nodes.registry import registry

DOCUMENT = document(registry(()))
COMPONENTS = DOCUMENT["components"]
resolve = resolver(COMPONENTS)

Example = tuple[str, Mapping[str, Any], Any]
"""Where an example stands, the schema it belongs to, its value."""


def in_contents(where: str, contents: Mapping[str, Any]) -> Iterator[Example]:
    """Yield the examples of bodies; that of a stream is a text, whose events are no JSON yet."""
    for media_type, content in contents.items():
        if media_type == STREAM:
            continue
        schema = content.get("schema", {})
        if "example" in content:
            yield f"{where} {media_type}", schema, content["example"]
        for name, example in content.get("examples", {}).items():
            yield f"{where} {media_type} {name}", schema, resolve(example)["value"]


def in_operations() -> Iterator[Example]:
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS & item.keys():
            operation = item[method]
            where = operation["operationId"]
            for piece in (*item.get("parameters", ()), *operation.get("parameters", ())):
                given = resolve(piece)
                if "example" in given:
                    yield f"{where} {path} {given['name']}", given["schema"], given["example"]
            body = operation.get("requestBody", {})
            yield from in_contents(f"{where} body", body.get("content", {}))
            for status, response in operation["responses"].items():
                contents = resolve(response).get("content", {})
                yield from in_contents(f"{where} {status}", contents)


def in_schemas() -> Iterator[Example]:
    for name, schema in COMPONENTS["schemas"].items():
        for example in schema.get("examples", ()):
            yield name, schema, example


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return what a schema of the document finds wrong with a value."""
    whole = {"components": COMPONENTS, "allOf": [schema]}
    checker = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    return [f"{error.instance_path}: {error.message}" for error in checker.iter_errors(value)]


def test_every_example_fits_its_schema() -> None:
    """Of parameters, bodies, answers, problems and schemas."""
    examples = [*in_operations(), *in_schemas()]
    wrong = {where: found for where, schema, value in examples if (found := faults(schema, value))}
    assert len(examples) > len(DOCUMENT["paths"])
    assert wrong == {}


@pytest.mark.parametrize("name", sorted(COMPONENTS["schemas"]))
def test_a_schema_is_one(name: str) -> None:
    """The dialect of OpenAPI 3.1 is JSON schema of 2020-12, and each schema obeys it."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}

    assert jsonschema_rs.meta.is_valid({**dialect, **COMPONENTS["schemas"][name]})
