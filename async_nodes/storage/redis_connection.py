"""How this process talks to Redis: the names everything else uses (part of the step *store*).

`PipelinedConnection` serves all greenlets of a gevent process over one socket;
`BlockingConnection` serves native threads and forked children. Both know bytes and commands,
nothing of keys, scripts or tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from async_nodes.storage.blocking import BlockingConnection
from async_nodes.storage.pipeline import PipelinedConnection, PipelineStats
from async_nodes.storage.redis_errors import NotSent, OutcomeUnknown, StoreBusy, StoreUnavailable
from async_nodes.storage.resp import Argument, Reply

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Argument",
    "BlockingConnection",
    "NotSent",
    "OutcomeUnknown",
    "PipelineStats",
    "PipelinedConnection",
    "RedisConnection",
    "Reply",
    "StoreBusy",
    "StoreUnavailable",
]


class RedisConnection(Protocol):
    """Send commands and return replies: what a store needs of a connection."""

    def call(self, *args: Argument, timeout: float | None = None) -> Reply:
        """Send one command and return its reply, raising an error reply."""

    def call_many(
        self, commands: Sequence[Sequence[Argument]], *, timeout: float | None = None
    ) -> list[Reply]:
        """Send commands back to back and return their replies, error replies as values."""

    def doubt(self, word: str) -> None:
        """Take a server's refusal for a sign that another is the primary; look for that one."""

    def close(self) -> None:
        """Close for good."""
