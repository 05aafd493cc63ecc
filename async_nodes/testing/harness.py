"""Run one node in a test, without a worker, and look at all that it reported."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from async_nodes.core.files import CHUNK, DEFAULT_TTL, DEFAULT_TYPE, TAG, FileInfo, gone
from async_nodes.core.ids import IdSource
from async_nodes.egress.client import Client
from async_nodes.egress.guard import Guard
from async_nodes.nodes.context import NodeContext
from async_nodes.nodes.files import File, NodeFiles, prepared
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


class MemoryFiles:
    """Keep files for as long as a test keeps this: give them to `run_node`, and read what it made.

    >>> files = MemoryFiles()
    >>> letter = files.add("letter.txt", b"Dear customer")
    >>> run_node("letters.count", {"letter": letter}, files=files).output  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[FileInfo, bytes]] = {}
        self._ids = IdSource(b"a secret of the tests", tag=TAG)

    def add(self, name: str, data: bytes | str, *, media_type: str = DEFAULT_TYPE) -> str:
        """Keep a file and return its id, to be given as an input."""
        raw = data.encode() if isinstance(data, str) else data
        return self.write([raw], name=name, media_type=media_type, seconds=DEFAULT_TTL).file_id

    def content(self, file: File | str) -> bytes:
        """Return the content of a file, by its id or as a node has returned it."""
        return self._kept[file if isinstance(file, str) else file.file_id][1]

    def delete(self, file_id: str) -> None:
        """Forget a file."""
        del self._kept[file_id]

    def known(self, ids: Sequence[str], *, seconds: float) -> list[FileInfo | None]:
        """Return what files are."""
        return [self._kept[it][0] if it in self._kept else None for it in ids]

    def chunk(self, info: FileInfo, number: int) -> bytes:
        """Return a chunk of a file."""
        if info.file_id not in self._kept:
            raise gone(info.file_id)
        return self._kept[info.file_id][1][number * CHUNK : (number + 1) * CHUNK]

    def write(
        self, pieces: Iterable[bytes], *, name: str, media_type: str, seconds: float
    ) -> FileInfo:
        """Keep a new file."""
        data = b"".join(pieces)
        info = FileInfo(
            self._ids.make(0), name, media_type, len(data), hashlib.sha256(data).hexdigest()
        )
        self._kept[info.file_id] = (info, data)
        return info


@dataclass(slots=True)
class Outcome:
    """Hold what a node gave.

    Attributes:
        output: what the task's record would show.
        chunks: the stream, in order.
        progress: the reports, ``(fraction, text)`` each.
        usage: the sums of what was reported.
        logs: the lines of ``ctx.log``, ``(level, text)`` each, the level as in `logging`.
        files: those that it made, and those that it was given.

    """

    output: Any = None
    chunks: list[Any] = field(default_factory=list)
    progress: list[tuple[float, str]] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)
    logs: list[tuple[int, str]] = field(default_factory=list)
    files: MemoryFiles = field(default_factory=MemoryFiles)

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
                "files": NodeFiles(self.files),
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
    files: MemoryFiles | None = None,
    **context: Any,
) -> Outcome:
    """Validate the inputs, run one attempt in this process and return what came of it.

    Args:
        name: a registered node.
        inputs: as a request would bring them.
        allow: ``host:port`` entries the node may call besides public addresses.
        files: those that the inputs name.
        context: attributes of `NodeContext`, for example ``attempt=2``.

    """
    spec, outcome = registry()[name], Outcome(files=files or MemoryFiles())
    ctx = outcome.context(name, allow=allow, **context)
    checked = prepared(spec, inputs or {}, ctx)
    with ctx.http:
        if spec.style in ("async", "asyncgen"):
            outcome.output = asyncio.run(invoke_async(spec, ctx, checked))
        else:
            outcome.output = invoke(spec, ctx, checked)
    return outcome
