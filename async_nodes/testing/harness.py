"""Run one node in a test, without a worker, and look at all that it reported."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from async_nodes.egress.client import Client
from async_nodes.egress.guard import Guard
from async_nodes.nodes.context import NodeContext
from async_nodes.nodes.invoke import invoke, invoke_async
from async_nodes.nodes.registry import registry


class MemoryBlobs:
    """Keep blobs for as long as a test keeps this, and for ever."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, name: str, data: bytes, *, seconds: float) -> None:
        """Keep bytes under a name."""
        self._data[name] = data

    def get(self, name: str, *, start: int = 0, end: int = -1) -> bytes:
        """Return bytes as the store does: `end` is inclusive."""
        return self._data.get(name, b"")[start : None if end == -1 else end + 1]


@dataclass(slots=True)
class Outcome:
    """Hold what a node gave.

    Attributes:
        output: what the task's record would show.
        chunks: the stream, in order.
        progress: the reports, ``(fraction, text)`` each.
        usage: the sums of what was reported.
        logs: the lines of ``ctx.log``, ``(level, text)`` each, the level as in `logging`.

    """

    output: Any = None
    chunks: list[Any] = field(default_factory=list)
    progress: list[tuple[float, str]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    logs: list[tuple[int, str]] = field(default_factory=list)

    def context(
        self, node: str, *, allow: frozenset[str] = frozenset(), **given: Any
    ) -> NodeContext:
        """Return a context that reports to this outcome.

        Args:
            node: the node's name.
            allow: ``host:port`` entries the node may call besides public addresses.
            given: attributes of `NodeContext` to set.

        """
        return NodeContext(
            **{
                "task_id": "t_00000000000000000000000000",
                "node": node,
                "http": Client(Guard(allow)),
                "on_chunk": self.chunks.append,
                "on_progress": lambda fraction, text: self.progress.append((fraction, text)),
                "on_usage": self._add,
                "on_log": lambda level, text: self.logs.append((level, text)),
                **given,
            }
        )

    def _add(self, counts: dict[str, int]) -> None:
        for name, count in counts.items():
            self.usage[name] = self.usage.get(name, 0) + count


def run_node(
    name: str,
    inputs: dict[str, Any] | None = None,
    *,
    allow: frozenset[str] = frozenset(),
    **context: Any,
) -> Outcome:
    """Validate the inputs, run one attempt in this process and return what came of it.

    Args:
        name: a registered node.
        inputs: as a request would bring them.
        allow: ``host:port`` entries the node may call besides public addresses.
        context: attributes of `NodeContext`, for example ``attempt=2``.

    """
    spec, outcome = registry()[name], Outcome()
    checked = spec.validate(inputs or {})
    ctx = outcome.context(name, allow=allow, **context)
    with ctx.http:
        if spec.style in ("async", "asyncgen"):
            outcome.output = asyncio.run(invoke_async(spec, ctx, checked))
        else:
            outcome.output = invoke(spec, ctx, checked)
    return outcome
