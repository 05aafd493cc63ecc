"""Log lines of our own processes, and what the metrics look like without a store."""

from __future__ import annotations

import io
import logging
import re

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.telemetry import metrics
from async_nodes.telemetry.logs import LineFormatter, configure, one_line, wants_colour


def line(message: str, *, colour: bool = False, **facts: object) -> str:
    record = logging.makeLogRecord({"msg": message, "levelno": 30, "levelname": "WARNING", **facts})
    return LineFormatter(colour=colour).format(record)


@given(st.text(), st.text())
def test_a_record_is_one_plain_line(message: str, value: str) -> None:
    """Whatever is in it, nothing starts another line or steers a terminal."""
    text = line(message.replace("%", "%%"), action="x", value=value)
    assert text.isprintable()
    assert "\n" not in text


def test_a_line_has_time_level_sentence_and_facts() -> None:
    """Facts follow as ``key=value``, quoted where they hold spaces; None is left out."""
    text = line("It went wrong", action="went_wrong", seconds=1.23456, node="a b", task_id=None)
    assert re.match(r"\d\d:\d\d:\d\d\.\d{3} WARNING It went wrong ", text)
    assert text.endswith('action=went_wrong seconds=1.235 node="a b"')


def test_a_long_fact_is_cut() -> None:
    """A line does not grow with what a client sent."""
    assert len(line("x", value="y" * 100_000)) < 700


def test_colour_is_wanted_by_terminals_and_by_force() -> None:
    """NO_COLOR wins, then FORCE_COLOR, then whether it is a terminal."""
    pipe = io.StringIO()
    assert not wants_colour(pipe, {})
    assert wants_colour(pipe, {"FORCE_COLOR": "1"})
    assert not wants_colour(pipe, {"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert line("x", colour=True).startswith("\033[33m")
    assert one_line("a\x1b[0m\nb") == "a\\u001b[0m\\nb"


def test_configuring_twice_writes_once() -> None:
    """A process that is set up again does not log double."""
    out = io.StringIO()
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        configure(stream=out)
        configure(stream=out)
        logging.getLogger("async_nodes.test").info("Once", extra={"action": "a"})
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    assert out.getvalue().count("Once action=a") == 1


def shown(collector: metrics.StoreCollector) -> str:
    return metrics.page(None, metrics.REGISTRY, collector).body.decode()


def test_metrics_are_shown_without_a_store() -> None:
    """An outage is a metric, not a failed scrape."""

    def away() -> metrics.Found:
        raise ConnectionError

    text = shown(metrics.StoreCollector(ask=away, subscribers=lambda: 3))
    assert "async_nodes_store_up 0.0" in text
    assert "async_nodes_sse_subscribers 3.0" in text
    assert "async_nodes_queue_depth" not in text


def test_metrics_of_the_store_are_split_by_label() -> None:
    """Depth by queue and priority; a kind without workers is 0, not absent."""
    found = metrics.Found(
        depths={"io.high": 2, "cpu.low": 1},
        elsewhere={("io.high", "held"): 5},
        workers=["io-1-a", "io-2-b"],
    )
    text = shown(metrics.StoreCollector(ask=lambda: found, subscribers=lambda: 0))
    assert 'async_nodes_queue_depth{priority="high",queue="io"} 2.0' in text
    assert 'async_nodes_queue_depth{priority="low",queue="cpu"} 1.0' in text
    held = 'async_nodes_queue_waiting_tasks{place="held",priority="high",queue="io"} 5.0'
    assert held in text
    assert 'async_nodes_workers{kind="io"} 2.0' in text
    assert 'async_nodes_workers{kind="cpu"} 0.0' in text
