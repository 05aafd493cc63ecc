"""Indexes among a tenant's blobs, and those that this process has read lately.

A blob begins with a digest of the rest: whoever remembers an index compares that and need not read
the index again, and one that was replaced is noticed at once.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Annotated

import msgspec

from async_nodes.core.errors import TerminalError
from async_nodes.nodes.rag_index import Index

if TYPE_CHECKING:
    from async_nodes.nodes.context import NodeContext

REMEMBERED = 8 << 20
"""Bytes of indexes, as they are kept, that a process remembers; in memory they take more."""

DIGEST = 16
PREFIX = "rag."

Name = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,89}$")]
_Key = tuple[str, str]

_remembered: OrderedDict[_Key, tuple[bytes, int, Index]] = OrderedDict()
_reading: dict[_Key, threading.Lock] = {}


def keep_index(ctx: NodeContext, name: str, index: Index, *, seconds: float) -> int:
    """Keep an index in place of the tenant's one of this name and return its bytes.

    Raises:
        TerminalError: ``output_too_large``.
        StoreUnavailable: the store has no room or did not answer.

    """
    data = index.to_bytes()
    ctx.blobs.put(PREFIX + name, hashlib.sha256(data).digest()[:DIGEST] + data, seconds=seconds)
    return len(data)


def kept_index(ctx: NodeContext, name: str) -> Index:
    """Return the tenant's index of this name, reading it only when it has changed.

    Raises:
        TerminalError: ``index_not_found``.
        StoreUnavailable: the store did not answer.

    """
    key = (ctx.tenant, name)
    if (known := _known(ctx, key)) is not None:
        return known
    # One of many tasks that come at once reads it; the others wait for that one.
    lock = _reading.setdefault(key, threading.Lock())
    try:
        with lock:
            known = _known(ctx, key)
            return _read(ctx, key) if known is None else known
    finally:
        _reading.pop(key, None)


def _known(ctx: NodeContext, key: _Key) -> Index | None:
    digest = ctx.blobs.get(PREFIX + key[1], start=0, end=DIGEST - 1)
    known = _remembered.get(key)
    if known is None or known[0] != digest:
        return None
    _remembered.move_to_end(key)
    return known[2]


def _read(ctx: NodeContext, key: _Key) -> Index:
    _remembered.pop(key, None)
    data = ctx.blobs.get(PREFIX + key[1])
    if not data:
        raise TerminalError(f"there is no index {key[1]!r}", code="index_not_found")
    try:
        index = Index.of_bytes(memoryview(data)[DIGEST:])
    except ValueError as error:  # msgspec's own errors are such
        message = f"the index {key[1]!r} was kept by another version: build it again"
        raise TerminalError(message, code="index_not_found") from error
    _remember(key, data, index)
    return index


def _remember(key: _Key, data: bytes, index: Index) -> None:
    _remembered[key] = (data[:DIGEST], len(data), index)
    while len(_remembered) > 1 and sum(it[1] for it in _remembered.values()) > REMEMBERED:
        _remembered.popitem(last=False)
