"""Step 5, expose: what a request's query asks for, checked. A mistake is named, never ignored."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final, NoReturn

from flask import request

from async_nodes.core.errors import AsyncNodesError

_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuse a parameter that the route does not know: a filter with a typo would ask for all.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    known = list(names)
    for name in request.args:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            refuse(name, f"the query has no parameter {name[:64]!r} here{hint}")


def texts(name: str, *, most: int, longest: int) -> list[str]:
    """Return the values of a parameter that may be repeated.

    Args:
        name: the parameter.
        most: values allowed.
        longest: characters allowed in each, at least one.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    given = request.args.getlist(name)
    if len(given) > most:
        refuse(name, f"{name} may be given {most} times, not {len(given)}")
    for value in given:
        if not 1 <= len(value) <= longest:
            refuse(name, f"{name} must have 1 to {longest} characters")
    return given


def text(name: str, *, longest: int) -> str | None:
    """Return the value of a parameter that is given once or not at all; raises as `texts`."""
    found = texts(name, most=1, longest=longest)
    return found[0] if found else None


def word(name: str, words: Iterable[str]) -> str | None:
    """Return the value of a parameter that is one of some words; raises ``bad_request``."""
    found = text(name, longest=64)
    if found is not None:
        check_word(name, found, words)
    return found


def check_word(name: str, value: str, words: Iterable[str]) -> None:
    """Refuse a value that is none of the words, and name the one that may have been meant.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    known = list(words)
    if value not in known:
        by_lower = {one.lower(): one for one in known}
        near = difflib.get_close_matches(value.lower(), by_lower, n=1)
        hint = f"; did you mean {by_lower[near[0]]!r}?" if near else ""
        refuse(name, f"{name} must be one of {', '.join(known)}{hint}")


def number(name: str, *, least: int, most: int, default: int) -> int:
    """Return the value of a parameter that is a whole number within bounds.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    given = text(name, longest=9)
    if given is None:
        return default
    if not _NUMBER.fullmatch(given) or not least <= int(given) <= most:
        refuse(name, f"{name} must be a whole number from {least} to {most}")
    return int(given)


def refuse(name: str, why: str) -> NoReturn:
    """Raise ``bad_request`` for a parameter."""
    raise AsyncNodesError("bad_request", why, pointer=f"/query/{name[:64]}")
