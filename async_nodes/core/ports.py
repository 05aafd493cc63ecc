"""What the other layers may ask of the store, and the plain data that passes between them.

Role protocols, each with a handful of verbs of the domain, implemented by one Redis adapter and
by a memory oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.machine import SUSPECT_LOSSES
from async_nodes.core.states import EventType, NodeState

NULL = b"null"


@dataclass(slots=True, kw_only=True)  # not frozen: that alone would take a microsecond
class Submission:
    """Hold a validated task on its way into the store.

    Attributes:
        list_name: one of `priority.LISTS`.
        private: what only the worker may see, JSON bytes.
        tail: the public document from ``"node"`` to the comma before ``"attempts"``, JSON bytes.
        inputs_at, inputs_len: where the inputs are in `tail`; length 0 if `private` holds them.
        delay_ms, timeout_ms, ttl_ms: milliseconds.
        deadline_ms: milliseconds since 1970, 0 for none.
        idempotency: 32 hex digits that stand for the client's key, empty without one.
        fingerprint: digest of the canonical request, without spaces.

    """

    task_id: str
    tenant: str
    list_name: str
    private: bytes
    tail: bytes
    inputs_at: int
    inputs_len: int
    timeout_ms: int
    ttl_ms: int
    delay_ms: int = 0
    deadline_ms: int = 0
    max_dispatches: int = 10
    idempotency: str = ""
    fingerprint: str = "-"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Tell that a task is in the store; `replayed` when an earlier request had put it there."""

    task_id: str
    version: int
    created_ms: int
    replayed: bool = False
    state: NodeState = NodeState.PENDING


@dataclass(slots=True)  # not frozen: that alone would take three microseconds
class Claim:
    """Hold the right to run one attempt, and all that running it needs. Times in milliseconds.

    `origin` is the store's own, and goes back to it with the ending.
    """

    task_id: str
    fence: str
    version: int
    attempt: int
    spent: int
    losses: int
    deaths: int
    queued_ms: int
    started_ms: int
    first_started_ms: int
    deadline_ms: int
    timeout_ms: int
    created_ms: int
    tenant: str
    private: bytes
    inputs: bytes
    list_name: str = ""
    origin: object = None

    @property
    def suspect(self) -> bool:
        """Tell whether the attempt has to run in a process of its own."""
        return self.losses >= SUSPECT_LOSSES


@dataclass(frozen=True, slots=True)
class Refused:
    """Tell why a message gave no right to run: stale, gone, expired, held or no_lease."""

    why: str


@dataclass(frozen=True, slots=True)
class Taken:
    """Tell what a take brought: claims to run, and tasks that ended instead of starting.

    `leased` is false when the worker has no lease and nothing was popped.
    """

    claims: tuple[Claim, ...] = ()
    expired: tuple[str, ...] = ()
    leased: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Tell how an attempt ended. Payloads are JSON bytes.

    Attributes:
        event: COMPLETE, ERROR, RETRY, TIMEOUT, CANCEL or RELEASE.
        delay_ms: for RETRY, the pause before the next attempt.

    """

    event: EventType
    delay_ms: int = 0
    error: bytes = NULL
    output: bytes = NULL
    usage: bytes = NULL
    progress: bytes = NULL


@dataclass(frozen=True, slots=True)
class Finished:
    """Tell what an ending did; `applied` is false when another owner holds the task."""

    applied: bool
    version: int
    state: NodeState | None


@dataclass(frozen=True, slots=True)
class Applied:
    """Tell what became of progress or a chunk."""

    applied: bool
    version: int
    cancel_asked: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Tell what a cancel did: cancelled, asked (it runs), finished (too late) or gone."""

    verdict: str
    version: int = 0
    state: NodeState | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    """Tell what a delete did: deleted, unfinished (too early), closing (in a moment) or gone."""

    verdict: str
    version: int = 0
    state: NodeState | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """Tell what a sweep did; `ended` are the tasks it brought to a terminal state."""

    rescued: int
    sent_again: int
    graced: int
    ended: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimersFired:
    """Tell when the next timer is due, in seconds from now, and what the fired ones led to.

    `ended` are tasks that ended meanwhile, `schedules` ("<tenant>:<name>") those that are due.
    """

    next_in: float | None
    ended: tuple[str, ...]
    schedules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """Hold one stored chunk or progress: position, kind and JSON."""

    version: int
    seq: int
    kind: str
    json: bytes


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Hold one stored log line: position and JSON ``{at, level, text, attempt, n}``."""

    version: int
    number: int
    json: bytes


class Record(Protocol):
    """Show a stored task: what a reader may ask of it."""

    @property
    def state(self) -> NodeState: ...
    @property
    def tenant(self) -> str: ...
    @property
    def etag(self) -> str: ...
    @property
    def json(self) -> bytes: ...


class Blobs(Protocol):
    """Named bytes that a tenant's nodes keep from one task to the next."""

    def put(self, name: str, data: bytes, *, seconds: float) -> None: ...

    def get(self, name: str, *, start: int = 0, end: int = -1) -> bytes: ...


class Tasks(Protocol):
    """The life of a task, as the web node and the workers drive it."""

    def submit(self, submission: Submission) -> Accepted: ...
    def submit_many(
        self, submissions: Sequence[Submission]
    ) -> list[Accepted | AsyncNodesError]: ...
    def read(self, task_id: str) -> Record | None: ...
    def claim(self, task_id: str, dispatch: int, *, worker: str, fence: str) -> Claim | Refused: ...
    def progress(self, task_id: str, fence: str, json: bytes) -> Applied: ...
    def chunk(self, task_id: str, fence: str, json: bytes, *, number: int = 0) -> Applied: ...
    def log(self, task_id: str, fence: str, json: bytes, *, number: int) -> Applied: ...
    def finish(
        self, task_id: str, fence: str, ending: Ending, *, origin: object = None
    ) -> Finished: ...
    def cancel(self, task_id: str, *, tenant: str) -> Cancelled: ...
    def delete(self, task_id: str, *, tenant: str) -> Deleted: ...


class Channels(Protocol):
    """What was told about a task before now."""

    def entries(self, task_id: str, *, after: tuple[int, int]) -> list[StreamEntry]: ...


class Ops(Protocol):
    """Leases, timers and sweeps: what keeps the promise that nothing accepted is lost."""

    def register(self, worker: str, info: bytes = b"") -> None: ...
    def renew(self, worker: str, held: Sequence[str] = (), info: bytes = b"") -> bool: ...
    def expire(self, worker: str) -> None: ...
    def retire(self, worker: str) -> None: ...
    def lost(self, task_id: str, *, worker: str, dispatch: int, isolated: bool) -> str: ...
    def fire_timers(self) -> TimersFired: ...
    def sweep(self) -> Swept: ...
