"""Nodes that give what is hard to give: as a result, as a chunk, to the log, in an error."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from async_nodes import NodeContext, TerminalError, node


class Colour(enum.Enum):
    """A choice."""

    RED = "red"


@dataclasses.dataclass
class Point:
    """A place."""

    x: int = 1


def nested(depth: int) -> list[Any]:
    """Return lists in each other, so many."""
    found: list[Any] = []
    for _ in range(depth - 1):
        found = [found]
    return found


def circle() -> list[Any]:
    """Return a list that holds itself."""
    found: list[Any] = []
    found.append(found)
    return found


VALUES: dict[str, Callable[[], Any]] = {
    "datetime": lambda: dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "decimal": lambda: decimal.Decimal("1.10"),
    "enum": lambda: Colour.RED,
    "uuid": lambda: uuid.UUID(int=7),
    "path": lambda: pathlib.PurePosixPath("/a/b"),
    "dataclass": Point,
    "tuple": lambda: (1, "a"),
    "mixed": lambda: {"deep": [nested(58)], "zero": -0.0, "null": None, "é\u2028": "\U0001f469"},
    "set": lambda: {1},
    "bytes": lambda: b"\xff",
    "object": object,
    "iterator": lambda: iter([1, 2]),
    "tuple-keys": lambda: {(1, 2): 3},
    "int-keys": lambda: {1: 2},
    "nan": lambda: {"a": [float("nan")]},
    "inf": lambda: float("-inf"),
    "decimal-nan": lambda: decimal.Decimal("NaN"),
    "surrogate": lambda: {"a": "\ud800"},
    "long-number": lambda: 10**5000,
    "too-deep": lambda: nested(65),
    "bottomless": lambda: nested(200_000),
    "circle": circle,
    "too-large": lambda: "x" * ((32 << 20) + 1),
}
CONVERTED: dict[str, Any] = {
    "datetime": "2026-01-02T03:04:05Z",
    "decimal": "1.10",
    "enum": "red",
    "uuid": "00000000-0000-0000-0000-000000000007",
    "path": "/a/b",
    "dataclass": {"x": 1},
    "tuple": [1, "a"],
    "mixed": {"deep": [nested(58)], "zero": -0.0, "null": None, "é\u2028": "\U0001f469"},
}


@node("values.io")
def value_io(kind: str) -> Any:
    """Return a value from a greenlet."""
    return VALUES[kind]()


@node("values.cpu", kind="cpu")
def value_cpu(kind: str) -> Any:
    """Return a value from a process."""
    return VALUES[kind]()


@node("values.async")
async def value_async(kind: str) -> Any:
    """Return a value from a coroutine."""
    return VALUES[kind]()


@node("values.stream")
def value_stream(kind: str) -> Iterator[Any]:
    """Send a value as a chunk."""
    yield "before"
    yield {"value": VALUES[kind]()}


@node("values.stream_async")
async def value_stream_async(kind: str) -> AsyncIterator[Any]:
    """Send a value as a chunk of a coroutine."""
    yield "before"
    yield {"value": VALUES[kind]()}


@node("values.told")
def value_told(ctx: NodeContext, kind: str) -> str:
    """Put a value into the log, the progress and the error."""
    ctx.log.info("a value: %r", VALUES[kind]())
    ctx.progress(0.5, repr(VALUES[kind]())[:500])
    raise TerminalError(f"it was {VALUES[kind]()!r}"[:500])
