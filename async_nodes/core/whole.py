"""What counts as a whole number in JSON: 52 and 52.0 are the same one, as JSON Schema has it."""

from __future__ import annotations

import math


def whole(value: object) -> int | None:
    """Return the integer that a number of a JSON text is, None for everything else."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def whole_within(value: object, least: int, most: float = math.inf) -> int | None:
    """Return the integer that a number is if it lies within bounds, both included, or None."""
    number = whole(value)
    return number if number is not None and least <= number <= most else None
