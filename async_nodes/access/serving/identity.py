"""Step 5, expose: which of the web processes this one is. Told once, when it starts."""

from __future__ import annotations

import os

_number: int | None = None


def become(number: int) -> None:
    """Note that this process is one of several, and which."""
    global _number  # noqa: PLW0603 - a process is one process
    _number = number


def identity() -> dict[str, int | None]:
    """Return what health tells of the process that answers."""
    return {"pid": os.getpid(), "process": _number}
