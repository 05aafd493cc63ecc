"""Nodes that write down what the worker made of them, for the tests of the whole product."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from typing import TYPE_CHECKING, Any

from async_nodes import Breaker, Hedge, RetryableError, RetryPolicy, TerminalError, node
from async_nodes.core.context import current

if TYPE_CHECKING:
    from async_nodes.nodes import NodeContext


def append(path: str, line: str) -> None:
    """Add a line to a file, in one write."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def clean_up(ctx: NodeContext, record: dict[str, Any]) -> None:
    """Write down whom this compensates."""
    append(record["inputs"]["path"], f"{record['task_id']} {record['state']}")


@node("probe.compensated", compensate=clean_up)
def compensated(
    ctx: NodeContext,
    path: str,
    *,
    seconds: float = 0.0,
    fail: bool = True,
    retry_after: float | None = None,
) -> str:
    """Wait, then fail or return; its clean-up writes to a file."""
    import time

    time.sleep(seconds)
    if retry_after is not None:
        raise RetryableError("later, on request", retry_after=retry_after)
    if fail:
        raise TerminalError("failed on request")
    return "fine"


@node("probe.compensated_cpu", kind="cpu", compensate=clean_up)
def compensated_cpu(ctx: NodeContext, path: str, *, seconds: float = 0.0, fail: bool = True) -> str:
    """Do the same in the CPU pool."""
    return compensated(ctx, path=path, seconds=seconds, fail=fail)


def clean_up_slowly(ctx: NodeContext, record: dict[str, Any]) -> None:
    """Write down when this begins and ends, and under which key; or end the process."""
    inputs = record["inputs"]
    append(inputs["path"], f"begun {record['state']} {ctx.idempotency_key}")
    if inputs.get("deadly"):
        os.kill(os.getpid(), 9)
    _pause(inputs.get("seconds", 0))
    append(inputs["path"], "cleaned")
    raise SystemExit("the clean-up gives up")


@node("probe.cleaned_slowly", compensate=clean_up_slowly)
def cleaned_slowly(
    ctx: NodeContext, path: str, *, seconds: float = 0.0, deadly: bool = False
) -> None:
    """Tell the key and fail; the clean-up takes its time."""
    append(path, f"body {ctx.idempotency_key}")
    raise TerminalError("failed on request")


@node("probe.cleaned_slowly_cpu", kind="cpu", compensate=clean_up_slowly)
def cleaned_slowly_cpu(
    ctx: NodeContext, path: str, *, seconds: float = 0.0, deadly: bool = False
) -> None:
    """Do the same in the CPU pool."""
    cleaned_slowly(ctx, path=path, seconds=seconds, deadly=deadly)


@node("probe.cleaned_blocked", compensate=clean_up_slowly)
def cleaned_blocked(
    ctx: NodeContext, path: str, *, seconds: float = 0.0, deadly: bool = False
) -> None:
    """Tell the key and compute where only waiting is allowed, until the worker is ended."""
    append(path, f"body {ctx.idempotency_key}")
    while True:
        pass


@node("probe.scope")
def scope(ctx: NodeContext) -> dict[str, Any]:
    """Return what the scope of the task holds, seen in both ways."""
    return {"ctx": ctx.scope.get("who"), "current": current().get("who")}


@node("probe.exit_cpu", kind="cpu")
def exit_cpu(ctx: NodeContext, times: int | None = None) -> dict[str, int]:
    """Kill the child that runs this, on the first starts or on all."""
    if times is None or ctx.starts <= times:
        os.kill(os.getpid(), 9)
    return {"starts": ctx.starts}


@node("probe.sleep_cpu", kind="cpu")
def sleep_cpu(seconds: float) -> float:
    """Wait in the CPU pool."""
    import time

    time.sleep(seconds)
    return seconds


@node("probe.async_cleanup")
async def async_cleanup(path: str, seconds: float) -> None:
    """Wait on the asyncio loop and write down that a cancel was noticed."""
    append(path, "started")
    try:
        await asyncio.sleep(seconds)
    finally:
        append(path, "cleaned")


@node("probe.stubborn")
def stubborn(path: str, seconds: float) -> str:
    """Swallow every exception for a while, as bad code does."""
    import time

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            time.sleep(0.05)
        except BaseException as error:  # noqa: BLE001 - the point of this node
            append(path, type(error).__name__)
    return "never stopped"


@node("probe.stubborn_cpu", kind="cpu")
def stubborn_cpu(path: str, seconds: float) -> str:
    """Do the same in the CPU pool."""
    return stubborn(path=path, seconds=seconds)


@node("probe.count_cpu", kind="cpu")
def count_cpu(ctx: NodeContext, path: str, seconds: float = 0.0) -> int:
    """Append a line at each start, in the CPU pool."""
    import time

    append(path, f"{ctx.task_id} {ctx.attempt} {os.getpid()}")
    time.sleep(seconds)
    return ctx.attempt


class Odd(BaseException):
    """No Exception, as careless code may raise."""


def raise_oddly(kind: str) -> None:
    """Raise what `except Exception` does not catch."""
    import asyncio

    errors = {"CancelledError": asyncio.CancelledError, "Odd": Odd, "SystemExit": SystemExit}
    raise errors.get(kind, GeneratorExit)(kind)


@node("probe.odd")
def odd(kind: str) -> None:
    """Raise a BaseException."""
    raise_oddly(kind)


@node("probe.odd_cpu", kind="cpu")
def odd_cpu(kind: str) -> None:
    """Raise a BaseException in the CPU pool."""
    raise_oddly(kind)


@node("probe.odd_async")
async def odd_async(kind: str) -> None:
    """Raise a BaseException in a coroutine."""
    raise_oddly(kind)


@node("probe.refuse")
def refuse(**inputs: Any) -> None:
    """Fail, and tell what exactly was given."""
    told = json.dumps(inputs, sort_keys=True).encode()
    raise TerminalError(hashlib.sha256(told).hexdigest())


@node("probe.stop_loop")
async def stop_loop() -> None:
    """Stop the event loop that all coroutines share."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


def say_cleaned(ctx: NodeContext, record: dict[str, Any]) -> None:
    """Log more than once: a task that was cancelled may do so, too."""
    for number in range(3):
        ctx.log.warning("cleaned %d after %s", number, record["state"])
        _pause(0.1)


def say(ctx: NodeContext, lines: int, seconds: float) -> int:
    """Log lines with a pause before the last, which comes at once before the end."""
    for number in range(lines):
        if number == lines - 1:
            _pause(seconds)
        ctx.log.info("line %d of attempt %d", number, ctx.attempt)
    return lines


def _pause(seconds: float) -> None:
    import time

    time.sleep(seconds)


@node("probe.log", compensate=say_cleaned)
def log(ctx: NodeContext, *, lines: int = 3, seconds: float = 0.0, fail: bool = False) -> int:
    """Log, then return or fail; the clean-up logs as well."""
    said = say(ctx, lines, seconds)
    if fail:
        raise TerminalError("failed on request")
    return said


@node("probe.log_cpu", kind="cpu", compensate=say_cleaned)
def log_cpu(ctx: NodeContext, *, lines: int = 3, seconds: float = 0.0, fail: bool = False) -> int:
    """Do the same in the CPU pool."""
    return log(ctx, lines=lines, seconds=seconds, fail=fail)


@node("probe.log_async", compensate=say_cleaned)
async def log_async(
    ctx: NodeContext, *, lines: int = 3, seconds: float = 0.0, fail: bool = False
) -> int:
    """Do the same on the asyncio loop."""
    for number in range(lines):
        if number == lines - 1:
            await asyncio.sleep(seconds)
        ctx.log.info("line %d of attempt %d", number, ctx.attempt)
    if fail:
        raise TerminalError("failed on request")
    return lines


@node("probe.log_and_exit", kind="cpu")
def log_and_exit(ctx: NodeContext, times: int = 2) -> int:
    """Log, then kill the process on the first starts."""
    ctx.log.info("start %d", ctx.starts)
    _pause(0.3)
    if ctx.starts <= times:
        os.kill(os.getpid(), 9)
    return ctx.starts


@node("probe.secret", redact=("password",))
def secret(ctx: NodeContext, password: str, count: int) -> int:
    """Have a secret and say nothing of it; inputs of the wrong type fail before the body runs."""
    ctx.log.info("it has %d characters", len(password))
    return count


@node("probe.indiscreet", redact=("password",), retry=RetryPolicy(max_attempts=1))
def indiscreet(ctx: NodeContext, password: str) -> None:
    """Say the secret in the log and in an error."""
    ctx.log.warning("the password is %s", password)
    message = f"{password} is wrong"
    raise ValueError(message)


@node(
    "probe.indiscreet_cpu",
    kind="cpu",
    redact=("password",),
    retry=RetryPolicy(max_attempts=1),
)
def indiscreet_cpu(ctx: NodeContext, password: str) -> None:
    """Do the same in the CPU pool."""
    indiscreet(ctx, password=password)


@node("probe.hedged", hedge=Hedge(after=0.3, most=1.0))
def hedged(ctx: NodeContext, path: str) -> str:
    """Take half a minute at the first call, and no time at the second one beside it."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return "second"
    try:
        _pause(30)
    finally:
        append(path, "the first call was stopped")
    return "first"


_FRAGILE = Breaker(window=2.0, open_seconds=1.0, failures=4)


@node("probe.fragile", breaker=_FRAGILE, fallback={"answer": "none"})
def fragile(ctx: NodeContext, fail: bool) -> str:  # noqa: FBT001 - inputs come by name
    """Fail on request."""
    if fail:
        raise TimeoutError("failed on request")
    return "fine"


@node("probe.fragile_cpu", kind="cpu", breaker=_FRAGILE)
def fragile_cpu(ctx: NodeContext, fail: bool) -> str:  # noqa: FBT001 - inputs come by name
    """Do the same in the CPU pool."""
    return fragile(ctx, fail)


@node("probe.warn")
def warn() -> None:
    """Let a library say something."""
    logging.getLogger("a.library").warning("a library's word")
