"""How an attempt ends, decided on plain data: a value or an error becomes an `Ending`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import NULL, Ending
from async_nodes.core.retry import MAX_INTERVAL_MS
from async_nodes.core.states import EventType
from async_nodes.core.strict_json import dumps

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.core.ports import Claim
    from async_nodes.core.retry import RetryPolicy

CLEANED_UP = frozenset({EventType.ERROR, EventType.TIMEOUT, EventType.CANCEL})
"""Endings of an attempt that end its task, and that a node may want to clean up after."""

MAX_OUTPUT = 32 << 20
MAX_MESSAGE = 4_096


@dataclass(frozen=True, slots=True)
class Side:
    """Hold what goes into the record beside the outcome, as JSON bytes."""

    usage: bytes = NULL
    progress: bytes = NULL


def succeeded(value: object, side: Side) -> Ending:
    """Return the ending for a body that returned.

    Raises:
        AsyncNodesError: ``result_not_json`` or ``output_too_large``.

    """
    output = dumps(value)
    if len(output) > MAX_OUTPUT:
        raise AsyncNodesError(
            "output_too_large", f"the result has {len(output):,} bytes; {MAX_OUTPUT:,} are allowed"
        )
    return Ending(event=EventType.COMPLETE, output=output, usage=side.usage, progress=side.progress)


def failed(
    error: BaseException,
    *,
    claim: Claim,
    policy: RetryPolicy,
    now_ms: int,
    draw: float,
    side: Side,
    hide: Callable[[str], str] = str,
) -> Ending:
    """Return the ending for a body that raised: another attempt if the policy allows one.

    Args:
        error: what it raised.
        claim: the attempt.
        policy: the task's retry policy.
        now_ms: milliseconds since 1970.
        draw: a uniform random number in [0, 1).
        side: usage and progress so far.
        hide: takes the task's secrets out of the error's words.

    """
    shown = error_json(error, hide)
    if retryable(error):
        wait_ms = _wait_ms(getattr(error, "retry_after", None))
        delay_ms = policy.delay_ms(claim.spent, draw=draw, retry_after_ms=wait_ms)
        elapsed_ms = now_ms - claim.first_started_ms
        if policy.allows(claim.spent, elapsed_ms=elapsed_ms, delay_ms=delay_ms):
            # The record shows no usage of an attempt that is tried again; the totals count it.
            return Ending(event=EventType.RETRY, delay_ms=delay_ms, error=shown, usage=side.usage)
    return Ending(event=EventType.ERROR, error=shown, usage=side.usage, progress=side.progress)


def timed_out(seconds: float, side: Side, *, late: bool = False) -> Ending:
    """Return the ending for a body that ran out of time; a time-out is not tried again.

    Args:
        seconds: how long it was allowed to run.
        side: usage and progress so far.
        late: whether it was the task's deadline that ended it.

    """
    code, kind = ("node_timeout", "AttemptTimeout")
    if late:
        code, kind = ("deadline_exceeded", "DeadlineExceeded")
    shown = _shown(code, kind, f"stopped after {seconds:.3g} s", again=False)
    return Ending(event=EventType.TIMEOUT, error=shown, usage=side.usage, progress=side.progress)


def cancelled(side: Side) -> Ending:
    """Return the ending for a body that a cancel has stopped."""
    return Ending(event=EventType.CANCEL, usage=side.usage, progress=side.progress)


def released(side: Side | None = None) -> Ending:
    """Return the ending for a body that its stopping worker hands back.

    Args:
        side: what it has used so far, where that is known.

    """
    shown = _shown("node_failed", "WorkerStopping", "handed back by a stopping worker", again=True)
    usage = side.usage if side is not None else NULL
    return Ending(event=EventType.RELEASE, error=shown, usage=usage)


def blocked(seconds: float) -> Ending:
    """Return the ending for a body that held up the I/O worker's event loop."""
    error = AsyncNodesError(
        "blocked_loop",
        f"the node blocked the I/O worker's event loop for {seconds:.1f} s; declare it kind='cpu'",
    )
    return Ending(event=EventType.ERROR, error=error_json(error))


def retryable(error: BaseException) -> bool:
    """Tell whether an error of a body may be tried again: unknown ones may."""
    if isinstance(error, AsyncNodesError):
        return error.retryable
    return isinstance(error, Exception)


def _wait_ms(seconds: object) -> int:
    """Return what an error says about the next attempt, in milliseconds, as far as it makes sense.

    Servers say strange things in Retry-After and nodes pass them on: what is no number counts as
    nothing said, and nobody waits longer than the longest pause of a retry policy.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        return 0
    return int(min(seconds * 1000, MAX_INTERVAL_MS))


def error_json(error: BaseException, hide: Callable[[str], str] = str) -> bytes:
    """Return the record's ``error`` for what a body raised."""
    code = error.code if isinstance(error, AsyncNodesError) else "node_failed"
    return _shown(code, type(error).__name__, hide(_message(error)), again=retryable(error))


def _message(error: BaseException) -> str:
    try:
        if isinstance(error, AsyncNodesError):
            return str(error.detail)
        return str(error) or type(error).__name__
    except Exception:  # noqa: BLE001 - the user's own __str__ may do anything
        return f"{type(error).__name__} (its message cannot be shown)"


def _shown(code: str, kind: str, text: str, *, again: bool) -> bytes:
    clean = text.encode("utf-8", "replace").decode()[:MAX_MESSAGE]
    return dumps({"code": code, "type": kind, "message": clean, "retryable": again})
