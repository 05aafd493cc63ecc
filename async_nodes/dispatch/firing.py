"""Step 1, submit, by the clock: from a schedule that is due to a task in the store.

The store offers a schedule to whoever looks first, and again a little later to somebody else; of
all who try, one fires a tick. Decides with `core.schedule.plan`; knows nothing of threads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ports import Accepted
from async_nodes.core.priority import list_of
from async_nodes.core.schedule import Plan, Schedule, plan
from async_nodes.core.strict_json import dumps
from async_nodes.dispatch.request import parse
from async_nodes.dispatch.schedules import spec_of, ticked
from async_nodes.dispatch.submit import Submitted, compose, digest_of_key, fingerprint, submitted
from async_nodes.storage.schedules import Firing

if TYPE_CHECKING:
    from async_nodes.core.ids import IdSource
    from async_nodes.core.ports import Submission
    from async_nodes.dispatch.request import SubmitRequest
    from async_nodes.nodes import NodeSpec
    from async_nodes.settings import Settings
    from async_nodes.storage.schedules import Schedules, StoredSchedule

AT_ONCE: Final = 20
"""Ticks of one schedule that one call fires; the next call goes on."""

PATIENCE: Final = 30.0
"""Seconds for which a schedule whose task cannot be read here is left to others: while a release is
rolled out, processes differ in the nodes that they know."""

HELD_MS: Final = 5_000
"""After how many milliseconds a schedule is looked at again whose queue takes no tasks."""

_TRIES: Final = 5
_MOST_FAILING: Final = 10_000


class Firer:
    """Fire schedules.

    Args:
        schedules: where they are.
        ids: makes the tasks' ids.
        nodes: the registry.
        settings: for the default time-out.
        admit: refuses what is not let in, by its list and its node.
        patience: see `PATIENCE`.
        clock: seconds that only rise.

    """

    def __init__(
        self,
        schedules: Schedules,
        ids: IdSource,
        nodes: Mapping[str, NodeSpec],
        settings: Settings,
        *,
        admit: Callable[[str, str], None],
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedules = schedules
        self._ids = ids
        self._nodes = nodes
        self._default_timeout_ms = round(settings.soft_time_limit * 1000)
        self._admit = admit
        self._patience = patience
        self._clock = clock
        self._failing: dict[tuple[str, str], float] = {}
        self._looked_up_to = ""

    # -- by the clock ------------------------------------------------------------------------

    def fire(self, tenant: str, name: str) -> list[str]:
        """Deal with a schedule that is due; return what was done, a word a step.

        The words: ``fired``, ``skipped`` (its last task has not ended), ``passed`` (ticks were
        given up), ``stale`` (somebody else was first), ``early``, ``left`` (to others, or for
        later), ``paused`` (its task cannot be sent any more), ``gone``.

        Raises:
            StoreUnavailable: the store does not answer; it offers the schedule again.

        """
        stored, now = self._schedules.read(tenant, name)
        if stored is None or stored.paused or not stored.next_ms:
            self._schedules.arm(tenant, name, next_ms=0, at_ms=0)
            return ["gone"]
        try:
            schedule = spec_of(stored.spec).schedule(tenant, name)
            made = plan(schedule, stored.next_ms, now)
            request = self._request(stored, now) if made.fires else None
        except AsyncNodesError as error:
            return [self._put_off(stored, error, now)]
        self._failing.pop((tenant, name), None)
        if made.following == stored.next_ms:
            due = schedule.due(stored.next_ms)
            self._schedules.arm(tenant, name, next_ms=stored.next_ms, at_ms=due)
            return ["early"]
        done: list[str] = []
        for firing in islice(_steps(stored, schedule, made, now), AT_ONCE):
            done.append(self._step(stored, firing, request, now))
            if done[-1] in {"stale", "gone"}:
                break
        return done

    def look_after(self) -> int:
        """Look whether some schedules have lost their timers; return how many had.

        Each call looks at the next ones. Raises StoreUnavailable.
        """
        self._looked_up_to, found = self._schedules.rearm(self._looked_up_to)
        return found

    def _step(
        self, stored: StoredSchedule, firing: Firing, request: SubmitRequest | None, now: int
    ) -> str:
        submission = None
        if request is not None and firing.tick is not None:
            submission = self._composed(stored, ticked(request, stored.name, firing.tick), now)
        said = self._schedules.fire(stored.tenant, stored.name, firing, submission)
        return said if isinstance(said, str) else "fired"

    def _put_off(self, stored: StoredSchedule, error: AsyncNodesError, now: int) -> str:
        """Leave a schedule to others or for later, or pause it if nobody can fire it."""
        place = (stored.tenant, stored.name)
        if error.code == "draining":
            self._schedules.arm(*place, next_ms=stored.next_ms, at_ms=now + HELD_MS)
            return "left"
        if len(self._failing) > _MOST_FAILING:
            self._failing.clear()
        since = self._failing.setdefault(place, self._clock())
        if self._clock() - since < self._patience:
            soon = now + random.randint(300, 1_500)  # noqa: S311 - so that another one looks first
            self._schedules.arm(*place, next_ms=stored.next_ms, at_ms=soon)
            return "left"
        del self._failing[place]
        reason = dumps({"code": error.code, "detail": error.detail})
        self._schedules.pause(*place, version=stored.version, reason=reason)
        return "paused"

    # -- by hand -----------------------------------------------------------------------------

    def trigger(
        self, tenant: str, name: str, *, key: str = "", traceparent: str | None = None
    ) -> Submitted:
        """Send a schedule's task now, paused or not; its ticks stay what they are.

        Args:
            tenant: whose schedule it is.
            name: the schedule's.
            key: the client's own name for this request, empty for none.
            traceparent: the caller's trace (W3C).

        Raises:
            AsyncNodesError: ``schedule_not_found``, and what a submit raises.

        """
        for _ in range(_TRIES):
            stored, now = self._schedules.read(tenant, name)
            if stored is None:
                break
            request = self._request(stored, now)
            submission = self._composed(
                stored, ticked(request, name, now), now, key=key, traceparent=traceparent
            )
            if key:  # sent again it means the same, though the time is another
                submission = replace(submission, fingerprint=fingerprint(request))
            firing = Firing(version=stored.version, expected=None, tick=now)
            said = self._schedules.fire(tenant, name, firing, submission)
            if isinstance(said, Accepted):
                return submitted(said)
        raise AsyncNodesError("schedule_not_found", name=name)

    # -- its task ----------------------------------------------------------------------------

    def _request(self, stored: StoredSchedule, now: int) -> SubmitRequest:
        request = parse(stored.task, self._nodes, now_ms=now)
        self._admit(list_of(request.spec.kind, request.priority), request.spec.name)
        return request

    def _composed(
        self,
        stored: StoredSchedule,
        request: SubmitRequest,
        now: int,
        *,
        key: str = "",
        traceparent: str | None = None,
    ) -> Submission:
        return compose(
            request,
            task_id=self._ids.make(now),
            tenant=stored.tenant,
            default_timeout_ms=self._default_timeout_ms,
            idempotency=digest_of_key(stored.tenant, key) if key else "",
            traceparent=traceparent,
            base=spec_of(stored.spec).base,
        )


def _steps(stored: StoredSchedule, schedule: Schedule, made: Plan, now: int) -> Iterator[Firing]:
    """Return a plan's steps: each expects what the one before it leaves to wait for."""
    expected, passed = stored.next_ms, made.passed
    ticks: tuple[int | None, ...] = made.fires or (None,)
    for tick, following in zip(ticks, (*ticks[1:], made.following), strict=True):
        waits = following is not None and following == made.following
        yield Firing(
            version=stored.version,
            expected=expected,
            tick=tick,
            following=following or 0,
            due_ms=schedule.due(following) if waits and following is not None else now,
            passed=passed,
        )
        expected, passed = following or 0, 0
