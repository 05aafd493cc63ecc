"""How often a process that serves for long looks for cycles that nobody needs."""

from __future__ import annotations

import gc
from typing import Final

_AFTER: Final = (10_000, 10, 10)


def rest() -> None:
    """Let the collector look less often, and never at what stays until the end.

    A request or an attempt leaves no cycles behind, and modules, routes and schemas are most of
    what it would walk through every few hundred of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_AFTER)
