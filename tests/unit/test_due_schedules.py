"""The keeper's thread fires what is due: bounded, and no fault gets past it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import generate_latest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.execution.due_schedules import BUDGET, LOOK_EVERY, DueSchedules
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.telemetry import work_metrics


@pytest.fixture(autouse=True)
def _counts() -> Iterator[None]:
    work_metrics.schedules.clear()
    yield
    work_metrics.schedules.clear()


class Scripted:
    """Fire as told: an outcome or an error for each name."""

    def __init__(self, fire: Callable[[str], list[str]]) -> None:
        self._fire = fire
        self.looks = 0
        self.asked: list[tuple[str, str]] = []

    def fire(self, tenant: str, name: str) -> list[str]:
        """Take note and answer."""
        self.asked.append((tenant, name))
        return self._fire(name)

    def look_after(self) -> int:
        """Find a timer lost at the first look."""
        self.looks += 1
        return int(self.looks == 1)


def over(fire: Callable[[str], list[str]], **options: Any) -> tuple[DueSchedules, Scripted]:
    scripted = Scripted(fire)
    return DueSchedules(lambda: scripted, **options), scripted  # type: ignore[arg-type,return-value]


def test_each_is_fired_for_its_tenant_and_counted() -> None:
    """The parts of the name, in order; outcomes show in the metrics."""
    due, scripted = over(lambda _: ["fired", "skipped"])

    due.turn(("a:one", "b:two.x"))
    due.turn(())

    assert scripted.asked == [("a", "one"), ("b", "two.x")]
    assert work_metrics.schedules == {"fired": 2, "skipped": 2}
    shown = generate_latest(work_metrics.REGISTRY).decode()
    assert 'async_nodes_schedules_total{outcome="fired"} 2.0' in shown


def test_a_fault_is_told_once_and_stays_here(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever it is: the others are fired, and the keeper goes on."""

    def fire(name: str) -> list[str]:
        if name == "bad":
            raise RuntimeError("no")
        if name == "wrong":
            raise AsyncNodesError("internal", "a script failed")
        return ["fired"]

    due, _ = over(fire)
    for _turn in range(3):
        due.turn(("a:bad", "a:wrong", "a:good"))

    assert work_metrics.schedules == {"failed": 6, "fired": 3}
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in told] == [
        "schedule 'a:bad' cannot be fired: RuntimeError: no",
        "schedule 'a:wrong' cannot be fired: a script failed [internal]",
    ]


def test_a_turn_takes_a_bounded_time() -> None:
    """What is left waits for the next turn, and is there once however often it is offered."""
    now = [0.0]

    def fire(_: str) -> list[str]:
        now[0] += BUDGET / 2
        return ["fired"]

    due, scripted = over(fire, clock=lambda: now[0])
    names = tuple(f"a:{number}" for number in range(5))

    due.turn(names)
    assert len(scripted.asked) == 2
    due.turn(names[2:])
    due.turn(())
    due.turn(())

    assert [name for _, name in scripted.asked] == ["0", "1", "2", "3", "4"]


def test_a_store_that_is_away_is_not_asked_for_each() -> None:
    """It offers all of them again when it is back."""

    def fire(_: str) -> list[str]:
        raise StoreUnavailable("away")

    due, scripted = over(fire)
    due.turn(tuple(f"a:{number}" for number in range(50)))
    due.turn(())

    assert len(scripted.asked) == 1
    assert work_metrics.schedules == {"failed": 1}


def test_a_schedule_that_was_paused_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody has asked for that."""
    due, _ = over(lambda _: ["paused"])
    due.turn(("a:one",))
    assert "schedule 'a:one' is paused" in capfd.readouterr().err


def test_lost_timers_are_looked_for_now_and_then(capfd: pytest.CaptureFixture[str]) -> None:
    """Also while nothing is due."""
    now = [0.0]
    due, scripted = over(lambda _: ["fired"], clock=lambda: now[0])

    for _turn in range(21):
        due.turn(())
        now[0] += LOOK_EVERY / 10

    assert scripted.looks == 2
    assert work_metrics.schedules == {"rearmed": 1}
    assert "1 had lost their timers" in capfd.readouterr().err
