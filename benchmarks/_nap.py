"""The node of the kill: it sleeps, and notes its number in a file."""

from __future__ import annotations

import time
from typing import Any

from async_nodes import node
from benchmarks.baselines.jobs import note


@node("nap")
def nap(seconds: float, path: str, n: int) -> dict[str, Any]:
    """Sleep, and note the number in a file."""
    time.sleep(seconds)
    note(path, n)
    return {"n": n}
