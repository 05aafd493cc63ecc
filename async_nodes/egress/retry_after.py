"""Beside the way: how long a server asks its clients to wait."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SECONDS = 24 * 3600.0


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds of ``Retry-After-Ms`` or ``Retry-After``, or None when absent or wrong.

    Args:
        headers: a response's headers, looked up without regard to case.
        now: epoch seconds an HTTP date is compared with; the clock's when omitted.

    A date in the past is 0; nothing is longer than a day.

    """
    in_ms = _number(headers.get("Retry-After-Ms"))
    if in_ms is not None:
        return _bounded(in_ms / 1000)
    value = headers.get("Retry-After")
    seconds = _number(value)
    if seconds is not None:
        return _bounded(seconds)
    try:
        at = parsedate_to_datetime(value or "").timestamp()
    except (ValueError, OverflowError, TypeError):
        return None
    return _bounded(at - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _bounded(seconds: float) -> float:
    return min(max(0.0, seconds), MAX_SECONDS)
