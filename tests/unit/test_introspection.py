"""What a worker says of itself: counters, and rates of late."""

from __future__ import annotations

import json
import math
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.execution.introspection import WINDOW, Introspection, Meter, no_counts
from async_nodes.execution.keeper import Keeper

readings = st.lists(st.tuples(st.floats(0.01, 30.0), st.integers(0, 10_000)), min_size=1)


@given(st.floats(0.1, 5_000.0), st.lists(st.floats(0.5, 20.0), min_size=1, max_size=50))
def test_a_steady_count_has_its_rate_from_the_first_reading_on(
    rate: float, pauses: list[float]
) -> None:
    """However irregular the readings are."""
    now, meter = 100.0, Meter(100.0)
    for pause in pauses:
        now += pause
        total = int(rate * (now - 100.0))
        told = meter.rate(total, now)

    assert told == pytest.approx(rate, abs=len(pauses) / min(pauses) + 1e-6)


@given(readings)
def test_a_rate_lies_between_the_least_and_the_most_that_was_read(
    steps: list[tuple[float, int]],
) -> None:
    """It is a mean, and a count that rises has no negative rate."""
    now, total, meter = 0.0, 0, Meter(0.0)
    seen = []
    for passed, risen in steps:
        now, total = now + passed, total + risen
        seen.append(risen / passed)
        told = meter.rate(total, now)
        assert min(seen) - 1e-6 <= told <= max(seen) * (1 + 1e-9) + 1e-6


def test_what_is_a_minute_old_counts_for_little() -> None:
    """An end of the work shows within the window."""
    meter = Meter(0.0)
    for second in range(1, 301):
        busy = meter.rate(100 * second, float(second))
    assert busy == pytest.approx(100)

    assert meter.rate(30_000, 300 + WINDOW) == pytest.approx(100 / math.e, rel=0.02)
    assert meter.rate(30_000, 300 + WINDOW) == pytest.approx(100 / math.e, rel=0.02)
    assert meter.rate(30_000, 300 + 10 * WINDOW) < 0.01


def test_a_worker_tells_who_and_how_busy_it_is() -> None:
    """Its lists are those that it takes from; a list that it does not know has no rate."""
    now, counts = [50.0], no_counts()
    speaking = Introspection(
        kind="io",
        concurrency=300,
        transport="fast",
        lists=["io.high", "io.default"],
        nodes=17,
        counts=counts,
        clock=lambda: now[0],
        wall=lambda: 1_800_000_000.25,
    )
    counts["io.high"] += 10
    now[0] += 5
    said = json.loads(speaking.compose(2))

    assert said["rates"] == {"io.high": 2.0, "io.default": 0.0}
    assert (said["host"], said["pid"]) == (socket.gethostname(), os.getpid())
    assert said["started_ms"] == 1_800_000_000_250
    told = {name: said[name] for name in ("kind", "concurrency", "transport", "nodes", "stalls")}
    assert told == {
        "kind": "io", "concurrency": 300, "transport": "fast", "nodes": 17, "stalls": 2,
    }  # fmt: skip


class Store:
    """Note what a worker says with its lease."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bytes]] = []
        self.has_lease = True

    def register(self, _worker: str, info: bytes) -> None:
        """Take a lease."""
        self.said.append(("register", info))

    def renew(self, _worker: str, _held: list[str], info: bytes) -> bool:
        """Renew it, if it is there."""
        self.said.append(("renew", info))
        return self.has_lease


def test_the_keeper_hands_it_over_with_the_lease() -> None:
    """At each renewal, and again when a lost lease is taken anew."""
    store = Store()
    keeper = Keeper(
        store=store,  # type: ignore[arg-type]
        worker="io-1-x",
        lease_seconds=3.0,
        held=list,
        known=list,
        on_lease_lost=lambda: None,
        on_ended=lambda _ids: None,
        on_schedules=lambda _due: None,
        info=lambda stalls: b"%d stalls" % stalls,
    )
    keeper._renew(0.0)
    store.has_lease = False
    keeper._renew(1.0)

    assert store.said == [
        ("renew", b"0 stalls"), ("renew", b"0 stalls"), ("register", b"0 stalls"),
    ]  # fmt: skip
