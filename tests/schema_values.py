"""Values that a JSON schema admits, as strategies: as much of the schema language as ours uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any

from hypothesis import strategies as st

Schema = Mapping[str, Any]
Resolve = Callable[[dict[str, Any]], dict[str, Any]]

CHARACTERS = st.characters(exclude_categories=("Cs",))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | NUMBERS | st.text(CHARACTERS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(CHARACTERS, max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
"""Any JSON value."""


def values(schema: Schema, resolve: Resolve) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that a schema admits.

    Args:
        schema: what is to be admitted.
        resolve: gives what a reference stands for.

    """
    if "$ref" in schema:
        more = {name: value for name, value in schema.items() if name != "$ref"}
        return values({**resolve(dict(schema)), **more}, resolve)
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for together in ("oneOf", "anyOf"):
        if together in schema and "type" not in schema:
            return st.one_of(*(values(choice, resolve) for choice in schema[together]))
    kinds = schema.get("type", ())
    if isinstance(kinds, str):
        kinds = (kinds,)
    return st.one_of(*(_of_kind(kind, schema, resolve) for kind in kinds)) if kinds else JSON


def _of_kind(kind: str, schema: Schema, resolve: Resolve) -> st.SearchStrategy[Any]:
    if kind == "object":
        return _objects(schema, resolve)
    if kind == "array":
        return st.lists(
            values(schema.get("items", {}), resolve),
            min_size=schema.get("minItems", 0),
            max_size=min(schema.get("maxItems", 3), 3),
        )
    if kind == "string":
        return _texts(schema)
    if kind == "integer":
        return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31))
    if kind == "number":
        least = schema.get("minimum", schema.get("exclusiveMinimum"))
        return st.floats(
            least,
            schema.get("maximum"),
            exclude_min="exclusiveMinimum" in schema,
            allow_nan=False,
            allow_infinity=False,
        ).filter(math.isfinite)
    return st.booleans() if kind == "boolean" else st.none()


def _texts(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].removesuffix("$") + r"\Z")
    if schema.get("format") == "date-time":
        return st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat())
    if schema.get("format") == "date":
        return st.dates().map(lambda day: day.isoformat())
    least, most = schema.get("minLength", 0), schema.get("maxLength", 40)
    return st.text(CHARACTERS, min_size=least, max_size=max(least, min(most, 40)))


def _objects(schema: Schema, resolve: Resolve) -> st.SearchStrategy[dict[str, Any]]:
    properties = {
        name: values(member, resolve) for name, member in schema.get("properties", {}).items()
    }
    required = set(schema.get("required", ()))
    known = st.fixed_dictionaries(
        {name: found for name, found in properties.items() if name in required},
        optional={name: found for name, found in properties.items() if name not in required},
    )
    more = schema.get("additionalProperties", {})
    if more is False or properties:
        return known
    return st.dictionaries(st.text(CHARACTERS, max_size=8), values(more, resolve), max_size=3)
