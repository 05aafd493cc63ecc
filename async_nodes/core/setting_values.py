"""From the text of an environment variable to a typed value, and back to what a person may see.

Pure: the text is handed in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from async_nodes.core.errors import AsyncNodesError

# A name without a type is read as JSON where it is JSON (4, true, null); what holds text by nature
# stays text, so that a password may be 1234.
TEXT: Final = re.compile(
    r"_(URL|BACKEND|USER|USERNAME|PASSWORD|KEY|NAME|PREFIX|HOST|VHOST|QUEUE|EXCHANGE|SERIALIZER"
    r"|FORMAT|DATEFMT|ID|TOKEN)$"
)
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})


def invalid_setting(name: str, why: str) -> AsyncNodesError:
    """Return the error for a value that cannot work."""
    return AsyncNodesError("invalid_setting", f"{name} {why}")


def parse(name: str, text: str, *, like: object = None) -> Any:
    """Return ``text``, the value of the variable ``name``, in the type ``like``.

    Lists are comma separated or JSON, mappings are JSON. Without a type (``like`` is None) what is
    JSON is read as JSON.

    Args:
        name: for the message.
        text: as it stands in the environment.
        like: a type, or a value of it.

    Raises:
        AsyncNodesError: ``invalid_setting``: the text is not of that type.

    """
    text = text.strip()
    kind = like if isinstance(like, type) else type(like)
    reader = READERS.get(kind)
    if reader is None:
        return guess(name, text)
    try:
        return reader(text)
    except ValueError:
        raise invalid_setting(name, f"must be {WANTED[kind]}, not {text!r}") from None


def guess(name: str, text: str) -> Any:
    """Return ``text`` as the JSON value it spells, unless ``name`` holds text by nature."""
    if TEXT.search(name):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_bool(text: str) -> bool:
    """Read true/false in the spellings people use."""
    word = text.lower()
    if word not in TRUE | FALSE:
        raise ValueError(text)
    return word in TRUE


def read_float(text: str) -> float:
    """Read a finite number."""
    number = float(text)
    if number - number != 0:  # infinite or not a number
        raise ValueError(text)
    return number


def read_list(text: str) -> list[Any]:
    """Read a JSON list or comma separated words."""
    if text.startswith("["):
        value = json.loads(text)
        if not isinstance(value, list):
            raise ValueError(text)
        return value
    return [word.strip() for word in text.split(",") if word.strip()]


def read_tuple(text: str) -> tuple[Any, ...]:
    """Read what `read_list` reads."""
    return tuple(read_list(text))


def read_mapping(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)  # noqa: TRY004 - the text is wrong, not the caller's type
    return value


READERS: Final[Mapping[type, Callable[[str], Any]]] = {
    bool: read_bool,
    int: int,
    float: read_float,
    list: read_list,
    tuple: read_tuple,
    dict: read_mapping,
    str: str,
}
WANTED: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a comma separated list or JSON list",
    tuple: "a comma separated list or JSON list",
    dict: "a JSON object",
    str: "text",
}
