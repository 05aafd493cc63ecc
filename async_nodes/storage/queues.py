"""The queues as they are now: how much waits in each, since when, and who takes from it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.priority import LISTS
from async_nodes.core.states import NodeState, Reason
from async_nodes.core.waiting import HELD, OUT, PARKED, Facts
from async_nodes.storage import layout
from async_nodes.storage.controls import Control, Mode, control_of, node_scope, queue_scope
from async_nodes.storage.workers import Crew, Workers, crew

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

MOST_TIMERS: Final = 2_000
"""Timers that are looked at to count what is delayed: some milliseconds, of this process mostly."""

_SENT_AT: Final = re.compile(rb'"an_at": ?([0-9]+)')
_WAKE: Final = b"w:"
_FIRST_COLUMNS: Final = ("state", "reason", "list")
_HEAD: Final = 1 + len(_FIRST_COLUMNS)
"""Bytes of a record that have its schema and these columns, one byte each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Hold what there is to see of one list.

    Attributes:
        name: of `priority.LISTS`.
        control: what is in force for it.
        depth: messages in the list.
        unclaimed: tasks whose message is out: in the list, or on its way to a body.
        parked: tasks that wait to be let in.
        held: tasks that its pause holds.
        delayed, backoff: tasks that a timer will bring, before a first and before a new attempt.
        oldest_seconds: since the oldest of the unclaimed was dispatched, None without one.
        crew: who takes from it.

    """

    name: str
    control: Control | None
    depth: int
    unclaimed: int
    parked: int
    held: int
    delayed: int
    backoff: int
    oldest_seconds: float | None
    crew: Crew


@dataclass(frozen=True, slots=True)
class Overview:
    """Hold all queues.

    Attributes:
        queues: in the order of `priority.LISTS`.
        exact: false when there are more timers than were looked at, and so perhaps more tasks
            delayed than are told.

    """

    queues: tuple[Queue, ...]
    exact: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Tell where a task waits.

    Attributes:
        facts: for `waiting.explain`.
        list_name: the list it goes to.
        place: where it waits: ``queue``, ``gate`` or ``hold``; empty where nothing is in line.
        position: its place in that line from 1 on, None when it is in none.
        length: of the line.

    """

    facts: Facts
    list_name: str
    place: str = ""
    position: int | None = None
    length: int = 0


class Queues:
    """Look at the queues.

    Args:
        store: which holds them.

    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def overview(self) -> Overview:
        """Return all queues as they are now."""
        now = self._now()
        parked = self._parked()
        waiting, exact = self._timers()
        workers = Workers(self._store).all()
        looked = zip(LISTS, self._lines(), strict=True)
        queues = []
        for name, (message, first, depth, unclaimed, held, raw) in looked:
            since = _oldest(message, first)
            queues.append(
                Queue(
                    name=name,
                    control=control_of(raw) if raw else None,
                    depth=depth,
                    unclaimed=unclaimed,
                    parked=parked[name],
                    held=held,
                    delayed=waiting[name, Reason.DELAYED],
                    backoff=waiting[name, Reason.BACKOFF],
                    oldest_seconds=None if since is None else max(now - since, 0) / 1000,
                    crew=crew(workers, name),
                )
            )
        return Overview(tuple(queues), exact)

    def _lines(self) -> list[list[Any]]:
        """Return of each list: oldest message, first of the unclaimed, three counts, control."""
        keys = self._store.keys
        questions = [
            (
                ("LINDEX", keys.queue(name), -1),
                ("ZRANGE", keys.unclaimed(name), 0, 0, "WITHSCORES"),
                ("LLEN", keys.queue(name)),
                ("ZCARD", keys.unclaimed(name)),
                ("LLEN", keys.held(queue_scope(name))),
                ("HGET", keys.controls, queue_scope(name)),
            )
            for name in LISTS
        ]
        answers = self._store.link.call_many([one for asked in questions for one in asked])
        width = len(questions[0])
        return [answers[at : at + width] for at in range(0, len(answers), width)]

    def _parked(self) -> Counter[str]:
        """Return how many tasks of all tenants are parked, by list."""
        keys = self._store.keys
        slots = [slot.decode() for slot in self._store.link.call("HKEYS", keys.gate)]
        found = self._store.link.call_many([("LLEN", keys.parked(slot)) for slot in slots])
        counts: Counter[str] = Counter()
        for slot, count in zip(slots, found, strict=True):
            counts[slot.partition(":")[0]] += count
        return counts

    def _timers(self) -> tuple[Counter[tuple[str, Reason]], bool]:
        """Return how many tasks a timer will bring, by list and reason, and if that is all."""
        keys, link = self._store.keys, self._store.link
        members = link.call("ZRANGE", keys.due, 0, MOST_TIMERS)
        ids = [one[len(_WAKE) :].decode() for one in members[:MOST_TIMERS] if one[:2] == _WAKE]
        heads = link.call_many([("GETRANGE", keys.task(one), 0, _HEAD - 1) for one in ids])
        counts: Counter[tuple[str, Reason]] = Counter()
        for head in heads:
            if len(head) == _HEAD and layout.STATES[head[1]] is NodeState.PENDING:
                counts[LISTS[head[3]], layout.REASONS[head[2]]] += 1
        return counts, len(members) <= MOST_TIMERS

    def _now(self) -> int:
        seconds, micros = self._store.link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    # -- one task ----------------------------------------------------------------------------

    def standing(self, document: layout.Document) -> Standing:
        """Return where a task waits and what for."""
        list_name = LISTS[document.list]
        if document.state is not NodeState.PENDING:
            return Standing(Facts(state=document.state, list_name=list_name), list_name)
        public = json.loads(document.json)
        scopes = (queue_scope(list_name), node_scope(public["node"]))
        place, position, length = self._place(document, public["task_id"], list_name, scopes)
        controls = self._store.link.call("HMGET", self._store.keys.controls, *scopes)
        scope, pause = _pause(scopes, controls)
        workers = Workers(self._store).all()
        hands = crew(workers, list_name)
        facts = Facts(
            state=document.state,
            reason=document.why,
            queued=document.queued,
            now_ms=self._now(),
            next_attempt_ms=int(document.next_attempt_at),
            error=str((public["error"] or {}).get("message", "")),
            list_name=list_name,
            paused=scope,
            paused_ms=pause.since_ms if pause else 0,
            paused_reason=(pause.reason or "") if pause else "",
            ahead=None if position is None else position - 1,
            workers=hands.workers,
            any_workers=len(workers),
            slots=hands.slots,
            running=hands.running,
            rate=hands.rate,
        )
        return Standing(facts, list_name, place, position, length)

    def _place(
        self, document: layout.Document, task_id: str, list_name: str, scopes: Sequence[str]
    ) -> tuple[str, int | None, int]:
        """Return in which line a task is, its place from 1 on, and the line's length."""
        keys, link = self._store.keys, self._store.link
        if document.queued == OUT:
            line = keys.unclaimed(list_name)
            rank, length = link.call_many([("ZRANK", line, task_id), ("ZCARD", line)])
            if document.why in (Reason.LOST, Reason.RELEASED):
                rank = 0  # put in front of all the others
            return "queue", None if rank is None else rank + 1, length
        if document.queued == PARKED:
            line = keys.parked(f"{list_name}:{document.tenant}")
            rank, length = link.call_many([("LPOS", line, task_id), ("LLEN", line)])
            return "gate", None if rank is None else rank + 1, length
        if document.queued == HELD:
            for line in map(keys.held, scopes):
                rank, length = link.call_many([("LPOS", line, task_id), ("LLEN", line)])
                if rank is not None:
                    return "hold", rank + 1, length
        return "", None, 0


def _oldest(message: bytes | None, first: Sequence[Any]) -> float | None:
    """Return since when the oldest waits, ms: by its message, or by the last sign of life of it.

    A worker that has popped a message and not started its task renews the latter.
    """
    found = _SENT_AT.search(message) if message else None
    times = [float(found[1])] if found else []
    times += [float(first[1])] if first else []
    return min(times, default=None)


def _pause(
    scopes: Sequence[str], controls: Sequence[bytes | None]
) -> tuple[str, Control] | tuple[str, None]:
    """Return the first scope that is paused, with its control."""
    for scope, raw in zip(scopes, controls, strict=True):
        control = control_of(raw) if raw else None
        if control is not None and control.mode is Mode.PAUSE:
            return scope, control
    return "", None
