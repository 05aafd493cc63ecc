"""Step 3, execute: what a running node body may know and do.

The context reaches storage only through the callables it was given, so a body runs the same in a
worker, in a child process and in a test.
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from async_nodes.core.context import EMPTY, ScopeContext
from async_nodes.nodes.files import NodeFiles

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

    from async_nodes.core.ports import Blobs
    from async_nodes.egress.client import Client


MAX_PROGRESS_TEXT = 1_000
MOST_USAGE = 100
"""Names of usage in an attempt, and characters in each."""

logger = logging.getLogger("async_nodes.node")


class _NodeLog(logging.LoggerAdapter[logging.Logger]):
    """Add the task's names to every record, beside what the caller gives as ``extra``.

    What is severe enough goes to the task's own log as well, whatever the process logs.
    """

    def __init__(self, context: NodeContext) -> None:
        names = {"task_id": context.task_id, "node": context.node, "attempt": context.attempt}
        super().__init__(logger, {"action": "node_log", "trace_id": context.trace_id, **names})
        self._context = context

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's own name
        """Tell whether a line of this level goes anywhere."""
        return level >= self._context.log_level or super().isEnabledFor(level)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a line; all other methods end here."""
        above = kwargs.pop("stacklevel", 1) + 1
        if self._context.hide is not str and self.isEnabledFor(level):
            # The whole text at once, so that no part of it is put together behind our back.
            text = self._context.hide(said(msg, args, kwargs.pop("exc_info", None)))
            msg, args = "%s", (text,)
        super().log(level, msg, *args, stacklevel=above, **kwargs)
        if level >= self._context.log_level:
            self._context.on_log(level, said(msg, args, kwargs.get("exc_info")))

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs


def said(message: object, args: tuple[Any, ...], exc_info: object = None) -> str:
    """Return the text of a line, with the traceback that belongs to it."""
    values: Any = args
    if len(args) == 1 and isinstance(args[0], Mapping) and args[0]:
        values = args[0]  # as logging has it: "%(name)s"
    try:
        text = str(message) % values if args else str(message)
    except Exception:  # noqa: BLE001 - a format that does not fit, a value's own __str__
        text = message if isinstance(message, str) else f"{type(message).__name__} without a text"
    if exc_info is True:
        exc_info = sys.exc_info()
    elif isinstance(exc_info, BaseException):
        exc_info = (type(exc_info), exc_info, exc_info.__traceback__)
    if isinstance(exc_info, tuple) and exc_info[0] is not None:
        text += "\n" + _formatter.formatException(exc_info)
    return text


_formatter = logging.Formatter()


def _ignore(*_: object) -> None:
    return None


def _unguarded(_url: str, _tenant: str) -> AbstractContextManager[object]:
    """Let every call through: where there are no breakers."""
    return nullcontext()


def _unhedged(_name: str, call: Callable[[bool], Any], _after: float | None) -> Any:
    """Make the one call: where no two can be made at once."""
    return call(False)


def _closed_network() -> Client:
    # Imported here: whoever only declares nodes has no use for an HTTP client.
    from async_nodes.egress.client import Client
    from async_nodes.egress.guard import Guard

    return Client(Guard())


class NoBlobs:
    """Keep nothing, whoever the tenant is: where there is no store."""

    def __init__(self, _tenant: str = "") -> None:
        """Take the tenant as others do."""

    def put(self, name: str, data: bytes, *, seconds: float) -> None:
        """Forget it at once."""

    def get(self, name: str, *, start: int = 0, end: int = -1) -> bytes:
        """Find nothing."""
        return b""


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
        files: the tenant's files: those that the body makes; its inputs bring their own.
        blobs: bytes that the tenant's nodes keep from one task to the next, by name.
        on_progress, on_usage, on_chunk, on_log: where reports go.
        log_level: what is at least so severe goes to the task's own log.
        hide: takes the secrets out of what is logged.
        degraded: name of the mode that the node declares and is in, "" for none.
        calls: gives the breaker of an endpoint, by its URL, for a tenant.
        hedge: makes a call, and a second one beside it if that is slow: given what is called, the
            call, which is told whether it is the second, and after how many seconds (None: P95).

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
    files: NodeFiles = field(default_factory=NodeFiles)
    blobs: Blobs = field(default_factory=NoBlobs)
    on_progress: Callable[[float, str], None] = _ignore
    on_usage: Callable[[dict[str, int]], None] = _ignore
    on_chunk: Callable[[Any], None] = _ignore
    on_log: Callable[[int, str], None] = _ignore
    log_level: int = logging.INFO
    hide: Callable[[str], str] = str
    degraded: str = ""
    calls: Callable[[str, str], AbstractContextManager[object]] = _unguarded
    hedge: Callable[[str, Callable[[bool], Any], float | None], Any] = _unhedged
    _cancelled: bool = False
    _used: set[str] = field(default_factory=set)

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
        """Return a logger for the task: to the process's log, with its names, and to its own."""
        return _NodeLog(self)

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
            ValueError: for anything but whole numbers from 0 up, a name of more than 100
                characters, or more than 100 names in an attempt: totals are kept for each.

        """
        count: Any  # callers without a type checker send floats
        for name, count in counts.items():
            if not isinstance(count, int) or isinstance(count, bool) or count < 0:
                raise ValueError(f"usage {name} must be a whole number from 0 up, not {count!r}")
            if len(name) > MOST_USAGE:
                raise ValueError(f"a name of usage may have {MOST_USAGE} characters: {name[:50]}…")
        self._used |= counts.keys()
        if len(self._used) > MOST_USAGE:
            raise ValueError(f"an attempt may use {MOST_USAGE} names of usage")
        if counts:
            self.on_usage(counts)

    def call_to(self, url: str) -> AbstractContextManager[object]:
        """Return the breaker of a URL's host, to be entered around a call of it.

        Entering it raises ``breaker_open`` while calls of that host are not to be made.
        """
        return self.calls(url, self.tenant)

    def chunk(self, value: Any) -> None:
        """Send a piece of the stream: text, or any other JSON value as a data chunk."""
        self.on_chunk(value)

    def cancel(self) -> None:
        """Mark the task as cancelled and close its sockets at once; safe from any thread."""
        self._cancelled = True
        self.http.close()
