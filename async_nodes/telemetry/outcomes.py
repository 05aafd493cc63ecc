"""What an attempt's end is called, in metrics and in lines of the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from async_nodes.core.states import EventType

OUTCOMES: Final[Mapping[EventType, str]] = {
    EventType.COMPLETE: "succeeded",
    EventType.ERROR: "failed",
    EventType.TIMEOUT: "timed_out",
    EventType.CANCEL: "cancelled",
    EventType.RETRY: "retried",
    EventType.RELEASE: "released",
}
"""The last two do not end the task."""
