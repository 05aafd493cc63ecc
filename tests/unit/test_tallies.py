"""The counters of a web process: what the library's own would show, for a fraction of the cost."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from async_nodes.telemetry.tallies import Counts, Histograms

BOUNDS = (0.001, 0.25, 1, 30)
LABELS = st.sampled_from(["ok", 'a"b\\c\n', "é", ""])
SECONDS = st.floats(0, 100) | st.sampled_from(BOUNDS)


def shown(*metrics: Any) -> str:
    """Return the metrics as text, without the library's own time stamps."""
    registry = CollectorRegistry()
    for metric in metrics:
        registry.register(metric)
    lines = generate_latest(registry).decode().splitlines()
    return "\n".join(line for line in lines if "_created" not in line)


@given(st.lists(st.tuples(LABELS, SECONDS), max_size=30))
def test_the_text_is_that_of_the_library(seen: list[tuple[str, float]]) -> None:
    """Names, buckets, sums and totals, for any labels and any durations, bounds included."""
    ours = Counts("a_total", "Some.", ("x",)), Histograms("b_seconds", "T.", ("x",), bounds=BOUNDS)
    theirs = (
        Counter("a_total", "Some.", ("x",), registry=None),
        Histogram("b_seconds", "T.", ("x",), buckets=BOUNDS, registry=None),
    )
    for label, seconds in seen:
        ours[0](label).inc()
        ours[1](label).observe(seconds)
        theirs[0].labels(label).inc()
        theirs[1].labels(label).observe(seconds)
    assert shown(*ours) == shown(*theirs)


def test_a_name_is_taken_once() -> None:
    """Two metrics of one name cannot be told apart, and are refused."""
    registry = CollectorRegistry()
    registry.register(Counts("a_total", "Some.", ("x",)))
    with pytest.raises(ValueError, match="Duplicated"):
        registry.register(Counts("a_total", "Some.", ("x",)))
    with pytest.raises(ValueError, match="labels"):
        Counts("c_total", "Some.", ("x",))("one", "two")


def test_threads_lose_no_count() -> None:
    """The app may be mounted where requests have threads of their own."""
    counts, durations = Counts("a_total", "S.", ()), Histograms("b", "T.", (), bounds=BOUNDS)

    def work() -> None:
        for _ in range(50_000):
            counts().inc()
            durations().observe(0.1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts().total == sum(durations().counts) == 200_000
