"""Schedules as they are stored: one hash each, an index of their names, and a timer.

What a change or a fire leads to is decided in one script each; when a schedule ticks is decided
elsewhere and comes as numbers. Knows neither cron nor requests.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Accepted
from async_nodes.storage.commit import verdict_of
from async_nodes.storage.redis_errors import OutcomeUnknown
from async_nodes.storage.redis_store import submit_row, unknown_outcome

if TYPE_CHECKING:
    from async_nodes.core.ports import Submission
    from async_nodes.storage.redis_store import RedisStore

MOST_PER_TENANT: Final = 1_000
AT_ONCE: Final = 200
"""Schedules that one script looks after: a millisecond of the server's time."""

_FIELDS: Final = (
    "version", "spec", "task", "shown", "paused", "reason", "next", "last", "last_task", "fired",
    "missed", "skipped", "created", "updated",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Hold what a schedule is told to do. Times in milliseconds since 1970.

    Attributes:
        spec: what decides about its ticks, JSON.
        task: the request that it sends, JSON.
        shown: the same fit to be shown, empty where it is the same.
        paused: whether it begins paused.
        skips: whether a tick is skipped while the task of the one before has not ended.
        next_ms: the tick to wait for, 0 for none.
        due_ms: when to fire it.

    """

    spec: bytes
    task: bytes
    shown: bytes
    paused: bool
    skips: bool
    next_ms: int
    due_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSchedule:
    """Show a schedule. Times in milliseconds since 1970, 0 for none.

    Attributes:
        version: of its definition and its being paused; fires do not change it.
        reason: why we have paused it, JSON; empty where we have not.
        fired, missed, skipped: ticks that gave a task, that nobody fired in time, and that came
            while the task before had not ended.

    """

    tenant: str
    name: str
    version: int
    spec: bytes
    task: bytes
    shown: bytes
    paused: bool
    reason: bytes
    next_ms: int
    last_ms: int
    last_task: str
    fired: int
    missed: int
    skipped: int
    created_ms: int
    updated_ms: int


@dataclass(frozen=True, slots=True)
class Changed:
    """Tell what a change did: ok, exists, full, gone, conflict or moved, and the version now."""

    verdict: str
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Say which tick to fire, under which conditions, and what to wait for then.

    Attributes:
        version: the schedule's, as it was read.
        expected: the tick that it waits for; None to fire by hand.
        tick: the one to fire, None to give up all there are.
        following: the tick to wait for then, 0 for none.
        due_ms: when that one is to be fired.
        passed: how many ticks are given up.

    """

    version: int
    expected: int | None
    tick: int | None
    following: int = 0
    due_ms: int = 0
    passed: int = 0


class Schedules:
    """Keep the schedules of all tenants.

    Args:
        store: where they are.
        is_patient: send what may not have arrived again, as long as the store does; a thread that
            has a lease to renew cannot wait.

    """

    def __init__(self, store: RedisStore, *, is_patient: bool = True) -> None:
        self._store = store
        self._is_patient = is_patient

    # -- reading -----------------------------------------------------------------------------

    def read(self, tenant: str, name: str) -> tuple[StoredSchedule | None, int]:
        """Return a schedule, None where there is none, and the store's time in milliseconds."""
        (found,), now = self._read(tenant, [name])
        return found, now

    def page(self, tenant: str, *, after: str = "", most: int) -> tuple[list[StoredSchedule], bool]:
        """Return the next schedules in the order of their names, and whether there are more.

        Args:
            tenant: whose.
            after: the last name that is known; empty to begin.
            most: how many at most.

        """
        start, end = f"({tenant}:{after}", f"({tenant};"  # the character behind the colon
        members = self._store.link.call(
            "ZRANGEBYLEX", self._store.keys.schedules, start, end, "LIMIT", 0, most + 1
        )
        if not members:
            return [], False
        names = [member.decode().removeprefix(f"{tenant}:") for member in members[:most]]
        found, _ = self._read(tenant, names)
        return [one for one in found if one is not None], len(members) > most

    def now_ms(self) -> int:
        """Return the store's time, which all processes go by."""
        return _ms(self._store.link.call("TIME"))

    def _read(self, tenant: str, names: Sequence[str]) -> tuple[list[StoredSchedule | None], int]:
        keys = [self._store.keys.schedule(tenant, name) for name in names]
        replies = self._store.link.call_many(
            [*(("HMGET", key, *_FIELDS) for key in keys), ("TIME",)]
        )
        for reply in replies:
            if isinstance(reply, Exception):
                verdict_of(reply)
        rows = zip(names, replies[:-1], strict=True)
        return [_stored(tenant, name, fields) for name, fields in rows], _ms(replies[-1])

    # -- changing ----------------------------------------------------------------------------

    def create(self, tenant: str, name: str, definition: Definition) -> Changed:
        """Add a schedule, unless its name is taken or the tenant has too many."""
        return self._change("create", tenant, name, 0, *_columns(definition), MOST_PER_TENANT)

    def replace(
        self,
        tenant: str,
        name: str,
        definition: Definition,
        *,
        waits_for: int,
        version: int = 0,
    ) -> Changed:
        """Give a schedule another definition; what it has done stays.

        Args:
            tenant: whose.
            name: its name.
            definition: the new one.
            waits_for: the tick that it waits for: with another, nothing is changed.
            version: the one that is to be changed, 0 for any.

        """
        return self._change("replace", tenant, name, version, *_columns(definition), waits_for)

    def pause(self, tenant: str, name: str, *, version: int = 0, reason: bytes = b"") -> Changed:
        """Stop a schedule until it is resumed."""
        return self._change("pause", tenant, name, version, *_BLANK, 0, 0, reason)

    def resume(
        self, tenant: str, name: str, *, next_ms: int, due_ms: int, version: int = 0
    ) -> Changed:
        """Let a paused schedule go on with a tick, 0 for none; another is left as it is."""
        return self._change("resume", tenant, name, version, *_BLANK, next_ms, due_ms, "")

    def delete(self, tenant: str, name: str, *, version: int = 0) -> Changed:
        """Remove a schedule; tasks that it has made stay."""
        return self._change("delete", tenant, name, version, *_BLANK, 0, 0, "")

    def arm(self, tenant: str, name: str, *, next_ms: int, at_ms: int) -> None:
        """Let a schedule be offered at a time, if it waits for that tick; else what is right."""
        self._change("arm", tenant, name, 0, *_BLANK, next_ms, at_ms, "")

    def rearm(self, after: str = "", *, most: int = AT_ONCE) -> tuple[str, int]:
        """Give schedules of any tenant that wait without a timer another one.

        Args:
            after: where to go on, empty to begin.
            most: how many to look at.

        Returns:
            Where to go on, empty at the end, and how many had none.

        """
        last, found = self._store.run("rearm", after, most)
        return last.decode(), int(found)

    def _change(self, what: str, tenant: str, name: str, version: int, *rest: Any) -> Changed:
        nonce = secrets.token_hex(8)
        verdict = self._send("schedule", (what, tenant, name, nonce, version, *rest))
        return Changed(verdict[0].decode(), int(verdict[1]) if len(verdict) > 1 else 0)

    # -- firing ------------------------------------------------------------------------------

    def fire(
        self, tenant: str, name: str, firing: Firing, submission: Submission | None = None
    ) -> Accepted | str:
        """Deal with a tick, once over all who try.

        Args:
            tenant: whose schedule it is.
            name: the schedule's.
            firing: what is to happen.
            submission: the tick's task; None with a tick of None.

        Returns:
            The task; or ``skipped``, ``passed``, ``stale`` (the schedule has changed, or somebody
            else was first), ``gone``.

        Raises:
            AsyncNodesError: ``idempotency_mismatch``; ``outcome_unknown`` with ``task_id``.
            StoreUnavailable: nothing has happened.

        """
        expected = "" if firing.expected is None else str(firing.expected)
        row = (
            name, firing.version, expected, firing.tick or 0, firing.following, firing.due_ms,
            firing.passed,
        )  # fmt: skip
        if submission is None:
            verdict = self._send("fire", (*row, "", tenant.ljust(32), *("",) * 12))
            return str(verdict[0].decode())
        try:
            verdict = self._send("fire", (*row, *submit_row(submission)))
        except OutcomeUnknown as error:
            raise unknown_outcome(submission.task_id, error) from error
        if verdict[0] in {b"ok", b"replay", b"mismatch"}:
            (said,) = self._store.accepted([submission.task_id], [verdict])
            if isinstance(said, AsyncNodesError):
                raise said
            return said
        return str(verdict[0].decode())

    def _send(self, script: str, row: tuple[Any, ...]) -> Any:
        if self._is_patient:
            return self._store.row(script, row)
        return verdict_of(self._store.run(script, *row)[0])


_BLANK: Final = ("", "", "", "", "")


def _columns(definition: Definition) -> tuple[Any, ...]:
    return (
        definition.spec,
        definition.task,
        definition.shown,
        int(definition.paused),
        "skip" if definition.skips else "allow",
        definition.next_ms,
        definition.due_ms,
    )


def _stored(tenant: str, name: str, fields: Sequence[bytes | None]) -> StoredSchedule | None:
    known = dict(zip(_FIELDS, (field or b"" for field in fields), strict=True))
    if not known["version"]:
        return None
    return StoredSchedule(
        tenant=tenant,
        name=name,
        version=int(known["version"]),
        spec=known["spec"],
        task=known["task"],
        shown=known["shown"],
        paused=known["paused"] == b"1",
        reason=known["reason"],
        next_ms=int(known["next"]),
        last_ms=int(known["last"]),
        last_task=known["last_task"].decode(),
        fired=int(known["fired"]),
        missed=int(known["missed"]),
        skipped=int(known["skipped"]),
        created_ms=int(known["created"]),
        updated_ms=int(known["updated"]),
    )


def _ms(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000
