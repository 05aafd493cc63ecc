"""Step 5, expose: what the pages of the documentation show, from the OpenAPI document alone.

Pure functions over the document; knows neither HTML nor a language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from async_nodes.access.openapi.document import resolver
from async_nodes.access.openapi.pieces import METHODS
from async_nodes.access.openapi.samples import Resolve
from async_nodes.access.openapi.shapes import Schema
from async_nodes.access.problems import CONTENT_TYPE

MAX_DEPTH: Final = 3
_ORDER: Final = ("get", "head", "post", "put", "patch", "delete")
LIMITS: Final[Mapping[str, str]] = {
    "minimum": "≥",
    "maximum": "≤",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "minItems": "items ≥",
    "maxItems": "items ≤",
    "default": "=",
    "pattern": "",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Describe one line of a table of fields.

    Attributes:
        name: as the client writes it.
        kind: its type, in words.
        text: what it means, in English.
        required: whether it must be there.
        limits: its bounds, each with what it bounds.
        values: the values that it may have, where they are few.
        place: where a parameter stands.
        depth: how far it is nested.

    """

    name: str
    kind: str
    text: str = ""
    required: bool = False
    limits: tuple[tuple[str, str], ...] = ()
    values: tuple[str, ...] = ()
    place: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Describe one kind of event of a stream."""

    name: str
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Content:
    """Describe a body in one media type.

    Attributes:
        media_type: of the body.
        schema: its type in words.
        rows: its fields.
        events: of a stream.
        examples: their titles and texts.

    """

    media_type: str
    schema: str
    rows: list[Row]
    events: list[Event]
    examples: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Describe one status."""

    status: str
    description: str
    headers: list[Row]
    content: list[Content]


@dataclass(frozen=True, slots=True)
class Operation:
    """Describe one operation, or as much of it as a list of them shows.

    Attributes:
        name: its `operationId`.
        errors: codes with their status.
        open: whether it needs no key at all.

    """

    name: str
    method: str
    path: str
    area: str
    summary: str
    description: str = ""
    open: bool = False
    samples: list[Mapping[str, str]] = field(default_factory=list)
    parameters: list[Row] = field(default_factory=list)
    request: list[Content] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    errors: list[tuple[str, str]] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """Return the anchor of its area."""
        return anchor(self.area)


@dataclass(frozen=True, slots=True)
class Area:
    """List the operations of an area."""

    title: str
    operations: list[Operation]

    @property
    def anchor(self) -> str:
        """Return where the list stands on its page."""
        return anchor(self.title)


def anchor(title: str) -> str:
    """Return an anchor for a title."""
    return re.sub(r"\W+", "-", title.lower())


def areas(document: Schema) -> list[Area]:
    """Return every operation of the document, by area."""
    view = View(document)
    titles = [tag["name"] for tag in document["tags"]]
    found = [view.operation(path, method, item) for path, method, item in each(document)]
    return [
        Area(title, [shown for shown in found if shown.area == title])
        for title in titles
        if any(shown.area == title for shown in found)
    ]


def each(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Yield path, method and path item of every operation."""
    for path, item in document["paths"].items():
        for method in sorted(METHODS & item.keys(), key=_ORDER.index):
            yield path, method, item


class View:
    """Turn pieces of a document into what is shown.

    Args:
        document: the whole of it.

    """

    def __init__(self, document: Schema) -> None:
        self.resolve: Resolve = resolver(document["components"])

    def operation(self, path: str, method: str, item: Schema) -> Operation:
        """Return one operation with everything that its page shows."""
        told = item[method]
        given = [*item.get("parameters", ()), *told.get("parameters", ())]
        asked = told.get("requestBody", {}).get("content", {})
        return Operation(
            name=told["operationId"],
            method=method,
            path=path,
            area=told["tags"][0],
            summary=told["summary"],
            description=told.get("description", ""),
            open=told.get("security") == [{}],
            samples=told["x-codeSamples"],
            parameters=[self._parameter(self.resolve(piece)) for piece in given],
            request=self._contents(asked),
            answers=list(self._answers(told["responses"])),
            errors=list(self._errors(told["responses"])),
        )

    def _parameter(self, given: Schema) -> Row:
        schema = self.resolve(given["schema"])
        return self._row(
            given["name"],
            {**schema, "description": given.get("description", "")},
            required=given.get("required", False),
            place=given["in"],
        )

    def _answers(self, responses: Schema) -> Iterator[Answer]:
        for status, piece in sorted(responses.items()):
            response = self.resolve(piece)
            content = response.get("content", {})
            if CONTENT_TYPE in content:
                continue
            yield Answer(
                status=status,
                description=response["description"],
                headers=[
                    self._header(name, header)
                    for name, header in response.get("headers", {}).items()
                ],
                content=self._contents(content),
            )

    def _header(self, name: str, piece: Schema) -> Row:
        header = self.resolve(piece)
        shown = {**self.resolve(header["schema"]), "description": header.get("description", "")}
        return self._row(name, shown)

    def _errors(self, responses: Schema) -> Iterator[tuple[str, str]]:
        for status, piece in sorted(responses.items()):
            told = self.resolve(piece).get("content", {}).get(CONTENT_TYPE, {})
            for code in told.get("examples", {}):
                yield status, code

    def _contents(self, content: Schema) -> list[Content]:
        return [
            Content(
                media_type=media_type,
                schema=self.kind(told.get("schema", {})),
                rows=list(self.rows(told.get("schema", {}))) if "x-sse-events" not in told else [],
                events=[
                    Event(name, list(self.rows(schema)))
                    for name, schema in told.get("x-sse-events", {}).items()
                ],
                examples=self._examples(told),
            )
            for media_type, told in content.items()
        ]

    def _examples(self, told: Schema) -> list[tuple[str, str]]:
        if "example" in told:
            return [("", _pretty(told["example"]))]
        if told.get("examples"):
            found = [(name, self.resolve(piece)) for name, piece in told["examples"].items()]
            return [(name, _pretty(piece["value"])) for name, piece in found]
        schema = self.resolve(told.get("schema", {}))
        choices = [schema, *map(self.resolve, schema.get("oneOf", ()))]
        return [("", _pretty(value)) for choice in choices for value in choice.get("examples", ())]

    # -- schemas -------------------------------------------------------------------------------

    def rows(self, piece: Schema, depth: int = 0) -> Iterator[Row]:
        """Yield the fields of an object, those of the objects in it below each."""
        if depth > MAX_DEPTH:
            return
        schema = self._inner(piece)
        for choice in schema.get("oneOf", ()) or schema.get("anyOf", ()):
            yield from self.rows(choice, depth)
        required = schema.get("required", ())
        for name, member in schema.get("properties", {}).items():
            yield self._row(name, self._told(member), required=name in required, depth=depth)
            yield from self.rows(member, depth + 1)

    def kind(self, piece: Schema) -> str:
        """Return a schema's type in words."""
        if "$ref" in piece:
            return str(piece["$ref"].rpartition("/")[2])
        for together in ("oneOf", "anyOf"):
            if together in piece:
                return " | ".join(self.kind(choice) for choice in piece[together])
        if "const" in piece:
            return json.dumps(piece["const"])
        kind = piece.get("type", "")
        if kind == "array":
            return f"[{self.kind(piece.get('items', {})) or '…'}]"
        words = " | ".join(kind) if isinstance(kind, list) else str(kind)
        return f"{words} ({piece['format']})" if "format" in piece else words

    def _inner(self, piece: Schema) -> Schema:
        """Return the schema that a reference or an array is about."""
        schema = self.resolve(piece)
        if schema.get("type") == "array":
            return self.resolve(schema.get("items", {}))
        return schema

    def _told(self, member: Schema) -> Schema:
        """Return a member that says of itself what the schema it refers to says."""
        if "$ref" not in member:
            return member
        return {**member, "description": self.resolve(member).get("description", "")}

    def _row(self, name: str, schema: Schema, **more: Any) -> Row:
        limits = [
            (told, json.dumps(schema[word]) if word == "default" else str(schema[word]))
            for word, told in LIMITS.items()
            if word in schema and schema[word] is not None
        ]
        values = [*schema.get("enum", ())]
        return Row(
            name=name,
            kind=self.kind(schema),
            text=schema.get("description", ""),
            limits=tuple(limits),
            values=tuple(
                value if isinstance(value, str) else json.dumps(value) for value in values
            ),
            **more,
        )


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
