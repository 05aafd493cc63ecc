"""Step 3, execute: call a node's body and drain what it streams.

The caller decides about time-outs, retries and storage; this decides only what is a chunk and
what is the output.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator
from typing import TYPE_CHECKING, Any

from async_nodes.core.errors import TerminalError

if TYPE_CHECKING:
    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.spec import NodeSpec


def invoke(spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
    """Return the output of a plain or generator body; chunks go to ``ctx.chunk`` on the way.

    Args:
        spec: a node of style ``function`` or ``generator``.
        ctx: the attempt's context.
        inputs: keyword arguments from `NodeSpec.validate`.

    """
    result: Any = _call(spec, ctx, inputs)
    if isinstance(result, Generator):
        return _drain(result, ctx)
    if inspect.iscoroutine(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()
        message = f"node {spec.name!r} returned a coroutine: declare its body with async def"
        raise TerminalError(message, code="invalid_node")
    return result


async def invoke_async(spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
    """Return the output of an ``async def`` or asynchronous generator body."""
    result = _call(spec, ctx, inputs)
    if isinstance(result, AsyncGenerator):
        return await _drain_async(result, ctx)
    return await result


def _call(spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
    return spec.function(ctx, **inputs) if spec.injects_context else spec.function(**inputs)


def _drain(stream: Generator[Any, None, Any], ctx: NodeContext) -> Any:
    pieces: list[str] = []
    try:
        while True:
            try:
                piece = next(stream)
            except StopIteration as end:
                return "".join(pieces) if end.value is None else end.value
            if isinstance(piece, str):
                pieces.append(piece)
            ctx.chunk(piece)
    finally:
        # A cancel that strikes between two pieces must still run the body's own clean-up now.
        stream.close()


async def _drain_async(stream: AsyncGenerator[Any, None], ctx: NodeContext) -> str:
    pieces: list[str] = []
    try:
        async for piece in stream:
            if isinstance(piece, str):
                pieces.append(piece)
            ctx.chunk(piece)
    finally:
        await stream.aclose()
    return "".join(pieces)
