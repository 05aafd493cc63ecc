"""Priorities and the lists they lead to. 0 is the most urgent of 0..9."""

from __future__ import annotations

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.whole import whole_within

CLASSES = ("high", "default", "low")
KINDS = ("io", "cpu")
LISTS = tuple(f"{kind}.{name}" for kind in KINDS for name in CLASSES)
"""Every list, by the index that the control block stores."""

NAMED = {"high": 0, "default": 5, "low": 9}
DEFAULT = 5
HIGHEST_OF_DEFAULT, HIGHEST_OF_LOW, LEAST_URGENT = 3, 7, 9


def parse(value: object) -> int:
    """Return a priority 0..9 from a number or one of the words high, default and low.

    Raises:
        AsyncNodesError: ``invalid_request`` for anything else.

    """
    if isinstance(value, str) and value in NAMED:
        return NAMED[value]
    number = whole_within(value, 0, LEAST_URGENT)
    if number is not None:
        return number
    raise AsyncNodesError(
        "invalid_request",
        f"priority must be 0 (most urgent) to 9, or high, default or low; it was {value!r}",
        pointer="/priority",
    )


def list_of(kind: str, priority: int) -> str:
    """Return the list that a node of this kind and priority goes to, such as ``io.default``."""
    name = "high" if priority < HIGHEST_OF_DEFAULT else "default"
    if priority >= HIGHEST_OF_LOW:
        name = "low"
    return f"{kind}.{name}"
