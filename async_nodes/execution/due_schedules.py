"""Fire the schedules that are due, in the keeper's thread, without ever harming its lease.

However many are due, a turn takes a bounded time; what is left waits for the next one, and what a
process takes along when it dies is offered to another. A fault is told, counted, and stays here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.firing import Firer
from async_nodes.execution.keeper import say
from async_nodes.nodes.registry import registry
from async_nodes.storage.controls import Admission
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.storage.schedules import Schedules
from async_nodes.telemetry import work_metrics

if TYPE_CHECKING:
    from async_nodes.settings import Settings
    from async_nodes.storage.redis_store import RedisStore

LOOK_EVERY: Final = 5.0
"""Seconds between two looks at whether schedules have lost their timers."""

BUDGET: Final = 0.3
"""Seconds that one turn may take: far less than the time between two renewals of a lease."""


class DueSchedules:
    """Fire what the timers have offered.

    Args:
        firer: returns what fires; called once, when the first schedule is due.
        clock: seconds that only rise.

    """

    def __init__(
        self, firer: Callable[[], Firer], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = firer
        self._clock = clock
        self._firer: Firer | None = None
        self._waiting: deque[str] = deque()
        self._complained: dict[str, str] = {}
        self._looked_at = clock()

    def turn(self, due: Sequence[str]) -> None:
        """Take in what is due, and fire for a while.

        Args:
            due: ``<tenant>:<name>`` of schedules.

        """
        self._waiting.extend(one for one in due if one not in self._waiting)
        now = self._clock()
        if now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self._guarded("", self._look)
        until = now + BUDGET
        while self._waiting and self._clock() < until:
            self._fire(self._waiting.popleft())

    def _look(self) -> list[str]:
        found = self._ready().look_after()
        if found:
            say(f"schedules: {found} had lost their timers")
        return ["rearmed"] * found

    def _fire(self, schedule: str) -> None:
        tenant, _, name = schedule.rpartition(":")
        self._guarded(schedule, lambda: self._ready().fire(tenant, name))

    def _ready(self) -> Firer:
        if self._firer is None:
            self._firer = self._make()
        return self._firer

    def _guarded(self, schedule: str, act: Callable[[], list[str]]) -> None:
        """Count what was done, or tell of the fault."""
        try:
            done = act()
        except AsyncNodesError as error:
            if isinstance(error, StoreUnavailable):
                self._waiting.clear()  # it offers them again
            self._complain(schedule, f"{error.detail} [{error.code}]")
        except Exception as error:  # noqa: BLE001 - the lease must outlive any fault in here
            self._complain(schedule, f"{type(error).__name__}: {error}")
        else:
            self._complained.pop(schedule, None)
            for word in done:
                work_metrics.schedules[word] += 1
            if "paused" in done:
                say(f"schedule {schedule!r} is paused: its task can no longer be sent")

    def _complain(self, schedule: str, text: str) -> None:
        """Count a fault, and tell of it unless it is the one that was told of last."""
        work_metrics.schedules["failed"] += 1
        if self._complained.get(schedule) == text:
            return
        if len(self._complained) >= 1_000:  # noqa: PLR2004 - a bound, any will do
            self._complained.clear()
        self._complained[schedule] = text
        what = f"schedule {schedule!r} cannot be fired" if schedule else "schedules"
        say(f"{what}: {text}")


def due_schedules(store: RedisStore, settings: Settings) -> DueSchedules:
    """Return what fires schedules over a keeper's store."""

    def firer() -> Firer:
        return Firer(
            Schedules(store, is_patient=False),
            store.id_source(),
            registry(settings.imports),
            settings,
            admit=Admission.over(store).check,
        )

    return DueSchedules(firer)
