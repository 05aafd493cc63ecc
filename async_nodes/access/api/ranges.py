"""Step 5, expose: which bytes a client wants of something large (RFC 9110, 14). Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from async_nodes.core.errors import AsyncNodesError

_RANGE: Final = re.compile(r"bytes=\s*([0-9]*)-([0-9]*)\s*", re.ASCII | re.IGNORECASE)
_FAR: Final = 1 << 62
"""Stands for every number of more digits than `_MOST_DIGITS`: nothing is that large."""

_MOST_DIGITS: Final = 18


class Part(NamedTuple):
    """A run of bytes, the last one included."""

    first: int
    last: int

    @property
    def length(self) -> int:
        """Return how many bytes it has."""
        return self.last - self.first + 1

    def content_range(self, size: int) -> str:
        """Return the header ``Content-Range``."""
        return f"bytes {self.first}-{self.last}/{size}"


def part_for(
    method: str, range_: str | None, if_range: str | None, *, etag: str, size: int
) -> Part | None:
    """Return the part that a request asks for, None for the whole.

    Only GET has parts: for HEAD the standard wants ``Range`` to be ignored.

    Args:
        method: of the request.
        range_: its header ``Range``.
        if_range: its header ``If-Range``.
        etag: of what there is.
        size: of it, in bytes.

    Raises:
        AsyncNodesError: ``range_not_satisfiable`` with the ``size``.

    """
    if method != "GET" or not still_the_same(if_range, etag):
        return None
    return requested_part(range_, size)


def requested_part(header: str | None, size: int) -> Part | None:
    """Return the part that ``Range`` asks for, None for the whole.

    As the standard has it, a header that is malformed, in another unit or for several parts at
    once is ignored.

    Args:
        header: ``Range``.
        size: of the whole, in bytes.

    Raises:
        AsyncNodesError: ``range_not_satisfiable`` with the ``size``.

    """
    found = _RANGE.fullmatch(header) if header else None
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:  # the last so many bytes
        first, last = max(size - _number(found[2]), 0), size - 1
    else:
        first, last = _number(found[1]), _number(found[2]) if found[2] else _FAR
        if last < first:
            return None
        last = min(last, size - 1)
    if first > last:
        raise AsyncNodesError("range_not_satisfiable", f"there are {size} bytes", size=size)
    return Part(first, last)


def _number(digits: str) -> int:
    """Return a number that may have any number of digits."""
    digits = digits.lstrip("0")
    return _FAR if len(digits) > _MOST_DIGITS else int(digits or "0")


def still_the_same(if_range: str | None, etag: str) -> bool:
    """Tell whether ``If-Range`` allows a part: it names this very version, or is not there."""
    return if_range is None or if_range.strip() == etag
