"""The simulated model, inventing: values that fit a JSON schema, drawn from a seed. Pure.

Knows what schemas for models use: types, enums, constants, references within the schema, the
first of several alternatives, and bounds.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

MAX_DEPTH = 12
MAX_ITEMS = 20

_WORDS = ("queue", "worker", "task", "lease", "模型", "naïve", "retry", "🚀")


def sample(schema: Any, chance: random.Random) -> Any:
    """Return a value that fits a schema, as far as the schema is of the simple kind."""
    root = schema if isinstance(schema, dict) else {}
    return _value(root, root, chance, depth=0)


def _value(schema: Any, root: dict[str, Any], chance: random.Random, *, depth: int) -> Any:
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return None
    if "const" in schema or schema.get("enum"):
        return schema["const"] if "const" in schema else chance.choice(schema["enum"])
    inner = _instead(schema, root)
    if inner is not None:
        return _value(inner, root, chance, depth=depth + 1)
    kind = _type(schema)
    if kind == "object":
        inside = schema.get("properties") or {}
        wanted = schema.get("required") or list(inside)
        return {name: _value(inside.get(name), root, chance, depth=depth + 1) for name in wanted}
    if kind == "array":
        items = schema.get("items", {"type": "string"})
        return [_value(items, root, chance, depth=depth + 1) for _ in range(_length(schema))]
    return _simple(kind, schema, chance)


def _simple(kind: str, schema: dict[str, Any], chance: random.Random) -> Any:
    match kind:
        case "integer" | "number":
            return _number(schema, chance, whole=kind == "integer")
        case "boolean":
            return chance.choice((True, False))
        case "null":
            return None
    return _text(schema, chance)


def _length(schema: dict[str, Any]) -> int:
    count = max(_whole(schema.get("minItems"), 0), 2)
    return min(count, _whole(schema.get("maxItems"), MAX_ITEMS), MAX_ITEMS)


def _instead(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    reference = schema.get("$ref")
    if isinstance(reference, str):
        found: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            found = found.get(step) if isinstance(found, dict) else None
        return found
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    return None


def _type(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        kind = kind[0] if kind else None
    if kind is None and "properties" in schema:
        return "object"
    return kind if isinstance(kind, str) else "string"


def _number(schema: dict[str, Any], chance: random.Random, *, whole: bool) -> float:
    low = float(schema.get("minimum", schema.get("exclusiveMinimum", 0)))
    high = float(schema.get("maximum", schema.get("exclusiveMaximum", low + 100)))
    if whole:
        step = 1 if "exclusiveMinimum" in schema else 0
        return int(min(max(low + step, chance.randint(int(low), int(max(low, high)))), high))
    return round((low + high) / 2, 3)


def _text(schema: dict[str, Any], chance: random.Random) -> str:
    least, most = _whole(schema.get("minLength"), 1), _whole(schema.get("maxLength"), 1_000)
    text = chance.choice(_WORDS)
    while len(text) < min(least, 1_000):
        text += " " + chance.choice(_WORDS)
    return text[:most]


def _whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
