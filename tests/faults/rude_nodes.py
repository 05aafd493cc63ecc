"""Nodes that say things no well-behaved node would, for the tests of what was found broken."""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

from async_nodes import RetryableError, TerminalError, node

if TYPE_CHECKING:
    from async_nodes.nodes import NodeContext

RETRY_AFTER: dict[str, Any] = {
    "nan": float("nan"),
    "inf": float("inf"),
    "text": "5",
    "negative": -5,
    "huge": 1e15,
}


@node("rude.retry_after")
def retry_after(kind: str) -> None:
    """Fail with a Retry-After that is not to be taken at its word."""
    raise RetryableError("try again", retry_after=RETRY_AFTER[kind])


@node("rude.message")
def message() -> None:
    """Fail with a message that is no text."""
    text: Any = 123
    raise TerminalError(text)


@node("rude.usage")
def usage(ctx: NodeContext) -> None:
    """Count something whose name is not UTF-8."""
    ctx.usage(**{"half\ud800": 1})


@node("rude.loud_threads", kind="cpu")
def loud_threads(ctx: NodeContext, threads: int, chunks: int) -> int:
    """Stream from several threads at once."""
    import threading

    def speak(name: int) -> None:
        for number in range(chunks):
            ctx.chunk({"thread": name, "number": number})

    speakers = [threading.Thread(target=speak, args=(name,)) for name in range(threads)]
    for speaker in speakers:
        speaker.start()
    for speaker in speakers:
        speaker.join()
    return threads * chunks


@node("rude.suspect")
def suspect(path: str, deaths: int, failures: int) -> int:
    """Kill the own process on the first starts, then fail some times, then return slowly."""
    import os
    import signal
    import time
    from pathlib import Path

    with Path(path).open("a+") as starts:
        starts.write("started\n")
        starts.seek(0)
        number = len(starts.readlines())
    if number <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    if number <= deaths + failures:
        raise RetryableError("not yet")
    time.sleep(0.5)
    return number


@node("rude.fork")
def fork(seconds: float = 0.5) -> str:
    """Fork; both processes return, the child after some seconds."""
    import os
    import time

    if os.fork() == 0:
        time.sleep(seconds)
        return "child"
    time.sleep(2 * seconds)
    return "parent"


@node("rude.fork_cpu", kind="cpu")
def fork_cpu(seconds: float = 0.1) -> str:
    """Do the same in the CPU pool."""
    return fork(seconds=seconds)


@node("rude.process")
def process(path: str, seconds: float = 1.0) -> int | None:
    """Let a forked process of `multiprocessing` wait and write."""
    child = multiprocessing.get_context("fork").Process(target=_write_late, args=(path, seconds))
    child.start()
    child.join()
    return child.exitcode


def _write_late(path: str, seconds: float) -> None:
    import time
    from pathlib import Path

    time.sleep(seconds)
    Path(path).write_text("written")


@node("rude.blocks_the_loop")
async def blocks_the_loop(seconds: float) -> None:
    """Block the loop of all coroutines."""
    import time

    time.sleep(seconds)  # noqa: ASYNC251 - the point of this node


@node("rude.processes_cpu", kind="cpu")
def compute_in_processes(numbers: list[int]) -> list[int]:
    """Compute in processes of its own."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, numbers)
