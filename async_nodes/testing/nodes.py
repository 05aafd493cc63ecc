"""Nodes for tests: they sleep, stream, fail and die on request.

Loaded with ``ASYNC_NODES_IMPORTS=async_nodes.testing.nodes``; never loaded by itself.
"""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import datetime as dt
import decimal
import os
import signal as signals
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.core.log_levels import LEVELS
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Generator

    from async_nodes.nodes.context import NodeContext

Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


@node("test.sleep")
def sleep(seconds: Seconds = 1.0) -> dict[str, float]:
    """Wait without computing and return the seconds."""
    time.sleep(seconds)
    return {"seconds": seconds}


@node("test.async_sleep")
async def async_sleep(seconds: Seconds = 1.0) -> dict[str, float]:
    """Wait on the asyncio loop and return the seconds."""
    await asyncio.sleep(seconds)
    return {"seconds": seconds}


@node("test.spin", kind="cpu")
def spin(seconds: Seconds = 1.0) -> dict[str, float]:
    """Compute for some seconds without ever yielding."""
    return _spin(seconds)


@node("test.spin_io")
def spin_io(seconds: Seconds = 1.0) -> dict[str, float]:
    """Compute for some seconds where only waiting is allowed: blocks the I/O worker's loop."""
    return _spin(seconds)


@node("test.emit")
def emit(
    pieces: list[Any] | None = None,
    n: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 3,
    text: str = "token ",
    gap: Seconds = 0.0,
) -> Generator[Any, None, None]:
    """Stream the pieces, or the text n times, one chunk each, with a pause in between."""
    for number, piece in enumerate([text] * n if pieces is None else pieces):
        if number and gap:
            time.sleep(gap)
        yield piece


@node("test.log")
def log(
    ctx: NodeContext,
    lines: list[str] | None = None,
    level: str = "info",
    n: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 1,
    gap: Seconds = 0.0,
) -> dict[str, int]:
    """Log the lines n times, with a pause after each, and return how many that were."""
    said = [line for _ in range(n) for line in lines or ["a line"]]
    for line in said:
        ctx.log.log(LEVELS.get(level, LEVELS["info"]), line)
        if gap:
            time.sleep(gap)
    return {"lines": len(said)}


@node("test.usage")
def usage(
    ctx: NodeContext,
    counts: dict[str, int] | None = None,
    times: Annotated[int, msgspec.Meta(ge=0)] = 0,
) -> dict[str, int]:
    """Count what it is told to, and fail so many times before it returns the attempt."""
    ctx.usage(**(counts or {"total_tokens": 1}))
    if ctx.attempt <= times:
        raise RetryableError("failed on request, after it had used something")
    return {"attempt": ctx.attempt}


@node("test.fail")
def fail(
    ctx: NodeContext,
    kind: str = "terminal",
    message: str = "failed on request",
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None,
    retry_after: Seconds | None = None,
) -> dict[str, int]:
    """Fail the first `times` attempts (all when omitted), then return the attempt.

    Args:
        ctx: the attempt's context.
        kind: ``terminal``, ``retryable`` or the name of a built-in exception.
        message: the error's message.
        times: how many attempts fail.
        retry_after: sent along with ``retryable``.

    """
    if times is not None and ctx.attempt > times:
        return {"attempt": ctx.attempt}
    if kind == "terminal":
        raise TerminalError(message)
    if kind == "retryable":
        raise RetryableError(message, retry_after=retry_after)
    error = getattr(builtins, kind, None)
    if not (isinstance(error, type) and issubclass(error, Exception)):
        raise TerminalError(f"{kind!r} is no built-in exception", code="invalid_inputs")
    raise error(message)


@node("test.exit")
def exit_process(
    ctx: NodeContext,
    signal: str | int = "SIGKILL",
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None,
) -> dict[str, int]:
    """Kill the own process on the first `times` starts (all when omitted), then return."""
    if times is not None and ctx.starts > times:
        return {"attempt": ctx.attempt, "starts": ctx.starts}
    os.kill(os.getpid(), _signal(signal))
    time.sleep(60)  # a signal that is handled takes its time; nothing may be returned meanwhile
    raise TerminalError(f"the process outlived {signal}")


@node("test.count")
def count(ctx: NodeContext, path: str, seconds: Seconds = 0.0) -> dict[str, int]:
    """Append one line to a file at each start, then wait."""
    line = f"{ctx.task_id} {ctx.attempt} {os.getpid()} {time.time():.3f}\n".encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)  # one write: appends of several processes never mix
    finally:
        os.close(descriptor)
    time.sleep(seconds)
    return {"attempt": ctx.attempt}


@dataclasses.dataclass(frozen=True)
class Point:
    """A value that is not JSON."""

    x: int = 1
    y: int = 2


_VALUES: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "set": {1, 2},
    "bytes": b"\xff\x00",
    "datetime": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "decimal": decimal.Decimal("1.10"),
    "dataclass": Point(),
    "tuple-keys": {(1, 2): "pair"},
    "lone-surrogate": "\ud83d",
    "object": object(),
    "none": None,
}


@node("test.value")
def value(kind: str) -> Any:
    """Return a value that JSON may not hold."""
    if kind not in _VALUES:
        raise TerminalError(f"kind is one of {', '.join(_VALUES)}", code="invalid_inputs")
    return _VALUES[kind]


def _spin(seconds: float) -> dict[str, float]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return {"seconds": seconds}


def _signal(name: str | int) -> signals.Signals:
    try:
        if isinstance(name, int) or name.isdigit():
            return signals.Signals(int(name))
        return signals.Signals["SIG" + name.upper().removeprefix("SIG")]
    except (ValueError, KeyError):
        raise TerminalError(f"{name!r} is no signal", code="invalid_inputs") from None
