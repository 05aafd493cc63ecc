"""Create, change and show schedules: from a request's bytes to what the store keeps of it.

Knows nothing of HTTP. A change starts from what was read and is made only if that still holds, so
that no tick is fired twice or lost over it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.schedule import Overlap, first_tick
from async_nodes.dispatch.request import parse
from async_nodes.dispatch.schedules import Spec, Wanted, read, spec_of
from async_nodes.storage.schedules import MOST_PER_TENANT, Definition

if TYPE_CHECKING:
    from async_nodes.nodes import NodeSpec
    from async_nodes.settings import Settings
    from async_nodes.storage.schedules import Schedules, StoredSchedule

PREVIEW: Final = 5
"""Ticks to come that are shown of one schedule."""

_TRIES: Final = 10


class Scheduler:
    """Keep a deployment's schedules.

    Args:
        schedules: where they are.
        nodes: the registry.
        settings: for the time zone of those that name none, `CELERY_TIMEZONE`.
        base: what the links of their tasks begin with.

    """

    def __init__(
        self,
        schedules: Schedules,
        nodes: Mapping[str, NodeSpec],
        settings: Settings,
        *,
        base: str = "",
    ) -> None:
        self._schedules = schedules
        self._nodes = nodes
        self._timezone = str(settings.celery.get("timezone") or "UTC")
        self._base = base

    def create(self, raw: bytes, *, tenant: str) -> StoredSchedule:
        """Make the schedule that a body describes.

        Raises:
            AsyncNodesError: ``not_json``, ``invalid_request``, ``invalid_inputs``,
                ``unknown_node``, ``schedule_exists``, ``schedule_limit``.
            StoreUnavailable: the store does not answer.

        """
        now = self._schedules.now_ms()
        wanted = read(raw, self._nodes, now_ms=now, timezone=self._timezone)
        spec = self._anchored(wanted.spec, now)
        next_ms = first_tick(spec.schedule(tenant, wanted.name).timetable, now) or 0
        definition = _definition(wanted, spec, tenant, next_ms)
        done = self._schedules.create(tenant, wanted.name, definition)
        if done.verdict == "exists":
            raise AsyncNodesError("schedule_exists", name=wanted.name)
        if done.verdict == "full":
            raise AsyncNodesError("schedule_limit", f"there are {MOST_PER_TENANT} already")
        return self.find(wanted.name, tenant=tenant)

    def replace(
        self, name: str, raw: bytes, *, tenant: str, version: int | None = None
    ) -> StoredSchedule:
        """Give a schedule another definition.

        As long as its ticks are the same, it goes on waiting for the one it waits for; else, or if
        it was paused, it begins with the next one from now.

        Args:
            name: the schedule's.
            raw: the body, as for `create`.
            tenant: whose it is.
            version: the one that the client has read; None for any.

        Raises:
            AsyncNodesError: what `create` raises; ``schedule_not_found``, ``version_mismatch``.
            StoreUnavailable: the store does not answer.

        """
        for _ in range(_TRIES):
            before, now = self._schedules.read(tenant, name)
            if before is None:
                raise _not_found(name)
            _check_version(before, version)
            wanted = read(
                raw,
                self._nodes,
                now_ms=now,
                timezone=self._timezone,
                name=name,
                task_before=before.task,
            )
            old = spec_of(before.spec)
            is_same = wanted.spec.ticks_as(old)
            spec = self._anchored(wanted.spec, old.anchor_ms if is_same else now)
            next_ms = before.next_ms
            if not is_same or before.paused:
                next_ms = first_tick(spec.schedule(tenant, name).timetable, now) or 0
            done = self._schedules.replace(
                tenant,
                name,
                _definition(wanted, spec, tenant, next_ms),
                version=before.version,
                waits_for=before.next_ms,
            )
            if done.verdict == "ok":
                return self.find(name, tenant=tenant)
        raise _too_lively(name)

    def pause(self, name: str, *, tenant: str) -> StoredSchedule:
        """Stop a schedule until it is resumed; ticks in between are not missed ones.

        Raises:
            AsyncNodesError: ``schedule_not_found``.
            StoreUnavailable: the store does not answer.

        """
        stored = self.find(name, tenant=tenant)
        if stored.paused:
            return stored
        if self._schedules.pause(tenant, name).verdict == "gone":
            raise _not_found(name)
        return self.find(name, tenant=tenant)

    def resume(self, name: str, *, tenant: str) -> StoredSchedule:
        """Let a paused schedule go on with the next tick from now.

        Raises:
            AsyncNodesError: ``schedule_not_found``; ``unknown_node`` or ``invalid_inputs`` where
                its task could not be sent.
            StoreUnavailable: the store does not answer.

        """
        for _ in range(_TRIES):
            stored, now = self._schedules.read(tenant, name)
            if stored is None:
                raise _not_found(name)
            if not stored.paused:
                return stored
            self._check_task(stored, now)
            schedule = spec_of(stored.spec).schedule(tenant, name)
            tick = first_tick(schedule.timetable, now)
            done = self._schedules.resume(
                tenant,
                name,
                next_ms=tick or 0,
                due_ms=schedule.due(tick) if tick else 0,
                version=stored.version,
            )
            if done.verdict == "ok":
                return self.find(name, tenant=tenant)
        raise _too_lively(name)

    def delete(self, name: str, *, tenant: str, version: int | None = None) -> None:
        """Remove a schedule; tasks that it has made stay.

        Raises:
            AsyncNodesError: ``schedule_not_found``, ``version_mismatch``.
            StoreUnavailable: the store does not answer.

        """
        done = self._schedules.delete(tenant, name, version=version or 0)
        if done.verdict == "gone":
            raise _not_found(name)
        if done.verdict == "conflict":
            raise _mismatch(name, done.version)

    def find(self, name: str, *, tenant: str) -> StoredSchedule:
        """Return a schedule; raises ``schedule_not_found``."""
        stored, _ = self._schedules.read(tenant, name)
        if stored is None:
            raise _not_found(name)
        return stored

    def _anchored(self, spec: Spec, anchor_ms: int) -> Spec:
        return msgspec.structs.replace(spec, anchor_ms=anchor_ms, base=self._base)

    def _check_task(self, stored: StoredSchedule, now: int) -> None:
        parse(stored.task, self._nodes, now_ms=now)


def _definition(wanted: Wanted, spec: Spec, tenant: str, next_ms: int) -> Definition:
    return Definition(
        spec=spec.encode(),
        task=wanted.task,
        shown=wanted.shown,
        paused=wanted.paused,
        skips=spec.overlap is Overlap.SKIP,
        next_ms=next_ms,
        due_ms=spec.schedule(tenant, wanted.name).due(next_ms) if next_ms else 0,
    )


def _check_version(stored: StoredSchedule, version: int | None) -> None:
    if version is not None and version != stored.version:
        raise _mismatch(stored.name, stored.version)


def _mismatch(name: str, version: int) -> AsyncNodesError:
    return AsyncNodesError("version_mismatch", name=name, version=version)


def _not_found(name: str) -> AsyncNodesError:
    return AsyncNodesError("schedule_not_found", name=name)


def _too_lively(name: str) -> AsyncNodesError:
    detail = f"{name!r} was changed by others at the same time, again and again"
    return AsyncNodesError("store_busy", detail, retry_after=1.0)


# -- to show ---------------------------------------------------------------------------------------


def document(stored: StoredSchedule, *, base: str = "") -> dict[str, Any]:
    """Return a schedule as it is shown; `base` is what its links begin with.

    ``next_at`` is when it fires next, jitter included.
    """
    spec = spec_of(stored.spec)
    here = f"{base}/v1/schedules/{stored.name}"
    return {
        "name": stored.name,
        "cron": spec.cron,
        "every": spec.every_ms / 1000 if spec.every_ms else None,
        "timezone": spec.timezone,
        "starts_at": _time(spec.starts_ms),
        "ends_at": _time(spec.ends_ms),
        "jitter": spec.jitter_ms / 1000,
        "task": json.loads(stored.shown or stored.task),
        "missed": spec.missed.value,
        "overlap": spec.overlap.value,
        "paused": stored.paused,
        "reason": json.loads(stored.reason) if stored.reason else None,
        "next_at": next(iter(upcoming(stored, 1)), None),
        "last_at": _time(stored.last_ms or None),
        "last_task_id": stored.last_task or None,
        "counts": {
            "fired": stored.fired,
            "missed": stored.missed,
            "skipped": stored.skipped,
        },
        "version": stored.version,
        "created_at": iso(stored.created_ms),
        "updated_at": iso(stored.updated_ms),
        "links": {
            "self": here,
            **{verb: f"{here}/{verb}" for verb in ("pause", "resume", "trigger")},
            "last_task": f"{base}/v1/tasks/{stored.last_task}" if stored.last_task else None,
        },
    }


def upcoming(stored: StoredSchedule, most: int = PREVIEW) -> list[str]:
    """Return when a schedule fires next; nothing while it is paused or when it has ended."""
    if stored.paused or not stored.next_ms:
        return []
    try:
        schedule = spec_of(stored.spec).schedule(stored.tenant, stored.name)
    except AsyncNodesError:  # a time zone that this process does not know: others may
        return []
    later = islice(schedule.timetable.after(stored.next_ms), most - 1)
    return [iso(schedule.due(tick)) for tick in (stored.next_ms, *later)]


def _time(ms: int | None) -> str | None:
    return None if ms is None else iso(ms)
