"""Nodes that work with files, for the tests of the whole product."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from async_nodes import File, NodeContext, node

_RSS = re.compile(r"VmRSS:\s+(\d+)")


def rss() -> int:
    """Return the bytes of memory that this process has in use."""
    found = _RSS.search(Path("/proc/self/status").read_text(encoding="ascii"))
    return int(found[1]) << 10 if found else 0


def digested(ctx: NodeContext, file: File, pause: float) -> dict[str, Any]:
    """Read a file to its end, and tell of its content and of the memory that took."""
    digest, before, highest = hashlib.sha256(), rss(), 0
    for number, piece in enumerate(file):
        digest.update(piece)
        highest = max(highest, rss())
        if pause:
            ctx.progress(min(number / 100, 1.0))
            time.sleep(pause)
    return {"sha256": digest.hexdigest(), "grown": highest - before, "pid": os.getpid()}


@node("files.digest")
def digest(ctx: NodeContext, file: File, pause: float = 0.0) -> dict[str, Any]:
    """Read a file as a greenlet."""
    return digested(ctx, file, pause)


@node("files.digest_cpu", kind="cpu")
def digest_cpu(ctx: NodeContext, file: File, pause: float = 0.0) -> dict[str, Any]:
    """Read a file in a process of its own."""
    return digested(ctx, file, pause)


@node("files.digest_async")
async def digest_async(file: File) -> dict[str, Any]:
    """Read a file on the asyncio loop."""
    digest, before, highest = hashlib.sha256(), rss(), 0
    async for piece in file:
        digest.update(piece)
        highest = max(highest, rss())
    return {"sha256": digest.hexdigest(), "grown": highest - before, "pid": os.getpid()}


def pieces(count: int, pause: float) -> Iterator[bytes]:
    """Yield so many MiB, each of one letter."""
    for number in range(count):
        yield bytes([65 + number % 26]) * (1 << 20)
        time.sleep(pause)


@node("files.make")
def make(ctx: NodeContext, mib: int, pause: float = 0.0) -> dict[str, Any]:
    """Write a file as a greenlet, piece by piece."""
    before = rss()
    file = ctx.files.write("made.bin", pieces(mib, pause))
    return {"made": file, "grown": rss() - before}


@node("files.make_cpu", kind="cpu")
def make_cpu(ctx: NodeContext, mib: int, pause: float = 0.0) -> dict[str, Any]:
    """Write a file in a process of its own."""
    return make(ctx, mib, pause)


@node("files.make_async")
async def make_async(ctx: NodeContext, mib: int, pause: float = 0.0) -> dict[str, Any]:
    """Write a file from a thread beside the asyncio loop."""
    return await asyncio.to_thread(make, ctx, mib, pause)
