"""The metrics of a process: one registry, made from one catalogue, handed over and merged."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from async_nodes.core.ports import Claim, Ending
from async_nodes.core.states import EventType
from async_nodes.telemetry import breaker_metrics, metrics, page_server, process_metrics
from async_nodes.telemetry import children as handed
from async_nodes.telemetry.beside import OPENMETRICS, Beside, Labelled, fetch
from async_nodes.telemetry.catalogue import CATALOGUE, Kind
from async_nodes.telemetry.redis_metrics import Connections, LinkStats
from async_nodes.telemetry.registry import (
    REGISTRY,
    TALLIES,
    Read,
    counts,
    family,
    histograms,
    level,
    page,
)
from async_nodes.telemetry.work_metrics import MOST_UNITS, of_node

TRACE = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE}-b7ad6b7169203331-01"
CLAIM = Claim("t_1", "f", 1, 1, 0, 0, 0, 1_500, 2_000, 2_000, 0, 1_000, 1_000, "default", b"", b"")
COMPATIBLE = {"celery_task_runtime", "celery_active_tasks"}
UNITS = {"seconds", "bytes", "rows", "tokens", "second", "info", "total"}
COUNTED = {
    "async_nodes_sse_subscribers", "async_nodes_store_up", "async_nodes_queue_depth",
    "async_nodes_queue_waiting_tasks", "async_nodes_workers", "async_nodes_dead_letters",
    "async_nodes_store_clients", "async_nodes_worker_slots", "async_nodes_worker_slots_used",
    "async_nodes_redis_waiting", "async_nodes_process_open_fds", "async_nodes_process_max_fds",
    "async_nodes_metrics_processes", "async_nodes_breaker_state", "async_nodes_breaker_degraded",
    "async_nodes_breaker_threshold", "async_nodes_breaker_measured",
}  # fmt: skip
"""Gauges that count things or tell a state, and so have no unit."""


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], Any]:
    """Return every sample of a page of OpenMetrics, by name and labels."""
    parse: Any = text_string_to_metric_families
    found = {}
    for one in parse(text):
        for sample in one.samples:
            found[sample.name, frozenset(sample.labels.items())] = sample
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    """Return one value of a page, None where it is not there."""
    found = samples(text).get((name, frozenset(labels.items())))
    return None if found is None else found.value


def now(*parts: Any) -> str:
    """Return what this process would answer to Prometheus."""
    return page(OPENMETRICS, *parts).body.decode()


# -- the catalogue -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_name_follows_the_rules(name: str) -> None:
    """Prefix, unit at the end, `_total` on counters alone, plain labels, help in two languages."""
    row = CATALOGUE[name]

    assert name in COMPATIBLE or re.fullmatch(r"async_nodes(_[a-z0-9]+)+", name)
    assert (row.kind is Kind.COUNTER) == name.endswith("_total")
    assert name in COMPATIBLE | COUNTED or name.rpartition("_")[2] in UNITS
    assert all(re.fullmatch(r"[a-z]+", label) for label in row.labels)
    assert not {"task", "task_id", "tenant", "le", "quantile", "process"} & set(row.labels)
    assert row.en.endswith(".")
    assert row.zh.endswith("。")
    assert (row.kind is Kind.HISTOGRAM) == bool(row.bounds)
    assert list(row.bounds) == sorted(set(row.bounds))


def test_what_is_exposed_is_what_is_described() -> None:
    """Every metric of every registry and collector has a row, with its type, labels and help."""
    store = metrics.StoreCollector(ask=metrics.Found, subscribers=lambda: 0)
    breakers = breaker_metrics.BreakerCollector(dict)
    beside = Beside([])
    shown = [one for part in (REGISTRY, store, breakers, beside) for one in part.collect()]

    for metric in shown:
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        row = CATALOGUE[name]
        assert (metric.type, metric.documentation) == (row.kind, row.en)
        for sample in metric.samples:
            assert set(sample.labels) - {"le"} == set(row.labels)
    assert {one.name for one in shown} >= {"async_nodes_build_info", "celery_task_runtime"}


def test_everything_described_can_be_counted() -> None:
    """No row of the page is a promise: whatever is described is registered or collected."""
    store = metrics.StoreCollector(
        ask=lambda: metrics.Found(depths={"io.high": 1}), subscribers=lambda: 0
    )
    parts = (REGISTRY, store, breaker_metrics.BreakerCollector(dict), Beside([]))
    shown = {one.name for part in parts for one in part.collect()}

    assert {name.removesuffix("_total") for name in CATALOGUE} - shown == set()


@pytest.mark.needs("promtool")
def test_promtool_finds_no_fault() -> None:
    """Prometheus' own linter passes the page, but for the names kept for Celery's dashboards."""
    of_node("echo").ended(Ending(event=EventType.COMPLETE), CLAIM, 0.1, "")
    text = page(None, REGISTRY).body
    done = subprocess.run(
        [shutil.which("promtool") or "promtool", "check", "metrics"],
        input=text, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    faults = [line for line in done.stderr.decode().splitlines() if line.strip()]

    assert [line for line in faults if not line.startswith(tuple(COMPATIBLE))] == []


def test_a_metric_is_what_the_catalogue_says() -> None:
    """A counter is not had as a histogram, and a name that nobody described is not had at all."""
    with pytest.raises(ValueError, match="counter"):
        level("async_nodes_polls_total")
    with pytest.raises(KeyError):
        counts("async_nodes_unheard_of_total")


# -- the page ------------------------------------------------------------------------------------


def test_openmetrics_is_had_by_asking_for_it() -> None:
    """Who asks for nothing gets the format of Prometheus, without exemplars."""
    of_node("traced").ended(Ending(event=EventType.COMPLETE), CLAIM, 0.25, SAMPLED)
    plain, open_metrics = page("text/html, */*"), page(OPENMETRICS)

    assert plain.content_type.startswith("text/plain; version=0.0.4")
    assert TRACE.encode() not in plain.body
    assert open_metrics.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert open_metrics.body.endswith(b"# EOF\n")


def test_a_sampled_trace_is_an_exemplar() -> None:
    """The bucket of an attempt names the trace; one that nobody kept is not named."""
    of_node("kept").ended(Ending(event=EventType.COMPLETE), CLAIM, 0.2, SAMPLED)
    of_node("not kept").ended(Ending(event=EventType.COMPLETE), CLAIM, 0.2, SAMPLED[:-2] + "00")
    found = samples(now())

    def exemplar(node: str) -> Any:
        labels = frozenset({("node", node), ("le", "1.5")})
        return found["async_nodes_task_end_to_end_seconds_bucket", labels].exemplar

    assert exemplar("kept").labels == {"trace_id": TRACE}
    assert exemplar("kept").value == pytest.approx(1.2)
    assert exemplar("not kept") is None


def test_a_broken_reading_is_no_broken_page() -> None:
    """A metric may be read on a system that does not have it: the others are shown."""
    read = Read(["async_nodes_redis_waiting"], list)
    registry = CollectorRegistry()
    registry.register(read)

    assert [one.name for one in read.describe()] == ["async_nodes_redis_waiting"]
    assert list(registry.collect()) == []


# -- what a worker counts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "outcome", "is_the_end"),
    [
        (EventType.COMPLETE, "succeeded", True),
        (EventType.ERROR, "failed", True),
        (EventType.TIMEOUT, "timed_out", True),
        (EventType.CANCEL, "cancelled", True),
        (EventType.RETRY, "retried", False),
        (EventType.RELEASE, "released", False),
    ],
)
def test_an_attempt_is_counted_by_its_end(
    event: EventType, outcome: str, *, is_the_end: bool
) -> None:
    """End to end is observed once a task has ended: from its acceptance, all attempts included."""
    node = f"of {outcome}"
    of_node(node).ended(Ending(event=event), CLAIM, 0.5, "")
    text = now()

    assert value(text, "async_nodes_attempts_total", node=node, outcome=outcome) == 1
    retries = value(text, "async_nodes_task_retries_total", node=node)
    assert retries == (1 if outcome == "retried" else None)
    whole = value(text, "async_nodes_task_end_to_end_seconds_sum", node=node)
    assert whole == (1.5 if is_the_end else 0)


def test_tokens_are_counted_by_direction() -> None:
    """Whatever a provider calls them; the rate is that of the tokens out."""
    usage = b'{"prompt_tokens":30,"completion_tokens":20,"total_tokens":50,"pages":2}'
    of_node("model").ended(Ending(event=EventType.COMPLETE, usage=usage), CLAIM, 0.5, "")
    text = now()

    assert value(text, "async_nodes_tokens_total", node="model", direction="in") == 30
    assert value(text, "async_nodes_tokens_total", node="model", direction="out") == 20
    assert value(text, "async_nodes_usage_total", node="model", unit="pages") == 2
    assert value(text, "async_nodes_tokens_per_second_sum", node="model") == 40


def test_units_that_a_body_makes_up_are_bounded() -> None:
    """A name per task would make a series per task; beyond a hundred they are one."""
    for number in range(MOST_UNITS + 5):
        usage = b'{"unit%d":1}' % number
        of_node("odd").ended(Ending(event=EventType.COMPLETE, usage=usage), CLAIM, 0.5, "")
    shown = [labels for labels, _ in counts("async_nodes_usage_total").shown() if "odd" in labels]

    assert len(shown) <= MOST_UNITS + 1
    assert ("odd", "other") in shown


# -- connections ---------------------------------------------------------------------------------


class Link:
    """A connection that counts."""

    def __init__(self, **so_far: int) -> None:
        self.stats = LinkStats(**so_far)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=8))
def test_what_a_closed_connection_did_stays_counted(seen: list[tuple[int, bool]]) -> None:
    """A counter never falls, whatever becomes of the connections behind it."""
    connections, links = Connections(), []
    for calls, is_closed in seen:
        links.append(link := Link(calls=calls, waiting=1))
        connections.add(link)
        if is_closed:
            connections.closed(link)
            connections.closed(link)
    sums, waiting = connections.total()

    assert sums["calls"] == sum(calls for calls, _ in seen)
    assert waiting == sum(not is_closed for _, is_closed in seen)


def test_a_connection_is_not_kept_alive_by_its_figures() -> None:
    """One that nobody closed and nobody has any more leaves no trace but is no error."""
    connections = Connections()
    connections.add(Link(calls=3))
    gc.collect()

    assert connections.total()[0]["calls"] == 0


# -- children ------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[handed.Pipe]:
    made = handed.Pipe()
    yield made
    for end in (made.read_end, made.write_end):
        os.close(end)


def told(pipe: handed.Pipe) -> list[bytes]:
    """Return the lines that were written."""
    os.set_blocking(pipe.read_end, False)
    try:
        return os.read(pipe.read_end, 1 << 20).splitlines()
    except BlockingIOError:
        return []


def test_a_child_tells_what_is_new(pipe: handed.Pipe) -> None:
    """Not what its parent had counted before the fork, nor anything twice."""
    import json

    of_node("child").count("succeeded")
    reporter = handed.Reporter(pipe.write_end)
    reporter.now()
    assert told(pipe) == []

    of_node("child").count("succeeded")
    of_node("child").runtime.observe(0.3)
    of_node("child").runtime.remember(0.3, TRACE)
    reporter.now()
    lines = [json.loads(line) for line in told(pipe)]
    reporter.now()

    assert told(pipe) == []
    assert ["async_nodes_attempts_total", ["child", "succeeded"], 1] in lines
    before = of_node("child").runtime.counts[:]
    for line in lines:
        handed.add(line)
    risen = [b - a for a, b in zip(before, of_node("child").runtime.counts, strict=True)]
    assert sum(risen) == 1
    assert [one.labels for one in of_node("child").runtime.exemplars.values()] == [
        {"trace_id": TRACE}
    ]


def test_a_full_pipe_holds_up_no_work(pipe: handed.Pipe) -> None:
    """What finds no room is told once there is some, and nothing of it is lost."""
    import json

    reporter = handed.Reporter(pipe.write_end)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe.write_end, b"x" * 1024)
    of_node("late").count("succeeded")
    reporter.now()
    of_node("late").count("succeeded")
    assert set(b"".join(told(pipe))) == set(b"x")
    reporter.now()

    lines = [json.loads(line) for line in told(pipe)]
    assert ["async_nodes_attempts_total", ["late", "succeeded"], 2] in lines


@pytest.mark.native
def test_half_a_line_is_passed_over(pipe: handed.Pipe) -> None:
    """A child killed while it wrote, or one of another release, harms nobody."""
    writing, reading = os.dup(pipe.write_end), os.dup(pipe.read_end)
    mine = replace_ends(pipe, reading)
    mine.listen()
    os.write(writing, b'["async_nodes_att\n["nobody_knows_total", [], 1]\n[1]\n')
    os.write(writing, b'["async_nodes_attempts_total", ["halved", "failed"], 4]\n')
    os.close(writing)

    assert within(lambda: counts("async_nodes_attempts_total")("halved", "failed").total == 4)


def replace_ends(pipe: handed.Pipe, reading: int) -> handed.Pipe:
    """Return a pipe that reads from a copy of another's end, which its thread then closes."""
    made = object.__new__(handed.Pipe)
    made.read_end, made.write_end = reading, pipe.write_end
    return made


def within(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """Tell whether a condition comes true in time."""
    done = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return True
        done.wait(0.02)
    return False


# -- other processes -----------------------------------------------------------------------------


def test_a_port_shows_the_page() -> None:
    """As the web does, in the format that is asked for; any other path is not there."""
    port = page_server.expose(0)
    text = fetch(f"127.0.0.1:{port}")

    assert value(text, "async_nodes_gc_collections_total", generation="0") is not None
    assert page_server.expose(port) is None, "a port that is taken is told and no error"
    assert page_server.expose(None) is None


def test_several_processes_are_one_page() -> None:
    """One help and one type of each name; each value tells whose it is; the silent are counted."""
    name = "async_nodes_redis_connects_total"
    pages = {"a:1": now(Fixed(name, 3)), "b:2": now(Fixed(name, 4))}

    def get(address: str) -> str:
        if address not in pages:
            raise ConnectionRefusedError
        return pages[address]

    beside = Beside(["io=a:1", "cpu=b:2", "gone=c:3"], get)
    text = now(Labelled("web", Fixed(name, 5)), beside)

    assert text.count("# TYPE async_nodes_redis_connects counter") == 1
    assert value(text, name, process="web") == 5
    assert value(text, name, process="io") == 3
    assert value(text, name, process="cpu") == 4
    assert value(text, "async_nodes_metrics_processes", outcome="silent") == 1


class Fixed(CollectorRegistry):
    """One metric with one value."""

    def __init__(self, name: str, number: float) -> None:
        super().__init__()
        self.register(Read([name], lambda: [(name, [((), number)])]))


# -- every process -------------------------------------------------------------------------------


def test_a_process_tells_its_time_memory_and_files() -> None:
    """All of them above 0 in a process that runs."""
    text = now()

    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds"):
        assert (value(text, f"async_nodes_process_{name}") or 0) > 0
    assert (value(text, "async_nodes_process_start_time_seconds") or 0) > 1.6e9


def test_a_run_of_the_collector_is_timed() -> None:
    """Once each, also where a process asks for it twice."""
    process_metrics.watch_collector()
    process_metrics.watch_collector()
    pauses = histograms("async_nodes_gc_pause_seconds")("2")
    before = sum(pauses.counts)
    gc.collect()
    gc.callbacks[:] = [one for one in gc.callbacks if type(one).__name__ != "_Pauses"]

    assert sum(pauses.counts) == before + 1


def test_a_late_loop_is_observed() -> None:
    """By how much a timer was late, and not by the time it was set for."""
    moments = iter([0.0, 0.5, 1.0, 2.7])
    turns = iter([None, None])

    def sleep(_seconds: float) -> None:
        next(turns)

    lag = histograms("async_nodes_event_loop_lag_seconds")()
    before = lag.seconds, sum(lag.counts)
    with pytest.raises(StopIteration):
        process_metrics.watch_loop(sleep, lambda: next(moments))

    assert lag.seconds - before[0] == pytest.approx(1.2)
    assert sum(lag.counts) - before[1] == 2


def test_the_registry_is_one() -> None:
    """What the web counts and what a worker counts are registered in the same place."""
    assert breaker_metrics.REGISTRY is metrics.REGISTRY is REGISTRY
    assert {"async_nodes_polls_total", "celery_task_runtime"} <= set(TALLIES)
    assert family("async_nodes_store_up", [((), 1)]).samples[0].value == 1
