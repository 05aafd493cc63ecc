"""What the keeper makes of claims that nobody in its process knows of."""

from __future__ import annotations

from typing import Any

from async_nodes.execution.keeper import Keeper


class Store:
    """Answer as a store whose worker has some tasks, and note which are reported lost."""

    def __init__(self, *running: str) -> None:
        self.ids = set(running)
        self.lost_ids: list[str] = []

    def running(self, _worker: str) -> list[str]:
        """Return what is claimed."""
        return sorted(self.ids)

    def lost(self, task_id: str, *, worker: str, dispatch: int, isolated: bool) -> str:
        """Take note of a loss."""
        assert (worker, dispatch, isolated) == ("io-1-x", 0, False)
        self.ids.discard(task_id)
        self.lost_ids.append(task_id)
        return "lost"


def keeper_of(store: Any, known: set[str]) -> Keeper:
    """Return a keeper that is not started."""
    return Keeper(
        store=store,
        worker="io-1-x",
        lease_seconds=3.0,
        held=list,
        known=lambda: known,
        on_lease_lost=lambda: None,
        on_ended=lambda _ids: None,
        on_schedules=lambda _due: None,
    )


def test_a_claim_that_nobody_runs_is_given_back_at_the_second_look() -> None:
    """A task claimed for this worker and unknown to it runs again; one look proves nothing."""
    store = Store("t_known", "t_orphan")
    keeper = keeper_of(store, {"t_known"})

    keeper._find_orphans()
    assert store.lost_ids == []
    keeper._find_orphans()
    assert store.lost_ids == ["t_orphan"]
    keeper._find_orphans()
    assert store.lost_ids == ["t_orphan"]


def test_a_claim_on_its_way_to_the_pool_is_left_alone() -> None:
    """A task that becomes known between two looks was only on its way."""
    store = Store("t_slow")
    known: set[str] = set()
    keeper = keeper_of(store, known)

    keeper._find_orphans()
    known.add("t_slow")
    keeper._find_orphans()
    known.clear()
    keeper._find_orphans()
    assert store.lost_ids == []
