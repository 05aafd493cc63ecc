"""How many event streams a caller may have open in one web process (part of the step *expose*).

A stream costs a socket and a place in the hub for as long as its client likes; one that opens them
without end would leave none to others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY_AFTER: Final = 5.0
"""Seconds after which a caller may find that one of its streams has ended."""

Who = tuple[str, str]
"""A tenant and the id of its key."""


class Turnstile:
    """Count open streams by caller.

    Args:
        most: streams of one caller.

    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[Who] = Counter()

    def enter(self, who: Who) -> Callable[[], None]:
        """Let one more stream in; return what is called once, when it has ended.

        Raises:
            AsyncNodesError: ``too_many_streams``.

        """
        if self._open[who] >= self._most:
            raise AsyncNodesError(
                "too_many_streams",
                f"{self._most} streams of this key are open here",
                retry_after=RETRY_AFTER,
            )
        self._open[who] += 1
        left = False

        def leave() -> None:
            nonlocal left
            if left:
                return
            left = True
            self._open[who] -= 1
            if not self._open[who]:
                del self._open[who]

        return leave

    def open_streams(self) -> int:
        """Return how many there are."""
        return self._open.total()
