"""Step 5, expose: what the fast lane leaves to the app when a request it had begun has failed.

The app is the only author of problems; it must not ask the store again, because the first asking
may have had its effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

_KEY: Final = "async_nodes.handover"


@dataclass(frozen=True, slots=True)
class Handover:
    """Hold a request's names and what ended it.

    Attributes:
        error: as the route would have met it.
        started: when the request was complete, by `time.perf_counter`.
        request_id, traceparent: as they were given to the store.

    """

    error: Exception
    started: float
    request_id: str
    traceparent: str

    def put(self, environ: dict[str, Any]) -> None:
        """Leave it in a request's environment."""
        environ[_KEY] = self


def left_in(environ: dict[str, Any]) -> Handover | None:
    """Return what the lane left in a request's environment."""
    found: Handover | None = environ.get(_KEY)
    return found


def raise_met(environ: dict[str, Any]) -> None:
    """Raise what the lane has met already, if it has met anything."""
    found = left_in(environ)
    if found is not None:
        raise found.error
