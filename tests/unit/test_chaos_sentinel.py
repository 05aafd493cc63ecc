"""What `chaos sentinel` makes of the answers it got."""

from __future__ import annotations

from async_nodes.cli.chaos.sentinel import GUARDS, PROMISED, Submits, cost_of


def submits(*answers: tuple[float, float, str], accepted: dict[str, float]) -> Submits:
    """Return finished submits: when each answer came, how long it took, its code."""
    found = Submits(lambda: None)  # type: ignore[arg-type,return-value] # nobody connects
    found.answers += answers
    found.accepted |= accepted
    return found


def test_a_failover_is_counted() -> None:
    """Lost are those without a record; the outage lasts until one that is not lost."""
    found = submits(
        (1.0, 0.002, ""),
        (1.5, 0.004, ""),
        (2.1, 0.003, ""),
        (3.0, 0.8, "store_unavailable"),
        (3.9, 0.9, "outcome_unknown"),
        (5.5, 0.01, ""),
        (5.6, 0.01, ""),
        accepted={"a": 1.0, "b": 1.5, "c": 2.1, "d": 5.5, "e": 5.6},
    )

    cost = cost_of("killed", GUARDS[0], found, 2.0, {"a", "b", "d", "e"})

    assert (cost.accepted, cost.lost, cost.refused, cost.unknown) == (5, 1, 1, 1)
    assert (cost.outage_seconds, cost.slowest_seconds, cost.submit_ms) == (3.5, 0.9, 4.0)


def test_what_must_not_be_lost() -> None:
    """Nothing in a planned failover, and nothing that a replica was waited for with."""
    assert ("planned", "none") in PROMISED
    assert ("cut off", "WAIT 1") in PROMISED
    assert ("cut off", "none") not in PROMISED
    assert ("killed", "min-replicas-to-write 1") not in PROMISED
