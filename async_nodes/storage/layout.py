"""The layout of a task in Redis, described once for Python and for the scripts.

A task is one string:

    control block │ private │ JSON head (fixed width) │ JSON tail │ attempts and payloads

* The **control block** is packed binary of fixed width: everything the scripts decide on. It is
  read with one GETRANGE and changed in place.
* **Private** is what a worker needs and a client must not see (raw inputs of a redacting node,
  retry policy, scope); written once.
* From `json_at` on, the string *is* the public document, ready to be served: a head that the
  scripts rewrite in place (padded with spaces, which JSON allows), an immutable tail with the
  inputs as they arrived, and at the end the attempts, progress, error, usage and output.

A poll is therefore one GET and one slice, with no decoding anywhere.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from async_nodes.core.states import NodeState, Reason

SCHEMA = 2
"""Number of this layout; a process reads N and N-1, and may be told to write N-1."""

SCHEMAS = (SCHEMA - 1, SCHEMA)
INLINE_OUTPUT = 8_192
"""Bytes of an output that is shown in the record; a larger one is kept under a key of its own."""

STATES = tuple(NodeState)
REASONS = tuple(Reason)
HEAD_WIDTH = 448
"""Bytes of the JSON head; the longest possible head is 418, checked by a test."""


class Field(NamedTuple):
    """One column of the control block: name, format for the scripts, format for Python."""

    name: str
    lua: str
    python: str


_BYTE, _SHORT, _INT, _TIME = ("B", "B"), ("H", "H"), ("I4", "I"), ("d", "d")

FIELDS: tuple[Field, ...] = (
    Field("schema", *_BYTE),
    Field("state", *_BYTE),  # index into STATES
    Field("reason", *_BYTE),  # index into REASONS
    Field("list", *_BYTE),  # index into priority.LISTS
    Field("cancel", *_BYTE),  # 1 once a cancel was asked for
    Field("queued", *_BYTE),  # 1 while a message is out, 2 while parked at the gate, 3 while held
    Field("stream", *_BYTE),  # 1 once the event stream exists
    Field("dirty", *_BYTE),  # 1 while progress or error are not null
    Field("version", *_INT),
    Field("seq", *_INT),  # events within this version
    Field("attempt", *_INT),
    Field("spent", *_INT),
    Field("losses", *_INT),
    Field("deaths", *_SHORT),
    Field("redispatched", *_SHORT),  # since the last claim
    Field("max_dispatches", *_SHORT),
    Field("dispatch", *_INT),
    Field("queued_version", *_INT),
    Field("started_version", *_INT),
    Field("timeout", *_INT),  # ms per attempt
    Field("created_at", *_TIME),
    Field("queued_at", *_TIME),
    Field("started_at", *_TIME),
    Field("first_started_at", *_TIME),
    Field("finished_at", *_TIME),
    Field("next_attempt_at", *_TIME),
    Field("deadline", *_TIME),
    Field("expires_at", *_TIME),
    Field("ttl", *_TIME),  # ms to keep after the end
    Field("output_bytes", *_INT),
    Field("stream_bytes", *_INT),
    Field("chunks", *_INT),  # number of the last chunk of this attempt
    Field("trimmed_version", *_INT),  # the last chunk that was dropped from the stream
    Field("trimmed_seq", *_INT),
    Field("json_at", *_INT),
    Field("inputs_at", *_INT),
    Field("inputs_len", *_INT),  # 0: the inputs are in the private part
    Field("attempts_end", *_INT),  # where the next attempt is appended
    Field("size", *_INT),
    Field("fence", "c16", "16s"),
    Field("worker", "c40", "40s"),
    Field("idempotency", "c32", "32s"),
    Field("tenant", "c32", "32s"),
    # Since schema 2
    Field("apart", *_BYTE),  # 1 once the output is kept under a key of its own
    Field("logs", *_INT),  # number of the last log line of this attempt
    Field("log_bytes", *_INT),
)
ADDED = {2: 3}
"""How many columns at the end came with a schema."""


def fields_of(schema: int) -> tuple[Field, ...]:
    """Return the columns of a record of a schema: those of the next one without the last few."""
    return FIELDS if schema == SCHEMA else FIELDS[: -ADDED[schema + 1]]


def lua_format(schema: int) -> str:
    """Return the format of a schema's control block for the scripts."""
    return "<" + "".join(field.lua for field in fields_of(schema))


_STRUCTS = {
    schema: struct.Struct("<" + "".join(field.python for field in fields_of(schema)))
    for schema in SCHEMAS
}
_MISSING = {schema: (0,) * (len(FIELDS) - len(fields_of(schema))) for schema in SCHEMAS}
CONTROL_SIZES = {schema: control.size for schema, control in _STRUCTS.items()}
CONTROL_SIZE = CONTROL_SIZES[SCHEMA]
_INDEX = {field.name: index for index, field in enumerate(FIELDS)}
_JSON_AT, _STATE = _INDEX["json_at"], _INDEX["state"]


@dataclass(frozen=True, slots=True)
class Document:
    """Hold one task as stored: `control` by column name on demand, `json` ready to be served."""

    raw: bytes
    columns: tuple[Any, ...]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.columns[_INDEX[name]]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def state(self) -> NodeState:
        """Return the task's state."""
        code: int = self.columns[_STATE]
        return STATES[code]

    @property
    def why(self) -> Reason:
        """Return the reason beside the state."""
        code: int = self.columns[_INDEX["reason"]]
        return REASONS[code]

    @property
    def tenant(self) -> str:
        """Return the tenant the task belongs to."""
        return text(self.columns[_INDEX["tenant"]])

    @property
    def etag(self) -> str:
        """Return the strong entity tag: the version in quotes."""
        return f'"{self.version}"'

    @property
    def json(self) -> bytes:
        """Return the public document."""
        return self.raw[self.columns[_JSON_AT] :]

    @property
    def private(self) -> bytes:
        """Return the worker's part."""
        return self.raw[CONTROL_SIZES[self.raw[0]] : self.columns[_JSON_AT]]

    @property
    def inline_output(self) -> bytes:
        """Return the output's JSON as far as it stands in the record: nothing if it is apart."""
        size = 0 if self.apart else self.output_bytes
        return self.json.rstrip(b" ")[-size - 1 : -1] if size else b""


def parse(raw: bytes) -> Document:
    """Return the document in a stored string.

    Raises:
        ValueError: the string is too short or of a schema this process cannot read.

    """
    schema = _schema_of(raw)
    return Document(raw, _STRUCTS[schema].unpack_from(raw) + _MISSING[schema])


def _schema_of(raw: bytes) -> int:
    schema = raw[0] if raw else -1
    if len(raw) < CONTROL_SIZES.get(schema, len(raw) + 1):
        message = f"a task record of {len(raw)} bytes and schema {raw[:1]!r} cannot be read"
        raise ValueError(message)
    return schema


class Glance(NamedTuple):
    """What answering a read takes: version, tenant, and the document ready to be served."""

    version: int
    tenant: str
    json: bytes


def glance(raw: bytes) -> Glance:
    """Return the little of a stored string that a read shows; raises what `parse` raises."""
    _schema_of(raw)
    (version,) = _NUMBER.unpack_from(raw, AT["version"])
    (json_at,) = _NUMBER.unpack_from(raw, AT["json_at"])
    tenant = raw[AT["tenant"] : AT["tenant"] + 32]
    return Glance(version, text(tenant), raw[json_at:])


def state_of(raw: bytes) -> NodeState:
    """Return the state in a stored string."""
    return STATES[raw[AT["state"]]]


AT = {
    field.name: struct.calcsize("<" + "".join(before.python for before in FIELDS[:index]))
    for index, field in enumerate(FIELDS)
}
"""Where each column begins in the control block."""

_NUMBER = struct.Struct("<I")


def control(**columns: Any) -> bytes:
    """Return a control block of this schema: numbers that are not given are 0, texts blank."""
    values = [columns.get(field.name, b"" if field.python.endswith("s") else 0) for field in FIELDS]
    texts = [value.ljust(40) if isinstance(value, bytes) else value for value in values]
    return _STRUCTS[SCHEMA].pack(*texts)


def text(column: bytes) -> str:
    """Return a text column without its padding."""
    return column.rstrip(b" \0").decode()
