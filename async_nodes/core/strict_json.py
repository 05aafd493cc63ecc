"""JSON without surprises, both ways: what comes in and what a node returns.

Python's own codec takes and makes texts that other parsers refuse or read differently (``NaN``,
``1e999``, a key twice, a lone surrogate). Here they are errors that name the exact place, as a
JSON pointer (RFC 6901). Used by the steps submit and execute; knows nothing of tasks.

Reading is done by Python's C scanner. A text that could break a limit, or that the C scanner
refused, also goes through a scanner of our own, which is the authority and finds the place. It
keeps its own stack, so no nesting can exhaust Python's.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, NoReturn

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import Reference

__all__ = ["dumps", "loads", "pointer_to"]

MAX_DEPTH: Final = 64
MAX_MEMBERS: Final = 10_000
MAX_DIGITS: Final = 400

# -- reading ---------------------------------------------------------------------------------------

# What might be a lone surrogate, a float beyond double or a long number. A text without it has no
# number of more than 400 digits or of more than 10^300: each run of digits is below 200 long.
_SUSPECT = re.compile(rb"\\u[dD][89a-fA-F]|[0-9]{200}|[eE]\+?[0-9]{3}")
# The same with every digit as 0 and e and d in lower case: searched for as plain text, which takes
# a tenth of the time, it finds all of them, and a little more that the pattern then refutes.
_ALIKE = bytes.maketrans(b"123456789ED", b"000000000ed")
_LONG = b"0" * 200

_QUOTED = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")

# Possessive repeats (Python 3.11): no backtracking, whatever the text.
_SPACE = re.compile(r"[ \t\n\r]*+")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_WORD = re.compile(r"-?[A-Za-z_]++")
_CONSTANTS: Final = frozenset({"true", "false", "null"})
_NO_NUMBERS: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def loads(
    raw: bytes,
    *,
    max_depth: int = MAX_DEPTH,
    max_members: int = MAX_MEMBERS,
    max_digits: int = MAX_DIGITS,
) -> Any:
    """Return the value of a strict JSON text.

    Args:
        raw: UTF-8 without a byte order mark.
        max_depth: arrays and objects inside each other.
        max_members: object members and array elements in the whole text.
        max_digits: digits of one number.

    Raises:
        AsyncNodesError: ``not_json`` with the pointer of the exact place.

    """
    text = _decoded(raw)
    limits = (max_depth, max_members, max_digits)
    if _may_exceed(raw, limits):
        _Scanner(text, *limits).check()
    try:
        value, end = _DECODER.raw_decode(text)
        if end == len(text):
            return value
    except (ValueError, RecursionError):
        pass  # space at the start, or a fault: `decode` knows which
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        _Scanner(text, *limits).check()
        raise AsyncNodesError("not_json", f"the text is not JSON: {error}", pointer="") from error


def pointer_to(path: Iterable[str | int]) -> str:
    """Return the JSON pointer of a path of keys and indices."""
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def _decoded(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"the text is not UTF-8: byte {error.start} begins no character"
        raise AsyncNodesError("not_json", detail, pointer="") from error
    if text.startswith("\ufeff"):
        raise AsyncNodesError("not_json", "the text begins with a byte order mark", pointer="")
    return text


def _may_exceed(raw: bytes, limits: tuple[int, int, int]) -> bool:
    """Tell, from counts that are never too low, whether the text needs the exact scanner."""
    max_depth, max_members, max_digits = limits
    opened = raw.count(b"[") + raw.count(b"{")
    return (
        opened + raw.count(b",") > max_members
        or (opened > max_depth and _is_deeper(raw, max_depth))
        or max_digits < MAX_DIGITS
        or _is_suspect(raw)
    )


def _is_deeper(raw: bytes, max_depth: int) -> bool:
    """Tell whether more containers are inside each other; of what is not JSON it may say either.

    Each pass takes away the innermost ones, so that a list of a thousand objects takes two: the
    exact scanner would need a hundred times as long.
    """
    brackets = _QUOTED.sub(b"", raw).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _is_suspect(raw: bytes) -> bool:
    alike = raw.translate(_ALIKE)
    trace = _LONG in alike or b"e000" in alike or b"e+000" in alike or b"\\ud" in alike
    return trace and _SUSPECT.search(raw) is not None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has a key twice")
    return members


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


class _Scanner:
    """Walk a text token by token and report the first thing that is not strict JSON.

    `_path` holds one step per open container: the index in an array, the key in an object, and
    None before an object's first key. `_keys` holds an object's keys so far, None for an array.
    """

    def __init__(self, text: str, max_depth: int, max_members: int, max_digits: int) -> None:
        self._text = text
        self._at = 0
        self._max_depth = max_depth
        self._max_members = max_members
        self._max_digits = max_digits
        self._members = 0
        self._path: list[str | int | None] = []
        self._keys: list[set[str] | None] = []

    def check(self) -> None:
        """Raise ``not_json`` unless the whole text is one strict value."""
        while not self._value():
            pass  # one container was opened: its first value comes next
        while self._path:
            if self._next_member():
                while not self._value():
                    pass
        if self._peek():
            self._refuse(f"there is more text after the value: {self._shown()}")

    def _value(self) -> bool:
        """Take a value; false when it opened a container whose first value is to follow."""
        mark = self._peek()
        if mark == '"':
            self._string()
        elif mark in ("{", "["):
            return self._open(mark)
        elif mark and mark in "-0123456789":
            self._number()
        else:
            self._word()
        return True

    def _open(self, mark: str) -> bool:
        self._at += 1
        is_object, end = mark == "{", "}" if mark == "{" else "]"
        if len(self._path) >= self._max_depth:
            self._refuse(f"the nesting is deeper than {self._max_depth}")
        if self._peek() == end:
            self._at += 1
            return True
        self._path.append(None if is_object else 0)
        self._keys.append(set() if is_object else None)
        self._count()
        if is_object:
            self._key()
        return False

    def _next_member(self) -> bool:
        """After a value: true when another member follows, false when the container ended."""
        mark, keys = self._peek(), self._keys[-1]
        if mark == ",":
            self._at += 1
            self._count()
            if keys is not None:
                self._key()
            else:
                index = self._path[-1]
                self._path[-1] = index + 1 if isinstance(index, int) else 0
            return True
        if mark != ("]" if keys is None else "}"):
            wanted = "',' or ']'" if keys is None else "',' or '}'"
            self._refuse(f"{wanted} is missing before {self._shown()}")
        self._at += 1
        self._path.pop()
        self._keys.pop()
        return False

    def _count(self) -> None:
        self._members += 1
        if self._members > self._max_members:
            self._path.pop()
            self._refuse(f"there are more than {self._max_members} members and elements in all")

    def _key(self) -> None:
        keys = self._keys[-1]
        if self._peek() != '"':
            self._path.pop()
            self._refuse(f"a key in double quotes is missing before {self._shown()}")
        key = self._string()
        self._path[-1] = key
        if keys is not None:
            if key in keys:
                self._refuse(f"the key {_quoted(key)} is there twice")
            keys.add(key)
        if self._peek() != ":":
            self._refuse(f"':' is missing before {self._shown()}")
        self._at += 1

    def _string(self) -> str:
        found = _STRING.match(self._text, self._at)
        if found is None:
            self._refuse("a string does not end, or holds a control character or a wrong escape")
        token = found[0]
        value: str = json.loads(token) if "\\" in token else token[1:-1]
        if "\\u" in token and _has_surrogate(value):
            self._refuse("a string holds half of a surrogate pair")
        self._at = found.end()
        return value

    def _number(self) -> None:
        found = _NUMBER.match(self._text, self._at)
        if found is None or found.end() == self._at:
            self._word()
            return
        token = found[0]
        if sum(map(str.isdigit, token)) > self._max_digits:
            self._refuse(f"a number has more than {self._max_digits} digits")
        if (found[1] or found[2]) and float(token) in (float("inf"), float("-inf")):
            self._refuse(f"the number {token[:40]} is too large")
        self._at = found.end()

    def _word(self) -> None:
        found = _WORD.match(self._text, self._at)
        word = found[0] if found else ""
        if word in _CONSTANTS:
            self._at += len(word)
        elif word in _NO_NUMBERS:
            self._refuse(f"{word} is not a JSON number")
        else:
            self._refuse(f"a value is missing before {self._shown()}")

    def _peek(self) -> str:
        """Skip white space and return the next character, empty at the end."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _shown(self) -> str:
        following = self._text[self._at : self._at + 12]
        return _quoted(following) if following else "the end of the text"

    def _refuse(self, detail: str) -> NoReturn:
        pointer = pointer_to(step for step in self._path if step is not None)
        where = f"{detail} (character {self._at + 1})"
        raise AsyncNodesError("not_json", where, pointer=pointer)


def _quoted(text: str) -> str:
    return json.dumps(text[:40])


def _has_surrogate(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


# -- writing ---------------------------------------------------------------------------------------

_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
_NAMES: Final = frozenset({str})
_NATIVE: Final = (str, int, float, dict, list, tuple, type(None))


def dumps(value: object, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Return a value as compact UTF-8 JSON that every strict parser reads.

    What has no JSON form of its own is converted where one spelling is the custom:

    * ``tuple`` → array; mappings, dataclasses and msgspec structs → object
    * ``datetime``, ``date``, ``time`` → ISO 8601, UTC as ``Z``
    * ``Decimal``, ``UUID``, paths → string (a number would lose digits of a Decimal)
    * enum members → their value
    * files → a reference, see `core.files`

    Everything else is refused, because a guess would lose something silently: ``NaN`` and the
    infinities, ``set`` (no order: sort it), ``bytes`` (encode them, for example as base64), keys
    that are not strings, lone surrogates, generators, objects.

    Raises:
        AsyncNodesError: ``result_not_json``, whose pointer and message name the offending place.

    """
    try:
        data = _encoded(value).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        _report(value, max_depth)
        raise AsyncNodesError("result_not_json", str(error), pointer="") from error
    if type(value) not in _LEAVES and not _is_flat(value) and not _is_plain(value, max_depth):
        _report(value, max_depth)
    return data


def _convert(value: object) -> Any:
    """Return what stands for a value in JSON, one level deep.

    Raises:
        TypeError: nothing does.

    """
    for kinds, conversion in _CONVERSIONS:
        if isinstance(value, kinds):
            return conversion(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    names = getattr(type(value), "__struct_fields__", None)  # msgspec's, without importing it
    if names is not None:
        return {name: getattr(value, name) for name in names}
    raise TypeError(_why_not(value))


def _iso(moment: dt.datetime | dt.time) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _decimal(number: Decimal) -> str:
    if not number.is_finite():
        raise TypeError(f"a Decimal that is {number} has no JSON form")
    return str(number)


_CONVERSIONS: Final[tuple[tuple[Any, Any], ...]] = (
    (enum.Enum, lambda member: member.value),
    (Reference, lambda file: file.reference()),
    ((dt.datetime, dt.time), _iso),
    (dt.date, dt.date.isoformat),
    (Decimal, _decimal),
    ((uuid.UUID, PurePath), str),
    (Mapping, dict),
)

_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_convert
)


def _make_encoder() -> Callable[[object], str]:
    """Return what `_ENCODER.encode` does, made once: it makes its helper in C anew at each call.

    Without the helper's memory of containers: one that holds itself is found by its depth.
    """
    encoder: Any = json.encoder
    if encoder.c_make_encoder is None:
        return _ENCODER.encode
    pieces = encoder.c_make_encoder(
        None, _convert, encoder.encode_basestring, None, ":", ",", False, False, False
    )
    return lambda value: "".join(pieces(value, 0))


_encoded: Final = _make_encoder()

_ADVICE: Final[tuple[tuple[Any, str], ...]] = (
    ((set, frozenset), "a set has no order: return sorted(…) or list(…)"),
    ((bytes, bytearray, memoryview), "bytes have no JSON form: encode them, for example as base64"),
)


def _why_not(value: object) -> str:
    for kinds, advice in _ADVICE:
        if isinstance(value, kinds):
            return advice
    return f"an object of type {type(value).__name__} has no JSON form"


def _is_flat(value: object) -> bool:
    """Tell whether a value is an object of nothing but names and leaves, as most are."""
    return (
        type(value) is dict
        and _NAMES.issuperset(map(type, value))
        and _LEAVES.issuperset(map(type, value.values()))
    )


def _is_plain(value: object, max_depth: int) -> bool:
    """Tell whether an encodable value also has string keys only and a bounded depth.

    Python's encoder would turn the keys 1, None and True into strings without a word.
    """
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > max_depth:
            return False
        below: list[object] = []
        for item in level:
            members = _members(item)
            if isinstance(members, dict):
                if not all(isinstance(key, str) for key in members):
                    return False
                members = members.values()
            below += [member for member in members if type(member) not in _LEAVES]
        level = below
    return True


def _members(item: object) -> Any:
    """Return the members of a container as a dict or a sequence; nothing of everything else."""
    while not isinstance(item, _NATIVE):
        item = _convert(item)
    return item if isinstance(item, _NATIVE[3:6]) else ()


def _report(value: object, max_depth: int) -> None:
    """Raise ``result_not_json`` for the first fault found, naming its place; depth first."""
    waiting: list[tuple[object, tuple[str | int, ...]]] = [(value, ())]
    while waiting:
        item, path = waiting.pop()
        fault, members = _fault(item, len(path), max_depth)
        if fault:
            pointer = pointer_to(path)
            place = f"the result at {pointer}" if pointer else "the result"
            raise AsyncNodesError("result_not_json", f"{place}: {fault}", pointer=pointer)
        pairs = members.items() if isinstance(members, dict) else enumerate(members)
        waiting += [(member, (*path, key)) for key, member in reversed(list(pairs))]


def _fault(item: object, depth: int, max_depth: int) -> tuple[str, Any]:
    """Return what is wrong with one value by itself, and its members."""
    try:
        members = _members(item)
        for key in members if isinstance(members, dict) else ():
            if not isinstance(key, str):
                return f"the key {key!r} is not a string but {type(key).__name__}", ()
            key.encode("utf-8")
        if depth >= max_depth and type(item) not in _LEAVES:
            return f"the nesting is deeper than {max_depth}, or a container holds itself", ()
        if not members:
            _ENCODER.encode(item).encode("utf-8")
    except UnicodeEncodeError:
        return "a string holds half of a surrogate pair", ()
    except TypeError as error:
        return str(error), ()
    except ValueError as error:
        shown = f"{item!r} is not a JSON number" if isinstance(item, float) else str(error)
        return shown, ()
    return "", members
