"""Nodes that Dify's plugin is tried with."""

from __future__ import annotations

import time

import async_nodes
from async_nodes import node


@node("dify.big")
def big(size: int) -> str:
    """Return a text of so many characters."""
    return "x" * size


@node("dify.steps")
def steps(ctx: async_nodes.NodeContext, count: int = 3, gap: float = 0.05) -> int:
    """Report progress, step by step."""
    for number in range(1, count + 1):
        ctx.progress(number / count, f"step {number}")
        time.sleep(gap)
    return count


@node("dify.size")
def size(ctx: async_nodes.NodeContext, file: async_nodes.File) -> dict[str, object]:
    """Write the size of a file into a file of its own."""
    written = ctx.files.write("size.txt", str(file.size), media_type="text/plain")
    return {"size": file.size, "name": file.name, "written": written}


@node("dify.sizes")
def sizes(files: list[async_nodes.File]) -> list[int]:
    """Return the sizes of some files."""
    return [file.size for file in files]
