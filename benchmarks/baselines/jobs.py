"""The two tasks that every baseline has, as plain functions."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any


def echo(**inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return inputs


def nap(*, seconds: float, path: str, n: int) -> dict[str, Any]:
    """Sleep, and note the number in a file: what a kill did to a task shows there."""
    time.sleep(seconds)
    note(path, n)
    return {"n": n}


async def async_echo(**inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return inputs


async def async_nap(*, seconds: float, path: str, n: int) -> dict[str, Any]:
    """Sleep without blocking the others, and note the number in a file."""
    await asyncio.sleep(seconds)
    note(path, n)
    return {"n": n}


def note(path: str, number: int) -> None:
    """Append a line; a short one is written in one piece."""
    with Path(path).open("a", encoding="ascii") as lines:
        lines.write(f"{number}\n")
