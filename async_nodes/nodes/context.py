"""Step 3, execute: what a running node body may know and do.

The context reaches storage only through the callables it was given, so a body runs the same in a
worker, in a child process and in a test.
"""

from __future__ import annotations

import hashlib
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from async_nodes.core.context import EMPTY, ScopeContext

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from async_nodes.egress.client import Client


MAX_PROGRESS_TEXT = 1_000

logger = logging.getLogger("async_nodes.node")


class _NodeLog(logging.LoggerAdapter[logging.Logger]):
    """Add the task's names to every record, beside what the caller gives as ``extra``."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def _ignore(*_: object) -> None:
    return None


def _closed_network() -> Client:
    # Imported here: whoever only declares nodes has no use for an HTTP client.
    from async_nodes.egress.client import Client
    from async_nodes.egress.guard import Guard

    return Client(Guard())


@dataclass(kw_only=True, slots=True)
class NodeContext:
    """Give a node body its task's names, its HTTP client and its ways to report.

    Attributes:
        task_id: the task's id.
        node: the node's name.
        attempt: starts under the retry policy so far, this one included.
        starts: all starts so far, those lost with their process included.
        tenant: whose task it is.
        trace_id, traceparent: the caller's trace (W3C), empty when there is none.
        deadline: epoch seconds after which the whole task fails, or None.
        scope: the values that travel with the task.
        http: the only way out; closed when the task is cancelled.
        on_progress, on_usage, on_chunk: where reports go.

    """

    task_id: str
    node: str
    attempt: int = 1
    starts: int = 0
    tenant: str = "default"
    trace_id: str = ""
    traceparent: str = ""
    deadline: float | None = None
    scope: ScopeContext = EMPTY
    http: Client = field(default_factory=_closed_network)
    on_progress: Callable[[float, str], None] = _ignore
    on_usage: Callable[[dict[str, int]], None] = _ignore
    on_chunk: Callable[[Any], None] = _ignore
    _cancelled: bool = False

    def __post_init__(self) -> None:
        """Count at least the starts that the attempts prove."""
        self.starts = max(self.starts, self.attempt)

    @property
    def idempotency_key(self) -> str:
        """Return a key that is the same in every attempt, to send with outside effects."""
        return hashlib.sha256(f"{self.tenant}\0{self.task_id}".encode()).hexdigest()[:32]

    @property
    def cancelled(self) -> bool:
        """Tell whether somebody has cancelled the task: long loops look at it."""
        return self._cancelled

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """Return a logger whose records carry the task's names."""
        names = {"task_id": self.task_id, "node": self.node, "attempt": self.attempt}
        return _NodeLog(logger, {"action": "node_log", "trace_id": self.trace_id, **names})

    def progress(self, fraction: float, text: str = "") -> None:
        """Report how far the work is.

        Args:
            fraction: 0 to 1; values outside are moved to the nearer end.
            text: one short line for people, cut at 1,000 characters.

        Raises:
            ValueError: for NaN.

        """
        if math.isnan(fraction):
            raise ValueError("progress must be a number from 0 to 1, not NaN")
        self.on_progress(min(1.0, max(0.0, float(fraction))), text[:MAX_PROGRESS_TEXT])

    def usage(self, **counts: int) -> None:
        """Add to the task's usage, for example ``usage(total_tokens=12)``.

        Raises:
            ValueError: for anything but whole numbers from 0 up.

        """
        count: Any  # callers without a type checker send floats
        for name, count in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"usage {name} must be a whole number from 0 up, not {count!r}")
        if counts:
            self.on_usage(counts)

    def chunk(self, value: Any) -> None:
        """Send a piece of the stream: text, or any other JSON value as a data chunk."""
        self.on_chunk(value)

    def cancel(self) -> None:
        """Mark the task as cancelled and close its sockets at once; safe from any thread."""
        self._cancelled = True
        self.http.close()
