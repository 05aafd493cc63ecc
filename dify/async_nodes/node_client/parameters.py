"""Read what a node's panel gives: every mistake gets one sentence. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from node_client.errors import AsyncNodesInvalidInput

LONGEST = 590.0
"""Seconds: Dify's daemon ends a call after 600 and lets nothing out of it then."""

GRACE = 30.0
"""Seconds past its own time after which the task of a call that nobody awaits expires."""

RUN_SECONDS = 3600.0
"""Seconds: a node's own limit is made for short work, and what comes here is long."""

TASK_ID = re.compile(r"t_[0-9A-HJKMNP-TV-Z]{26}")
MODES = ("wait", "submit")
ON_TIMEOUT = ("return", "cancel", "fail")
ON_FAILURE = ("fail", "return")
STREAMS = ("text", "progress", "off")


@dataclass(frozen=True)
class Manner:
    """How a call waits and ends.

    Attributes:
        mode: ``wait`` for the end or only ``submit``.
        seconds: how long it waits.
        on_timeout: what follows when the task needs longer.
        on_failure: whether a task that has failed fails the Dify node.
        stream: what the stream variable carries.
        expires: seconds from the submit after which the task ends, whoever waits; None for never.
        run_seconds: how long one attempt may run.

    """

    mode: str = "wait"
    seconds: float = LONGEST
    on_timeout: str = "return"
    on_failure: str = "fail"
    stream: str = "text"
    expires: float | None = None
    run_seconds: float = RUN_SECONDS


def manner(given: Mapping[str, Any]) -> Manner:
    """Return how a call is to wait and end."""
    seconds = number(given, "timeout_seconds", LONGEST, least=1, most=LONGEST) or LONGEST
    on_timeout = choice(given, "on_timeout", ON_TIMEOUT)
    mode = choice(given, "mode", MODES)
    expires = number(given, "expire_seconds", None, least=1, most=30 * 86_400)
    if expires is None and mode == "wait" and on_timeout != "return":
        expires = seconds + GRACE
    return Manner(
        mode=mode,
        seconds=seconds,
        on_timeout=on_timeout,
        on_failure=choice(given, "on_failure", ON_FAILURE),
        stream=choice(given, "stream", STREAMS),
        expires=expires,
        run_seconds=number(given, "run_seconds", RUN_SECONDS, least=1, most=86_400) or RUN_SECONDS,
    )


def expiry(seconds: float | None, now: datetime) -> str | None:
    """Return the moment that many seconds from now as the service writes moments."""
    if seconds is None:
        return None
    return (now.astimezone(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def choice(given: Mapping[str, Any], name: str, options: Sequence[str]) -> str:
    """Return one of some options; the first where nothing is given."""
    value = given.get(name)
    if value is None or value == "":
        return options[0]
    if value not in options:
        raise AsyncNodesInvalidInput(f"{name} must be one of {', '.join(options)}, not {value!r}")
    return str(value)


def number(
    given: Mapping[str, Any], name: str, default: float | None, *, least: float, most: float
) -> float | None:
    """Return a number within bounds, also where Dify hands it over as text."""
    value = given.get(name)
    if value is None or value == "":
        return default
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise AsyncNodesInvalidInput(f"{name} must be a number, not {value!r}") from None
    if not math.isfinite(found) or not least <= found <= most:
        raise AsyncNodesInvalidInput(f"{name} must be from {least:g} to {most:g}, not {value}")
    return found


def whole_number(given: Mapping[str, Any], name: str, *, least: int, most: int) -> int | None:
    """Return a number without a fraction, or None where nothing is given."""
    found = number(given, name, None, least=least, most=most)
    if found is not None and not found.is_integer():
        raise AsyncNodesInvalidInput(f"{name} must be a whole number, not {found:g}")
    return None if found is None else int(found)


def text(given: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    """Return a text without the spaces around it."""
    value = given.get(name)
    if isinstance(value, list | dict):
        raise AsyncNodesInvalidInput(f"{name} must be a text, not {_kind(value)}")
    found = "" if value is None else str(value).strip()
    if required and not found:
        raise AsyncNodesInvalidInput(f"{name} is empty")
    return found


def any_text(given: Mapping[str, Any], name: str) -> str:
    """Return a text as it is; what is none, but a value of Dify, as JSON."""
    value = given.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def task_id(given: Mapping[str, Any]) -> str:
    """Return a task's id."""
    found = text(given, "task_id", required=True)
    if not TASK_ID.fullmatch(found):
        message = f"task_id must look like t_01ABC… (28 characters), not {found[:60]!r}"
        raise AsyncNodesInvalidInput(message)
    return found


def json_object(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object that a parameter holds as JSON; an empty one where it is empty."""
    value = given.get(name)
    if isinstance(value, dict):
        return value
    found = _json(value, name) if text(given, name) else {}
    if not isinstance(found, dict):
        message = f'{name} must be a JSON object like {{"key": "value"}}, not {_kind(found)}'
        raise AsyncNodesInvalidInput(message)
    return found


def json_value(given: Mapping[str, Any], name: str) -> Any:
    """Return any value that a parameter holds as JSON."""
    if isinstance(given.get(name), list | dict):
        return given[name]
    return _json(text(given, name, required=True), name)


def json_items(given: Mapping[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    """Return the objects of a JSON array."""
    value = given.get(name)
    found = value if isinstance(value, list) else _json(text(given, name, required=True), name)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        found = [_json(item, f"{name}[{place}]") for place, item in enumerate(value)]
    if not isinstance(found, list):
        raise AsyncNodesInvalidInput(f"{name} must be a JSON array, not {_kind(found)}")
    for place, item in enumerate(found):
        if not isinstance(item, dict):
            message = f"{name}[{place}] must be an object, not {_kind(item)}"
            raise AsyncNodesInvalidInput(message)
    if not 1 <= len(found) <= most:
        raise AsyncNodesInvalidInput(f"{name} must hold 1 to {most:,} items, not {len(found):,}")
    return found


def priority(given: Mapping[str, Any]) -> int | None:
    """Return 0 (most urgent) to 9, or None where the service decides."""
    return whole_number(given, "priority", least=0, most=9)


def tags(given: Mapping[str, Any]) -> list[str]:
    """Return tags, written with commas between them."""
    return [tag.strip() for tag in text(given, "tags").split(",") if tag.strip()]


def _json(value: Any, name: str) -> Any:
    try:
        # Not strict: a variable that Dify puts between the quotes may hold line breaks.
        return json.loads(value, strict=False, parse_constant=_no_constant, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        message = (
            f"{name} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}. "
            "Texts stand in double quotes; a variable that may hold quotes belongs into text"
        )
        raise AsyncNodesInvalidInput(message) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise AsyncNodesInvalidInput(f"{name} is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


def _kind(value: Any) -> str:
    kinds = {
        list: "an array",
        dict: "an object",
        str: "a text",
        bool: "true or false",
        type(None): "null",
    }
    return kinds.get(type(value), "a number")
