"""How a row reaches its script: at once on a blocking link, or with others in a group commit.

A row may be sent again: every script recognises one that it has seen. So a cut connection is
answered by sending the row once more, for as long as its sender is patient.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.redis_errors import (
    NOREPLICAS,
    READONLY,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
)
from async_nodes.storage.resp import Argument, Reply
from async_nodes.storage.script_library import Script

Row = tuple[Argument, ...]
SUBMITS = frozenset({"accept", "submit"})
"""Scripts whose rows are a client's request, which is refused rather than kept waiting."""

MAX_ROWS = 200
MAX_BYTES = 256 << 10
_PAUSE_FIRST, _PAUSE_MOST = 0.02, 0.5


class Link(Protocol):
    """A connection that runs commands; see `pipeline` and `blocking_connection`."""

    def call(self, *args: Argument, timeout: float | None = None) -> Reply: ...
    def call_many(
        self, commands: Sequence[Sequence[Argument]], *, timeout: float | None = None
    ) -> list[Reply]: ...
    def doubt(self, word: str) -> None: ...
    def close(self) -> None: ...


class Committer(Protocol):
    """Takes rows and answers with verdicts."""

    def commit(self, script: str, row: Row, *, patience: float) -> Any: ...
    def commit_many(self, script: str, rows: Sequence[Row], *, patience: float) -> list[Any]: ...


def run(link: Link, base: str, script: Script, args: Sequence[Argument]) -> Reply:
    """Run a script once, loading it first where the server does not know it."""
    return run_many(link, [(script, base, args)])[0]


def run_many(
    link: Link,
    calls: Sequence[tuple[Script, str, Sequence[Argument]]],
    *,
    timeout: float | None = None,
) -> list[Reply]:
    """Run scripts in one round trip, and those the server had forgotten in a second one.

    Returns:
        One reply per call; an error reply is returned, not raised.

    """
    replies = link.call_many([_evalsha(*call) for call in calls], timeout=timeout)
    unknown = [index for index, reply in enumerate(replies) if _is_noscript(reply)]
    if unknown:
        # SCRIPT LOAD and the call again, in order: later rows of a task follow earlier ones.
        again: list[Sequence[Argument]] = []
        for index in unknown:
            again += [("SCRIPT", "LOAD", calls[index][0].text), _evalsha(*calls[index])]
        for index, reply in zip(unknown, link.call_many(again, timeout=timeout)[1::2], strict=True):
            replies[index] = reply
    return replies


def _evalsha(script: Script, base: str, args: Sequence[Argument]) -> Sequence[Argument]:
    return ("EVALSHA", script.sha, 1, base, *args)


def _is_noscript(reply: Reply) -> bool:
    return isinstance(reply, Exception) and str(reply).startswith("NOSCRIPT")


def verdict_of(reply: Any) -> Any:
    """Return a row's verdict, a list or a number, or raise what was reported in its place.

    Raises:
        StoreFull: the server is out of memory.
        StoreUnavailable: the server is read-only, still loading or busy, which passes.
        AsyncNodesError: ``internal``, a fault of ours inside the script.

    """
    if isinstance(reply, StoreUnavailable):
        raise reply
    if isinstance(reply, Exception):
        raise _refusal(str(reply))
    if isinstance(reply, list) and reply and reply[0] == b"error":
        raise _refusal(reply[1].decode("utf-8", "replace"))
    return reply


def passes(reply: Any, script: str) -> bool:
    """Tell whether a verdict says that the same row may be taken a moment later."""
    if isinstance(reply, int) or (isinstance(reply, list) and reply[:1] != [b"error"]):
        return False
    try:
        verdict_of(reply)
    except StoreUnavailable as error:
        return not _is_final(error, script)
    except AsyncNodesError:
        return False
    return False


def _is_final(error: StoreUnavailable, script: str) -> bool:
    """Tell whether waiting is of no use to a row's sender.

    A full server is told to a client at once; a worker waits until there is room, because what it
    has to say would be lost.
    """
    return isinstance(error, StoreFull) and script in SUBMITS


def elsewhere(reply: Any) -> str | None:
    """Return the word in a refusal by which a server shows that another may be the primary."""
    if isinstance(reply, list) and reply:
        reply = reply[-1].decode("utf-8", "replace")
    text = str(reply)
    return next((word for word in (READONLY, NOREPLICAS) if word in text), None)


_PASSING = ("READONLY", "LOADING", "BUSY", "MISCONF", "NOREPLICAS", "MASTERDOWN", "TRYAGAIN")


def _refusal(text: str) -> AsyncNodesError:
    if "OOM" in text:
        return StoreFull(f"Redis is out of memory: {text}", retry_after=2.0)
    if any(word in text for word in _PASSING):
        return StoreUnavailable(f"Redis refuses to write: {text}", retry_after=2.0)
    return AsyncNodesError("internal", f"a store script failed: {text}")


def settled(reply: Any) -> Any:
    """Return a row's verdict, or the error that stands in its place."""
    try:
        return verdict_of(reply)
    except AsyncNodesError as error:
        return error


class DirectCommit:
    """Run each row at once on a blocking link: for children, native threads and commands."""

    def __init__(self, link: Link, scripts: Mapping[str, Script], base: str) -> None:
        self._link = link
        self._scripts = scripts
        self._base = base

    def commit(self, script: str, row: Row, *, patience: float) -> Any:
        """Return the row's verdict, sending it again while `patience` seconds last."""
        (answer,) = self.commit_many(script, [row], patience=patience)
        if isinstance(answer, AsyncNodesError):
            raise answer
        return answer

    def commit_many(self, script: str, rows: Sequence[Row], *, patience: float) -> list[Any]:
        """Return a verdict or an error for each row, sent in as few calls as the caps allow."""
        until = time.monotonic() + patience
        waiting = [Pending(script, row, until, size_of(row)) for row in rows]
        queue = deque(waiting)
        pause = _PAUSE_FIRST
        while queue:
            put_off = self._flush(take_batch(queue), time.monotonic() + pause)
            if put_off:
                queue.extendleft(reversed(put_off))
                time.sleep(pause)
                pause = min(pause * 2, _PAUSE_MOST)
        return [pending.reply for pending in waiting]

    def _flush(self, batch: list[Pending], next_try: float) -> list[Pending]:
        """Send rows of one script once; answer them but for those to send again, returned."""
        args = [argument for pending in batch for argument in pending.row]
        replies: Any
        try:
            replies = run(self._link, self._base, self._scripts[batch[0].script], args)
        except StoreUnavailable as error:
            replies = error
        put_off = []
        for index, pending in enumerate(batch):
            reply: Any = settled(replies if isinstance(replies, Exception) else replies[index])
            if isinstance(reply, StoreUnavailable):
                if (word := elsewhere(reply)) is not None:
                    self._link.doubt(word)
                reply = given_up(pending, reply, next_try)
            pending.reply = reply
            if reply is None:
                put_off.append(pending)
        return put_off


@dataclass(slots=True, eq=False)
class Pending:
    """A row that waits for its verdict."""

    script: str
    row: Row
    until: float
    size: int
    reply: Any = None
    maybe_sent: bool = False
    waiter: Any = field(default=None)  # has a `switch` that is called once `reply` is there


def size_of(row: tuple[object, ...]) -> int:
    """Return about how many bytes a row takes.

    Raises:
        TypeError: it cannot be sent, and would keep others from being sent with it.

    """
    size = 0
    for part in row:
        kind = type(part)
        if kind is bytes or kind is str:
            size += len(part)  # type: ignore[arg-type]
        elif kind is int or isinstance(part, int | float):
            size += 8
        elif isinstance(part, bytes | str):
            size += len(part)
        else:
            message = f"a row cannot hold {part!r}"
            raise TypeError(message)
    return size


def take_batch(queue: deque[Pending]) -> list[Pending]:
    """Remove and return the next rows of one script: at most `MAX_ROWS`, about `MAX_BYTES`."""
    batch: list[Pending] = []
    size = 0
    while queue and len(batch) < MAX_ROWS and (not batch or size + queue[0].size <= MAX_BYTES):
        row = queue.popleft()
        size += row.size
        batch.append(row)
    return batch


def given_up(row: Pending, error: StoreUnavailable, now: float) -> StoreUnavailable | None:
    """Return what to tell a row's sender after a failed flush, or None to try it again.

    A row that may have reached the server stays unknown, whatever later tries came to.
    """
    row.maybe_sent = row.maybe_sent or isinstance(error, OutcomeUnknown)
    if now < row.until and not _is_final(error, row.script):
        return None
    if row.maybe_sent and not isinstance(error, OutcomeUnknown):
        return OutcomeUnknown(error.detail)
    return error
