"""Step 5, expose: which bytes a client wants of something large (RFC 9110, 14). Pure."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from async_nodes.core.errors import AsyncNodesError

_RANGE: Final = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII | re.IGNORECASE)


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
        first, last = max(size - int(found[2]), 0), size - 1
    else:
        first, last = int(found[1]), min(int(found[2] or size), size - 1)
        if found[2] and int(found[2]) < first:
            return None
    if first > last:
        raise AsyncNodesError("range_not_satisfiable", f"there are {size} bytes", size=size)
    return Part(first, last)


def still_the_same(if_range: str | None, etag: str) -> bool:
    """Tell whether ``If-Range`` allows a part: it names this very version, or is not there."""
    return if_range is None or if_range.strip() == etag
