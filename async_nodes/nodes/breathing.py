"""Beside nodes that compute a little in an I/O worker: pauses in which the neighbours go on."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

BREATH = 0.002
"""Seconds of work between two pauses."""

PAUSE = 0.000_01
"""Seconds of a pause. Not 0: gevent runs what sleeps for no time up to fifty times in a row before
it looks at sockets and timers again."""

Item = TypeVar("Item")


def breathing(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, and let other greenlets run after each `BREATH` of work on them."""
    until = time.monotonic() + BREATH
    for item in items:
        yield item
        if time.monotonic() >= until:
            time.sleep(PAUSE)
            until = time.monotonic() + BREATH
