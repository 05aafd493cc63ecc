"""The scripts: Lua files with a prelude whose constants come from the one state table.

Guards, field offsets, reason texts and message templates are generated, so that a change of the
table or the layout reaches the scripts without anybody copying it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from async_nodes.core.machine import POISON_DEATHS, TABLE
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType
from async_nodes.storage import plain
from async_nodes.storage.keys import Keys
from async_nodes.storage.layout import (
    AT,
    CONTROL_SIZE,
    CONTROL_SIZES,
    FIELDS,
    HEAD_WIDTH,
    INLINE_OUTPUT,
    REASONS,
    SCHEMA,
    STATES,
    fields_of,
    lua_format,
)

STREAM_CAP = 8 << 20
"""Bytes of chunks kept per task before the older half is dropped."""

LOG_CAP = 256 << 10
"""Bytes of log lines kept per task before the older half is dropped."""

DEAD_LETTER_MS = 7 * 86_400_000
"""How long the record of a dead letter is kept at least."""

USAGE_MS = 400 * 86_400_000
"""How long a day's usage totals are kept."""

_OOM_MARK = "-- allow-oom\n"

WINDOW = 400
"""Bytes of a record that a script reads at once: with the usual private part, and little more. The
server hashes every byte that becomes a string of a script."""

SLOTS = ("%ID%", "%DISPATCH%", "%AT%", "%HARD%")
"""Places in a message template that the script fills in."""

HARD_LIMIT_GRACE_MS = 800
"""How long past its time-out a body in the CPU pool may clean up before its process is killed."""


@dataclass(frozen=True, slots=True)
class Script:
    """Hold one rendered script."""

    name: str
    text: str
    sha: str


def render(
    keys: Keys,
    messages: Mapping[str, str],
    *,
    gate_limit: int = 0,
    allow_oom: bool = False,
    stream_cap: int = STREAM_CAP,
    schema: int = SCHEMA,
) -> dict[str, Script]:
    """Return every script by name; `accept` only where every task may be accepted by it.

    Args:
        keys: the key grammar.
        messages: a complete Celery message per list of `priority.LISTS`, with `SLOTS` in it.
        gate_limit: messages that one tenant may have in one list; 0 for no limit.
        allow_oom: whether the server knows the script flag ``allow-oom`` (7.0 and later).
        stream_cap: bytes of chunks kept per task.
        schema: the layout in which new tasks are written; every one of `layout.SCHEMAS` is read.

    """
    constants = _constants(keys, messages, gate_limit, stream_cap, schema)
    prelude = _statements(_read("prelude").replace("--@constants@", constants))
    scripts = {}
    names = NAMES if not gate_limit and schema == SCHEMA else [n for n in NAMES if n != "accept"]
    for name in names:
        flags = "#!lua flags=allow-oom\n" if allow_oom and name in ALLOW_OOM else ""
        text = flags + _whole(prelude, _read(name))
        sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        scripts[name] = Script(name, text, sha)
    return scripts


@dataclass(frozen=True, slots=True)
class _Statement:
    """One top-level ``local`` of the prelude: what it defines and which words it uses."""

    names: frozenset[str]
    words: frozenset[str]
    text: str


def _statements(prelude: str) -> list[_Statement]:
    lines = [line for line in prelude.splitlines() if line and not line.startswith("--")]
    starts = [at for at, line in enumerate(lines) if line.startswith("local ")]
    found = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = "\n".join(lines[start:end])
        defined = _DEFINED.match(text)
        assert defined is not None  # noqa: S101 - every statement of the prelude is a local
        names = re.findall(r"\w+", defined["function"] or defined["names"])
        found.append(_Statement(frozenset(names), frozenset(_WORD.findall(text)), text))
    return found


def _needed(prelude: list[_Statement], body: str) -> list[str]:
    """Return the statements that a script uses, in order.

    A script makes everything in front of its rows anew at each call; what it does not use would
    cost it a third of a single row's time.
    """
    words = set(_WORD.findall(_NO_WORD.sub("", body)))
    kept: list[str] = []
    for statement in reversed(prelude):
        if statement.names & words:
            words |= statement.words
            kept.append(statement.text)
    return kept[::-1]


def _whole(prelude: list[_Statement], body: str) -> str:
    """Return a script with what it uses of the prelude: in front, or where it says ``--@prelude@``.

    What only the function around that mark uses is made when that function is called, and not at
    every call of the script.
    """
    body = _INLINED.sub(lambda found: PLAIN[found[0]], body)
    inner = _INNER.search(body)
    if inner is None:
        return "\n".join([*_needed(prelude, body), body])
    front = _needed(prelude, body.replace(inner[0], ""))
    needed = [statement for statement in _needed(prelude, body) if statement not in front]
    return "\n".join([*front, body.replace(_MARK, "\n".join(needed))])


_MARK = "--@prelude@"
_INNER = re.compile(rf"^local function \w+\(.*?{_MARK}.*?^end$", re.MULTILINE | re.DOTALL)
_NO_WORD = re.compile(r"--.*|'[^'\n]*'")
_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"local (?:function (?P<function>\w+)|(?P<names>[\w, ]+?))(?:\(| =|$)")


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("scripts", f"{name}.lua").read_text("utf-8")


NAMES = tuple(
    sorted(
        found.name.removesuffix(".lua")
        for found in resources.files(__package__).joinpath("scripts").iterdir()
        if found.name.endswith(".lua") and found.name != "prelude.lua"
    )
)
ALLOW_OOM = frozenset(name for name in NAMES if _read(name).startswith(_OOM_MARK))
"""Scripts that free more than they take: they run even when the server is out of memory."""


def _constants(
    keys: Keys, messages: Mapping[str, str], gate_limit: int, stream_cap: int, schema: int
) -> str:
    lines = [
        f"local SCHEMA, HEAD, INLINE = {schema}, {HEAD_WIDTH}, {INLINE_OUTPUT}",
        _table("SIZE", [str(CONTROL_SIZES.get(number, 0)) for number in range(SCHEMA + 1)]),
        f"local LIMIT, POISON_DEATHS, STREAM_CAP = {gate_limit}, {POISON_DEATHS}, {stream_cap}",
        f"local LOG_CAP, DEAD_LETTER_MS, USAGE_MS = {LOG_CAP}, {DEAD_LETTER_MS}, {USAGE_MS}",
        _table("STATE", [_quoted(state.value) for state in STATES]),
        _table("REASON", [_quoted(_json_reason(reason.value)) for reason in REASONS]),
        _table("LISTS", [_quoted(name) for name in LISTS]),
        _table("QUEUE", [_quoted(keys.queue(name)) for name in LISTS]),
        _table("FRESH", [_bytes(beginning) for beginning in plain.FRESH]),
        _table("CLAIMED", [_bytes(beginning) for beginning in plain.CLAIMED]),
        *(f"local S_{state.name} = {code}" for code, state in enumerate(STATES)),
        *(f"local R_{reason.name} = {code}" for code, reason in enumerate(REASONS)),
        _guards(),
        _columns(),
        _message(messages),
    ]
    return "\n".join(lines)


def _json_reason(reason: str) -> str:
    return json.dumps(reason) if reason else "null"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _bytes(raw: bytes) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in raw) + '"'


PLAIN = {
    "LAST_READ": str(plain.WINDOW - 1),
    "CONTROL_END": str(CONTROL_SIZE - 1),
    "STARTED_AT": str(AT["started_at"]),
    "DEADLINE_AT": str(AT["deadline"]),
    "PLACES_AT": str(AT["json_at"]),
    "FENCE_AT": str(AT["fence"]),
    "WORKER_END": str(AT["idempotency"]),
    "LAST_AT": str(AT["apart"]),
    "STATE_AT": str(plain.STATE_AT),
    "CREATED_AT": str(plain.CREATED_AT),
    "MOMENT": str(plain.MOMENT),
    "NO_DEADLINE": _bytes(bytes(AT["expires_at"] - AT["deadline"])),
    "NOT_DUE": _bytes(bytes(AT["expires_at"] - AT["next_attempt_at"])),
    "NO_LOG": _bytes(bytes(CONTROL_SIZE - AT["apart"])),
    "STARTED": _quoted(plain.STARTED),
    "NOT_ENDED": _quoted(plain.NOT_ENDED),
    "EXPIRES": _quoted(plain.EXPIRES),
}
"""What the scripts of a plain life know of the record, by name: put in where the name stands, so
that nothing has to be made at each call."""

_INLINED = re.compile(rf"\b(?:{'|'.join(PLAIN)})\b")


def _table(name: str, values: list[str]) -> str:
    return f"local {name} = {{[0]={', '.join(values)}}}"


def _guards() -> str:
    """Return the state table as the scripts see it: NEXT[state][event] is the target or nil."""
    rows = []
    for code, state in enumerate(STATES):
        targets = (
            f"{event.name}={STATES.index(TABLE[state, event].target)}"
            for event in EventType
            if (state, event) in TABLE
        )
        rows.append(f"[{code}]={{{', '.join(targets)}}}")
    return f"local NEXT = {{{', '.join(rows)}}}"


def _columns() -> str:
    """Return the functions that read and pack the control block, of this schema and the last."""
    old = SCHEMA - 1
    return f"""
local function read(id)
  local raw = redis.call('GETRANGE', KEYS[1] .. 't:' .. id, '0', '{WINDOW - 1}')
  local schema = string.byte(raw)
  if not schema or #raw < (SIZE[schema] or 0) then return nil end
  local r
  if schema == {SCHEMA} then
    {_unpacked(SCHEMA)}
  elseif schema == {old} then
    {_unpacked(old)}
  end
  if r then return r end
  error('task ' .. id .. ' is of schema ' .. schema .. ', which this release cannot change')
end
local function packed(r)
  if r.schema == {SCHEMA} then return struct.pack('{lua_format(SCHEMA)}', {_targets(SCHEMA)}) end
  return struct.pack('{lua_format(old)}', {_targets(old)})
end"""


def _unpacked(schema: int) -> str:
    """Return the statements that make `r`, as large from the start as it is going to be."""
    names = [field.name for field in fields_of(schema)]
    missing = [f"{field.name} = 0" for field in FIELDS[len(names) :]]
    columns = ", ".join([*(f"{name} = {name}" for name in names), *missing])
    text = f"local {', '.join(names)} = struct.unpack('{lua_format(schema)}', raw)"
    return f"{text}\n    r = {{id = id, raw = raw, {columns}}}"


def _targets(schema: int) -> str:
    return ", ".join(f"r.{field.name}" for field in fields_of(schema))


_FILLED = {
    "%ID%": "id",
    "%DISPATCH%": "dispatch",
    "%AT%": "at",
    "%HARD%": f"string.format('%.3f', (timeout + {HARD_LIMIT_GRACE_MS}) / 1000)",
}


def _message(messages: Mapping[str, str]) -> str:
    """Return the functions that build a Celery message by concatenation and that read one."""
    lines = ["local function message(list, id, dispatch, at, timeout)"]
    starts = []
    for code, name in enumerate(LISTS):
        parts = re.split("(" + "|".join(SLOTS) + ")", messages[name])
        pieces = [_FILLED.get(part) or _quoted(part) for part in parts if part]
        lines.append(f"  if list == {code} then return {' .. '.join(pieces)} end")
        starts.append(len(messages[name].partition('"id":"%ID%"')[0]) + len('"id":"'))
    return "\n".join([*lines, "end", _table("ID_AT", [str(at) for at in starts]), _ADDRESSED])


_ADDRESSED = """\
local function addressed(message, list)
  local at = list and ID_AT[list]
  local id = at and string.match(message, '^"id":"(t_%w+)"', at - 5)
  local _, last = string.find(message, '"an_dispatch":', at or 1, true)
  return id or string.match(message, '"id": ?"(t_%w+)"'),
    tonumber(last and string.match(message, '^ ?(%d+)', last + 1) or '-1')
end"""
"""Whose message it is and of which dispatch: the id is looked for where ours have it, and anywhere
in one that kombu has put back in its own spelling."""
