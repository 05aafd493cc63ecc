"""Submits that count once replicas have them (part of the step *store*).

Redis' WAIT holds the connection on which it is sent, so submits travel on one of their own, and
everything else goes past them. Who is told that a task is accepted knows then that a replica has
it; Sentinel's choice of the replica, and a disk, are other matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import ResponseError

from async_nodes.storage.commit import SUBMITS, Committer, Link, Row
from async_nodes.storage.redis_errors import NOREPLICAS, OutcomeUnknown

if TYPE_CHECKING:
    from async_nodes.storage.pooled import PooledConnection
    from async_nodes.storage.resp import Argument, Reply

_MARK_SECONDS = 60


class ReplicatedLink:
    """Send commands, and wait until replicas have what they wrote.

    Args:
        link: one connection that nobody else uses.
        replicas: how many of them.
        seconds: how long they are waited for.
        beside: the connection that all else travels on; where the primary is doubted, both look.
        mark: a key that is written each time. Rows that are sent again write nothing, and on a
            new connection WAIT would not know what to wait for.

    """

    def __init__(
        self, link: PooledConnection, *, replicas: int, seconds: float, beside: Link, mark: str
    ) -> None:
        self._link = link
        self._beside = beside
        self._replicas = replicas
        self._wait = ("WAIT", replicas, int(seconds * 1000))
        self._mark = ("SET", mark, 1, "EX", _MARK_SECONDS)

    def call(self, *args: Argument, timeout: float | None = None) -> Reply:
        """Send one command; see `call_many`."""
        reply = self.call_many([args], timeout=timeout)[0]
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def call_many(
        self, commands: Sequence[Sequence[Argument]], *, timeout: float | None = None
    ) -> list[Reply]:
        """Send commands back to back and return their replies, error replies as values.

        Raises:
            OutcomeUnknown: they ran, but too few replicas say that they have it.

        """
        replies = self._link.call_many([*commands, self._mark, self._wait], timeout=timeout)
        reached, marked = replies.pop(), replies.pop()
        if isinstance(marked, ResponseError):
            return replies  # nothing is written now, as the replies say themselves
        if not isinstance(reached, int) or reached < self._replicas:
            # Without Sentinels nothing comes of it; with them, it may be cut off from its replica.
            self.doubt(NOREPLICAS)
            raise OutcomeUnknown(f"of {self._replicas} replicas wanted, {reached} have it")
        return replies

    def doubt(self, word: str) -> None:
        """Take a server's refusal for a sign that another is the primary; look for that one."""
        self._link.doubt(word)
        self._beside.doubt(word)

    def close(self) -> None:
        """Close for good."""
        self._link.close()


class SubmitsApart:
    """Commit submits in one way and everything else in another.

    Args:
        submits: for the rows of `SUBMITS`.
        rest: for all others.

    """

    def __init__(self, submits: Committer, rest: Committer) -> None:
        self._submits = submits
        self._rest = rest

    def commit(self, script: str, row: Row, *, patience: float) -> Any:
        """Return the row's verdict."""
        return self._of(script).commit(script, row, patience=patience)

    def commit_many(self, script: str, rows: Sequence[Row], *, patience: float) -> list[Any]:
        """Return a verdict or an error for each row."""
        return self._of(script).commit_many(script, rows, patience=patience)

    def _of(self, script: str) -> Committer:
        return self._submits if script in SUBMITS else self._rest
