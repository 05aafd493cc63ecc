"""A memory oracle of the store's roles: what the scripts must do, said over the pure machine.

Every change of a record goes through `core.machine.decide`, and the effects it asks for are
carried out by one handler table. What is left here is what the machine does not know: lists,
leases, fences, timers, payloads. Nothing is optimised; it is written to be believed.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from async_nodes.core.contracts import iso
from async_nodes.core.effects import Effect
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.machine import TABLE, Event, Snapshot, decide, submitted
from async_nodes.core.ports import (
    NULL,
    Accepted,
    Applied,
    Cancelled,
    Claim,
    Deleted,
    Ending,
    Finished,
    Refused,
    StreamEntry,
    Submission,
    Swept,
    Taken,
    TimersFired,
)
from async_nodes.core.states import EventType, NodeState, Reason

SHARES = (6, 3, 1)
INLINE_OUTPUT = 8_192
DEAD_LETTER_MS = 7 * 86_400_000
DEADLINE_GRACE_MS = CANCEL_GRACE_MS = 5_000
_E = EventType
_ENDINGS = frozenset({_E.COMPLETE, _E.ERROR, _E.RETRY, _E.TIMEOUT, _E.CANCEL, _E.RELEASE})


def problem(code: str, kind: str, text: str, *, retryable: bool, **more: Any) -> bytes:
    found = {"code": code, "type": kind, "message": text, "retryable": retryable, **more}
    return json.dumps(found).encode()


def cancelled_error(*, stopped: bool) -> bytes:
    text = "The task was cancelled"
    return problem("cancelled", "TaskCancelled", text, retryable=False, stopped=stopped)


DEADLINE = problem("deadline_exceeded", "DeadlineExceeded", "The deadline passed", retryable=False)
EXHAUSTED = problem(
    "dispatch_exhausted", "DispatchExhausted", "No worker claimed the task", retryable=True
)
LOST = problem("node_failed", "WorkerLost", "The process that ran the task ended", retryable=True)
POISON = problem(
    "poison",
    "Poison",
    "The task killed the process that ran it alone, 2 times",
    retryable=False,
)


@dataclass(frozen=True, slots=True)
class Payload:
    """What an event brings into the record."""

    error: bytes = NULL
    progress: bytes = NULL
    usage: bytes = NULL
    output: bytes = NULL


@dataclass(slots=True)
class Task:
    """A record with what the scripts keep beside it."""

    asked: Submission
    snap: Snapshot
    deadline: int
    ttl: int
    shown: Payload = field(default_factory=Payload)
    errors: list[bytes] = field(default_factory=list)
    fence: str | None = None
    worker: str = ""
    cancel: bool = False
    queued: str = "no"  # no | out | parked | held
    redispatched: int = 0
    chunks: int = 0
    seq: int = 0
    first_started: int = 0
    entries: list[StreamEntry] = field(default_factory=list)

    @property
    def task_id(self) -> str:
        """Return the id."""
        return self.asked.task_id

    @property
    def slot(self) -> tuple[str, str]:
        """Return the place at the gate: list and tenant."""
        return self.asked.list_name, self.asked.tenant

    @property
    def scopes(self) -> tuple[str, str]:
        """Return by what it may be paused."""
        node = json.loads(b"{" + self.asked.tail.partition(b",")[0] + b"}")["node"]
        return f"queue:{self.asked.list_name}", f"node:{node}"


@dataclass(frozen=True, slots=True)
class OracleRecord:
    """A stored task as a reader sees it."""

    state: NodeState
    tenant: str
    etag: str
    json: bytes


class Oracle:
    """Keep tasks in memory.

    Args:
        clock: milliseconds since 1970.
        gate_limit: messages one tenant may have in one list, 0 for no limit.
        lease_ms: how long a worker's silence is believed; also the time to claim a message.

    """

    def __init__(
        self, clock: Callable[[], int], *, gate_limit: int = 0, lease_ms: int = 15_000
    ) -> None:
        self._clock = clock
        self._limit = gate_limit
        self._lease_ms = lease_ms
        self.tasks: dict[str, Task] = {}
        self.keys: dict[tuple[str, str], tuple[str, str]] = {}
        self.lists: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
        self.unclaimed: dict[str, dict[str, int]] = defaultdict(dict)
        self.parked: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.gate: Counter[tuple[str, str]] = Counter()
        self.leases: dict[str, int] = {}
        self.held: dict[str, set[str]] = defaultdict(set)
        self.due: dict[str, int] = {}
        self.dead: list[str] = []
        self.paused: set[str] = set()
        self.lines: dict[str, list[str]] = defaultdict(list)
        self.published: list[tuple[str, str, int, int]] = []
        self._effects: dict[Effect, Callable[[Task, Event], None]] = {
            Effect.PERSIST: lambda _task, _event: None,
            Effect.COMPENSATE: lambda _task, _event: None,
            Effect.PUBLISH: self._publish,
            Effect.DISPATCH: self._send,
            Effect.TIMER: self._set_timer,
            Effect.DEAD_LETTER: self._bury,
        }

    # -- Tasks -------------------------------------------------------------------------------

    def submit(self, submission: Submission) -> Accepted:
        """Accept a task, or find it accepted."""
        known = self.tasks.get(submission.task_id)
        if known:
            return Accepted(submission.task_id, known.snap.version, known.snap.created_at)
        key = (submission.tenant, submission.idempotency)
        if submission.idempotency and key in self.keys:
            first, fingerprint = self.keys[key]
            if fingerprint != submission.fingerprint:
                raise AsyncNodesError("idempotency_mismatch", task_id=first)
            snap = self.tasks[first].snap
            return Accepted(first, snap.version, snap.created_at, replayed=True, state=snap.state)
        now = self._clock()
        snap = submitted(now, delay_ms=submission.delay_ms)
        task = Task(submission, snap, submission.deadline_ms, submission.ttl_ms)
        self.tasks[submission.task_id] = task
        if submission.idempotency:
            self.keys[key] = (submission.task_id, submission.fingerprint)
        if task.deadline:
            self.due[f"d:{task.task_id}"] = task.deadline
        if submission.delay_ms:
            self.due[f"w:{task.task_id}"] = now + submission.delay_ms
        else:
            self._dispatch(task)
        self._tell(task, "state")
        return Accepted(submission.task_id, 1, now)

    def read(self, task_id: str) -> OracleRecord | None:
        """Return the record, or None."""
        task = self.tasks.get(task_id)
        if task is None:
            return None
        snap = task.snap
        return OracleRecord(snap.state, task.asked.tenant, f'"{snap.version}"', self._json(task))

    def claim(self, task_id: str, dispatch: int, *, worker: str, fence: str) -> Claim | Refused:
        """Turn a message into a claim."""
        task = self.tasks.get(task_id)
        if task is None:
            return Refused("gone")
        if task.snap.state is not NodeState.RUNNING or task.fence != fence:
            refused = self._may_not_start(task, dispatch, worker)
            if refused:
                return Refused(refused)
            scope = next((one for one in task.scopes if one in self.paused), None)
            if scope:
                self._hold(task, scope)
                return Refused("held")
            self._undispatch(task)
            self._happen(task, Event(_E.START, self._clock()), Payload())
            task.fence, task.worker, task.redispatched, task.chunks = fence, worker, 0, 0
            task.first_started = task.first_started or task.snap.started_at
            self.held[worker].add(task_id)
        return self._claim_of(task, fence)

    def take(
        self, lists: Sequence[str], most: int, *, worker: str, fences: dict[str, str]
    ) -> Taken:
        """Pop messages and claim their tasks: each list its share first, then whatever is left.

        Args:
            lists: names, most urgent first.
            most: how many tasks at most.
            worker: the worker.
            fences: the fence for each task that will be claimed.

        """
        if not self.leases.get(worker):
            return Taken(leased=False)
        claims: list[Claim] = []
        expired: list[str] = []
        for shares in (SHARES, None):
            for place, name in enumerate(lists):
                wanted = most - len(claims) - len(expired)
                if shares and len(lists) > 1:
                    wanted = min(wanted, math.ceil(most * shares[place] / 10))
                while wanted > 0 and self.lists[name]:
                    task_id, dispatch, _ = self.lists[name].pop()
                    if any(claim.task_id == task_id for claim in claims):
                        continue  # an older message of a task that this take has claimed
                    fence = fences.get(task_id, "")
                    said = self.claim(task_id, dispatch, worker=worker, fence=fence)
                    if isinstance(said, Claim):
                        claims.append(said)
                    elif said.why == "expired":
                        expired.append(task_id)
                    wanted -= isinstance(said, Claim) or said.why == "expired"
        return Taken(tuple(claims), tuple(expired))

    def progress(self, task_id: str, fence: str, json: bytes) -> Applied:
        """Show progress."""
        task = self._owned(task_id, fence)
        if task is None:
            return Applied(applied=False, version=0, cancel_asked=False)
        self._happen(task, Event(_E.PROGRESS, self._clock()), Payload(progress=json))
        task.entries.append(StreamEntry(task.snap.version, 0, "progress", json))
        return Applied(applied=True, version=task.snap.version, cancel_asked=task.cancel)

    def chunk(self, task_id: str, fence: str, json: bytes, *, number: int = 0) -> Applied:
        """Append a chunk."""
        task = self._owned(task_id, fence)
        if task is None:
            return Applied(applied=False, version=0, cancel_asked=False)
        if not 0 < number <= task.chunks:
            task.chunks = max(task.chunks, number)
            task.seq += 1
            task.entries.append(StreamEntry(task.snap.version, task.seq, "chunk", json))
            self._happen(task, Event(_E.CHUNK, self._clock()))
        return Applied(applied=True, version=task.snap.version, cancel_asked=task.cancel)

    def finish(
        self, task_id: str, fence: str, ending: Ending, *, origin: object = None
    ) -> Finished:
        """End an attempt."""
        task = self.tasks.get(task_id)
        if task is None:
            return Finished(applied=False, version=0, state=None)
        if task.snap.state is not NodeState.RUNNING or task.fence != fence:
            snap = task.snap
            same = task.fence == fence and snap.state is not NodeState.RUNNING
            return Finished(applied=same, version=snap.version, state=snap.state)
        event, payload = self._ending(task, ending)
        self._happen(task, event, payload)
        return Finished(applied=True, version=task.snap.version, state=task.snap.state)

    def cancel(self, task_id: str, *, tenant: str) -> Cancelled:
        """End a waiting task or ask a running one to stop."""
        task = self.tasks.get(task_id)
        if task is None or task.asked.tenant != tenant:
            return Cancelled("gone")
        if task.snap.state is NodeState.PENDING:
            event = Event(_E.CANCEL, self._clock())
            self._happen(task, event, Payload(error=cancelled_error(stopped=True)))
            if task.snap.attempt:
                self.due[f"e:{task_id}"] = event.at
            return Cancelled("cancelled", task.snap.version)
        if task.snap.state.terminal:
            return Cancelled("finished", task.snap.version, task.snap.state)
        if not task.cancel:
            task.cancel = True
            self._happen(task, Event(_E.CANCEL_ASKED, self._clock()))
        return Cancelled("asked", task.snap.version)

    def submit_many(self, submissions: Sequence[Submission]) -> list[Accepted | AsyncNodesError]:
        """Accept tasks, each by itself."""
        answers: list[Accepted | AsyncNodesError] = []
        for one in submissions:
            try:
                answers.append(self.submit(one))
            except AsyncNodesError as error:
                answers.append(error)
        return answers

    def delete(self, task_id: str, *, tenant: str) -> Deleted:
        """Remove every trace of a task that has ended."""
        task = self.tasks.get(task_id)
        if task is None or task.asked.tenant != tenant:
            return Deleted("gone")
        if not task.snap.state.terminal:
            return Deleted("unfinished", task.snap.version, task.snap.state)
        if f"e:{task_id}" in self.due:
            return Deleted("closing", task.snap.version, task.snap.state)
        del self.tasks[task_id]
        self.keys = {key: named for key, named in self.keys.items() if named[0] != task_id}
        self.dead = [one for one in self.dead if one != task_id]
        return Deleted("deleted")

    # -- Channels ----------------------------------------------------------------------------

    def entries(self, task_id: str, *, after: tuple[int, int]) -> list[StreamEntry]:
        """Return chunks and progress after a position."""
        task = self.tasks.get(task_id)
        found = task.entries if task else []
        return [entry for entry in found if (entry.version, entry.seq) > after]

    # -- Ops ---------------------------------------------------------------------------------

    def register(self, worker: str, _info: bytes = b"") -> None:
        """Give a lease."""
        self.leases[worker] = self._clock() + self._lease_ms

    def renew(self, worker: str, held: Sequence[str] = (), _info: bytes = b"") -> bool:
        """Renew a lease and the messages held."""
        if worker not in self.leases:
            return False
        self.register(worker)
        for task_id in held:
            task = self.tasks.get(task_id)
            if task and task.queued == "out":
                self.unclaimed[task.asked.list_name][task_id] = self._clock()
        return True

    def expire(self, worker: str) -> None:
        """Give up a lease."""
        if worker in self.leases:
            self.leases[worker] = 0

    def retire(self, worker: str) -> None:
        """Sign off an idle worker."""
        if not self.held[worker]:
            self.leases.pop(worker, None)

    def lost(self, task_id: str, *, worker: str, dispatch: int, isolated: bool) -> str:
        """Report a dead child."""
        task = self.tasks.get(task_id)
        if task is None:
            return "gone"
        same = task.snap.dispatch == dispatch
        if task.snap.state is NodeState.RUNNING and task.worker == worker:
            return self._lose(task, isolated=isolated) if same or not dispatch else "stale"
        if task.queued == "out" and same:
            return self._send_again(task)
        return "stale"

    def fire_timers(self, order: Sequence[str] = ()) -> TimersFired:
        """Fire what is due.

        Args:
            order: ids in the order the other store took them, where equal times leave it open.

        """
        now = self._clock()
        ended: list[str] = []
        fired = [(_rank(order, one[2:]), at, one) for one, at in self.due.items() if at <= now]
        for _, _, member in sorted(fired):
            self.due.pop(member, None)
            task = self.tasks.get(member[2:])
            if task and self._fire(task, member[0], now):
                self._note_end(task, ended)
        following = min(self.due.values(), default=None)
        next_in = None if following is None else max(following - now, 0) / 1000
        return TimersFired(next_in, tuple(ended))

    def settle(self, task_id: str) -> None:
        """Hear that a task was cleaned up after."""
        self.due.pop(f"e:{task_id}", None)

    def sweep(self, order: Sequence[str] = ()) -> Swept:
        """Recover what was left behind; `order` as for `fire_timers`."""
        now = self._clock()
        rescued, again, ended = 0, 0, []
        for worker in [name for name, until in self.leases.items() if until <= now]:
            for task_id in sorted(self.held.pop(worker, ()), key=lambda one: _rank(order, one)):
                rescued += 1
                if self._lose(self.tasks[task_id], isolated=False) != "lost":
                    self._note_end(self.tasks[task_id], ended)
            del self.leases[worker]
        for name, waiting in self.unclaimed.items():
            oldest = self.lists[name][-1][2] if self.lists[name] else now
            horizon = min(oldest - 1, now - self._lease_ms)
            for task_id in [one for one, at in waiting.items() if at <= horizon]:
                if self._send_again(self.tasks[task_id]) == "again":
                    again += 1
                else:
                    self._note_end(self.tasks[task_id], ended)
        for scope in sorted(self.lines, key=lambda one: _rank(order, "".join(self.lines[one][:1]))):
            self.release(scope, len(self.lines[scope]))
        return Swept(rescued, again, 0, tuple(ended))

    def release(self, scope: str, most: int) -> tuple[int, int]:
        """Dispatch held tasks again, the longest held first; answer how many, and how many stay."""
        released = 0 if scope in self.paused else min(most, len(self.lines[scope]))
        for _ in range(released):
            task = self.tasks[self.lines[scope].pop(0)]
            task.queued = "no"
            self._happen(task, Event(_E.WAKE, self._clock()))
        return released, len(self.lines[scope])

    # -- what the machine says, carried out ------------------------------------------------------

    def _happen(self, task: Task, event: Event, payload: Payload | None = None) -> None:
        before, decision = task.snap, decide(task.snap, event)
        after = decision.record
        gives_up = before.state is NodeState.RUNNING and after.state is not NodeState.RUNNING
        if gives_up or after.state.terminal:
            self._detach(task)
        task.snap = after
        if after.version != before.version:
            task.seq = 0
        if len(after.attempts) > len(before.attempts):
            task.errors.append((payload or Payload()).error)
        if payload is not None:
            task.shown = payload
        for effect in decision.effects:
            self._effects[effect](task, event)

    def _detach(self, task: Task) -> None:
        self.held[task.worker].discard(task.task_id)
        self._undispatch(task)
        self.due.pop(f"w:{task.task_id}", None)

    def _bury(self, task: Task, _event: Event) -> None:
        self.dead.append(task.task_id)
        task.ttl = max(task.ttl, DEAD_LETTER_MS)

    def _publish(self, task: Task, event: Event) -> None:
        if task.snap.state.terminal:
            for kind in "dc":
                self.due.pop(f"{kind}:{task.task_id}", None)
            self._tell(task, "done")
        else:
            kinds = {_E.PROGRESS: "progress", _E.CHUNK: "chunk"}
            self._tell(task, kinds.get(event.type, "state"))

    def _tell(self, task: Task, kind: str) -> None:
        self.published.append((task.task_id, kind, task.snap.version, task.seq))

    def _set_timer(self, task: Task, event: Event) -> None:
        if event.type is _E.CANCEL_ASKED:
            self.due[f"c:{task.task_id}"] = event.at + CANCEL_GRACE_MS
        else:
            self.due[f"w:{task.task_id}"] = event.due

    def _send(self, task: Task, event: Event) -> None:
        if task.queued == "out":
            self._push(task)
        else:
            self._dispatch(task, front=event.type in {_E.RELEASE, _E.LOST})

    def _dispatch(self, task: Task, *, front: bool = False) -> None:
        task.redispatched = 0
        if self._limit:
            if not front and self.gate[task.slot] >= self._limit:
                task.queued = "parked"
                self.parked[task.slot].append(task.task_id)
                return
            self.gate[task.slot] += 1
        self._push(task, front=front)

    def _push(self, task: Task, *, front: bool = False) -> None:
        task.queued = "out"
        messages, now = self.lists[task.asked.list_name], self._clock()
        sent_at = min(now, messages[-1][2]) if front and messages else now
        message = (task.task_id, task.snap.dispatch, sent_at)
        messages.insert(len(messages) if front else 0, message)
        self.unclaimed[task.asked.list_name][task.task_id] = now

    def _hold(self, task: Task, scope: str) -> None:
        self._undispatch(task)
        task.queued = "held"
        self.lines[scope].append(task.task_id)
        self._happen(task, Event(_E.HOLD, self._clock()))

    def _undispatch(self, task: Task) -> None:
        was, task.queued = task.queued, "no"
        if was == "held":
            for scope in task.scopes:
                if task.task_id in self.lines[scope]:
                    self.lines[scope].remove(task.task_id)
        if was == "parked":
            self.parked[task.slot].remove(task.task_id)
        if was != "out":
            return
        del self.unclaimed[task.asked.list_name][task.task_id]
        if not self._limit:
            return
        self.gate[task.slot] -= 1
        if self.gate[task.slot] < self._limit and self.parked[task.slot]:
            self.gate[task.slot] += 1
            self._push(self.tasks[self.parked[task.slot].pop(0)])

    # -- decisions -----------------------------------------------------------------------------

    def _may_not_start(self, task: Task, dispatch: int, worker: str) -> str:
        startable = (task.snap.state, _E.START) in TABLE and task.queued in ("out", "parked")
        if not startable or task.snap.dispatch != dispatch:
            return "stale"
        if not self.leases.get(worker):
            return "no_lease"
        if self._late(task):
            self._happen(task, Event(_E.TIMEOUT, self._clock()), Payload(error=DEADLINE))
            return "expired"
        return ""

    def _ending(self, task: Task, ending: Ending) -> tuple[Event, Payload]:
        assert ending.event in _ENDINGS, ending.event
        now, kind = self._clock(), ending.event
        side = Payload(ending.error, ending.progress, ending.usage)
        if task.cancel and kind is not _E.COMPLETE:
            kind = _E.CANCEL
        if kind is _E.CANCEL:
            return Event(kind, now), replace(side, error=cancelled_error(stopped=True))
        if kind is _E.COMPLETE:
            return Event(kind, now), replace(side, error=NULL, output=ending.output)
        if kind is _E.RELEASE:
            return Event(kind, now), Payload(error=ending.error)
        if kind is not _E.RETRY:
            return Event(kind, now, late=kind is _E.TIMEOUT and self._late(task)), side
        if task.deadline and now + ending.delay_ms >= task.deadline:
            return Event(_E.ERROR, now, late=True), side
        return Event(kind, now, due=now + max(ending.delay_ms, 1)), Payload(error=ending.error)

    def _lose(self, task: Task, *, isolated: bool) -> str:
        now, task.fence = self._clock(), None
        if task.cancel:
            error = cancelled_error(stopped=True)
            self._happen(task, Event(_E.CANCEL, now), Payload(error=error))
            return "cancelled"
        event = Event(_E.LOST, now, isolated=isolated, late=self._late(task))
        reason = decide(task.snap, event).record.reason
        errors = {Reason.POISON: POISON, Reason.DEADLINE: DEADLINE, Reason.LOST: LOST}
        self._happen(task, event, Payload(error=errors[reason]))
        return reason.value

    def _send_again(self, task: Task) -> str:
        if task.redispatched >= task.asked.max_dispatches:
            self._happen(task, Event(_E.ERROR, self._clock()), Payload(error=EXHAUSTED))
            return "exhausted"
        task.redispatched += 1
        self._happen(task, Event(_E.LOST, self._clock()))
        return "again"

    def _note_end(self, task: Task, ended: list[str]) -> None:
        """Tell of an end, and again a lease later, until somebody has cleaned up."""
        ended.append(task.task_id)
        if task.snap.attempt:
            self.due[f"e:{task.task_id}"] = self._clock() + self._lease_ms

    def _fire(self, task: Task, kind: str, now: int) -> bool:
        """Let a timer do its work; true if there is an end to be told of."""
        snap = task.snap
        if kind == "e":
            return snap.state.terminal and snap.state is not NodeState.SUCCEEDED
        if kind == "w":
            if snap.state is NodeState.PENDING and snap.next_attempt_at:
                self._happen(task, Event(_E.WAKE, now))
            return False
        if snap.state.terminal:
            return False
        if kind == "d" and snap.state is NodeState.PENDING:
            self._happen(task, Event(_E.TIMEOUT, now), Payload(error=DEADLINE))
        elif kind == "d" and now < task.deadline + DEADLINE_GRACE_MS:
            self.due[f"d:{task.task_id}"] = task.deadline + DEADLINE_GRACE_MS
            return False
        elif kind == "d":
            task.fence = None
            self._happen(task, Event(_E.TIMEOUT, now, late=True), Payload(error=DEADLINE))
        else:
            task.fence = None
            error = cancelled_error(stopped=False)
            self._happen(task, Event(_E.CANCEL, now, stopped=False), Payload(error=error))
        return True

    def _late(self, task: Task) -> bool:
        return bool(task.deadline) and self._clock() >= task.deadline

    def _owned(self, task_id: str, fence: str) -> Task | None:
        task = self.tasks.get(task_id)
        if task and task.snap.state is NodeState.RUNNING and task.fence == fence:
            return task
        return None

    # -- what is shown -------------------------------------------------------------------------

    def _claim_of(self, task: Task, fence: str) -> Claim:
        asked, snap = task.asked, task.snap
        inputs = asked.tail[asked.inputs_at : asked.inputs_at + asked.inputs_len]
        return Claim(
            task.task_id, fence, snap.version, snap.attempt, snap.spent, snap.losses, snap.deaths,
            snap.queued_at, snap.started_at, task.first_started, task.deadline, asked.timeout_ms,
            snap.created_at, asked.tenant, asked.private, inputs, asked.list_name,
        )  # fmt: skip

    def _json(self, task: Task) -> bytes:
        snap, shown = task.snap, task.shown
        expires = snap.finished_at + task.ttl if snap.state.terminal else 0
        head = {
            "task_id": task.task_id,
            "state": snap.state,
            "reason": snap.reason or None,
            "version": snap.version,
            "attempt": snap.attempt,
            "losses": snap.losses,
            "created_at": _time(snap.created_at),
            "started_at": _time(snap.started_at),
            "finished_at": _time(snap.finished_at),
            "next_attempt_at": _time(snap.next_attempt_at),
            "expires_at": _time(expires),
            "output_bytes": 0 if shown.output == NULL else len(shown.output),
        }
        attempts = [
            {
                "attempt": one.attempt,
                "queued_at": _time(one.queued_at),
                "started_at": _time(one.started_at),
                "finished_at": _time(one.finished_at),
                "outcome": one.outcome,
                "error": json.loads(error),
                "versions": one.versions,
            }
            for one, error in zip(snap.attempts, task.errors, strict=True)
        ]
        if len(shown.output) > INLINE_OUTPUT:
            shown = replace(shown, output=NULL)
        parts = ("progress", "error", "usage", "output")
        payload = b",".join(b'"%s":%s' % (name.encode(), getattr(shown, name)) for name in parts)
        opening = json.dumps(head, separators=(",", ":")).encode()[:-1]
        listed = json.dumps(attempts, separators=(",", ":")).encode()
        return b'%s,%s"attempts":%s,%s}' % (opening, task.asked.tail, listed, payload)


def _time(milliseconds: int) -> str | None:
    return iso(milliseconds) if milliseconds else None


def _rank(order: Sequence[str], task_id: str) -> int:
    return order.index(task_id) if task_id in order else len(order)
