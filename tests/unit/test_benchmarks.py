from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks import _chart, _figures, _plots, _processes, breaker, kill, life
from benchmarks._environments import NotInstalledError, python_of
from benchmarks._libraries import LIBRARIES
from benchmarks._load import live, parse, read, submit
from benchmarks._offer import offer
from benchmarks._options import sides_of
from benchmarks._processes import BenchmarkError, cpu_seconds, processes
from benchmarks._progress import Progress
from benchmarks._sides import BASELINE, BASELINE_DIALECT, OURS, OURS_DIALECT, PARTS, Dialect, Side

pytestmark = pytest.mark.native  # the load comes from a process that is not patched

Answer = Callable[[bytes, bytes], tuple[int, bytes]]


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "value"), [(0.5, 5), (0.9, 9), (0.99, 10), (0.1, 1), (1.0, 10)])
def test_a_percentile_is_one_of_the_values(share: float, value: int) -> None:
    """The smallest value that the share of all values does not exceed."""
    assert _figures.percentile([10, 3, 1, 2, 9, 4, 6, 5, 8, 7], share) == value


def test_a_table_lines_up() -> None:
    """Each row is as wide as the widest cells need."""
    lines = _figures.table(("side", "µs"), [["a", 1], ["longer", 12345]]).splitlines()

    assert len({len(line) for line in lines}) == 1
    assert lines[3] == "| longer | 12345 |"


def rounds() -> list[life.Round]:
    """Three pairs of rounds with ratios 4, 2 and 5."""
    pairs = [(100.0, 400.0), (200.0, 400.0), (80.0, 400.0)]
    return [
        life.Round(
            side=side, connections=8, web=total / 2, worker=total / 4, redis=total / 4,
            total=total, client=10.0, rate=100.0, p50=1.0, p99=2.0, reads=1.0,
        )
        for pair in pairs
        for side, total in zip((OURS, BASELINE), pair, strict=True)
    ]  # fmt: skip


def test_the_ratio_compares_rounds_that_followed_each_other() -> None:
    """Baseline over ours, pair by pair: median, least and most."""
    (group,) = life.summary(rounds())

    assert group["ratios"] == {BASELINE: {"median": 4.0, "min": 2.0, "max": 5.0}}
    assert group["sides"][OURS]["total"] == 100.0
    assert "| 4.00 (2.00 to 5.00) |" in life.text([group])


def test_the_chart_is_drawn_to_scale() -> None:
    """It is well-formed SVG whose bars have the widths of their figures."""
    drawn = svg(_plots.chart_of("life", {"summary": life.summary(rounds())}))

    bars = [each for each in drawn.findall(".//{*}rect") if each.attrib.get("height") == "18"]
    widths = [float(each.attrib["width"]) for each in bars]
    ours, baseline = sum(widths[:3]), sum(widths[3:])
    assert baseline == pytest.approx(4 * ours, abs=1)
    assert baseline == pytest.approx(_chart.SCALE, abs=1)


def test_a_chart_says_how_many_times_more() -> None:
    """The figure stands behind the bar, and its multiple of ours."""
    drawn = svg(_plots.chart_of("life", {"summary": life.summary(rounds())}))

    said = ["".join(each.itertext()) for each in drawn.findall(".//{*}text")]
    assert {"100", "4004.0×"} <= set(said)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("kill", {"tasks": 200, "kills": [asdict(kill.Kill("arq", lost=7))]}),
        ("instructions", {"build": "x", "instructions": {"a": 5}, "budgets": {}}),
        ("first-token", {"summary": {"directly": {"p50": 1.0}, "async_nodes": {"p50": 2.0}}}),
        ("batch", {"rounds": [], "summary": {"web": 1.0, "redis": 2.0, "rate": 3.0}}),
        ("unheard-of", {"summary": [{"connections": 4, "sides": {"x": {"web": 1.0}}}]}),
    ],
)
def test_every_benchmark_has_a_chart(name: str, figures: dict[str, Any]) -> None:
    """Its figures are enough for one; one with sides and their parts needs nothing of its own."""
    assert svg(_plots.chart_of(name, figures)).findall(".//{*}rect")


def test_what_cannot_be_drawn_is_said() -> None:
    """In a sentence, since the figures have been printed by then."""
    with pytest.raises(BenchmarkError, match="no chart is known for it"):
        _plots.chart_of("it", {"summary": 3})


@pytest.mark.parametrize(
    ("most", "step"), [(7.0, 1.0), (1.0, 0.2), (950.0, 200.0), (6200.0, 1000.0)]
)
def test_the_grid_is_round(most: float, step: float) -> None:
    """Four to ten lines, at round figures."""
    assert _chart.tick_step(most) == pytest.approx(step)


def svg(chart: _chart.Chart) -> ET.Element:
    """Return a chart as drawn."""
    return ET.fromstring(_chart.draw(chart))  # noqa: S314 - drawn here


# -- what was asked for ----------------------------------------------------------------------------


def test_sides_are_chosen_by_name() -> None:
    """In the order asked for, each once; ``all`` is all."""
    made = argparse.ArgumentParser(exit_on_error=False)
    sides_of(made, ("a", "b", "c"), default=("a",))

    assert made.parse_args([]).sides == ("a",)
    assert made.parse_args(["--sides", "c,a,c"]).sides == ("c", "a")
    assert made.parse_args(["--sides", "all"]).sides == ("a", "b", "c")
    with pytest.raises(argparse.ArgumentError, match="there is no side 'd'"):
        made.parse_args(["--sides", "d"])


def test_a_side_that_cannot_be_installed_stays_in_the_table() -> None:
    """With the reason, where others have what they lack."""
    said = life.differences((OURS, "ardiq"), {"ardiq": "it needs Python 3.12"}, [])

    assert "| ardiq       | not tried" in said
    assert "| it needs Python 3.12" in said


def test_an_environment_needs_a_python_that_is_new_enough() -> None:
    """None from the future is found."""
    with pytest.raises(NotInstalledError, match=r"it needs Python 3\.99 or newer"):
        python_of("ardiq", least=(3, 99))


def test_every_library_is_pinned_with_hashes() -> None:
    """Installed is what the file says and nothing else; and no file names a registry."""
    for name, library in LIBRARIES.items():
        if not library.own:
            folder = Path(_processes.__file__).parent / "baselines" / library.package
            wanted = (folder / "requirements.txt").read_text(encoding="utf-8")
            pins = re.findall(r"^[a-z]\S*==\S+", wanted, re.MULTILINE)
            assert pins, name
            assert wanted.count(" --hash=sha256:") >= len(pins), name
            assert "://" not in wanted, name
            assert (folder / "README.md").exists(), name


# -- progress --------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Text that calls itself a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def test_progress_is_a_bar_on_a_terminal() -> None:
    """One line that is drawn over, and nothing left of it at the end."""
    to = Terminal()
    shown = Progress(4, to)

    shown.step("one")
    shown.step("two")
    shown.end()

    assert "█" * 12 + "░" * 12 + " 2/4" in to.getvalue()
    assert "\n" not in to.getvalue()
    assert to.getvalue().endswith("\r\x1b[K")


def test_progress_is_lines_elsewhere() -> None:
    """A log has no use for a bar."""
    to = io.StringIO()
    shown = Progress(4, to)

    shown.step("one")
    shown.end()

    assert to.getvalue() == "[1/4] one\n"


# -- processes -------------------------------------------------------------------------------------


def test_the_cpu_time_of_children_counts() -> None:
    """A child that lives and one that was waited for are both in the figure."""
    spin = "import time\nwhile time.process_time() < .3: pass\n"
    script = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {spin!r}])
child = subprocess.Popen([sys.executable, "-c", {spin!r} + "print(1, flush=True)\\ninput()"],
    stdin=subprocess.PIPE)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(1)
        seconds = cpu_seconds(process.pid)
        process.stdin.close()

    assert 0.55 < seconds < 3.0


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes and their folder end with the block, and get no settings of the developer."""
    monkeypatch.setenv("ASYNC_NODES_PORT", "1")
    monkeypatch.setenv("CELERY_TIMEZONE", "UTC")
    show = "import os, time; print(sorted(os.environ), flush=True); time.sleep(60)"

    with processes() as owned:
        child = owned.start("shown", [sys.executable, "-c", show], environment={"GIVEN": "x"})
        log = owned.folder / "shown.log"
        owned.wait_for("the output", lambda: b"]" in log.read_bytes())
        names = log.read_text(encoding="utf-8")

    assert "'GIVEN'" in names
    assert not re.search("ASYNC_NODES_|CELERY_", names)
    assert child.returncode is not None
    assert not owned.folder.exists()


def test_a_process_that_ends_is_named_with_its_last_words() -> None:
    """Waiting for something does not go on when a process has died."""
    with processes() as owned:
        owned.start("broken", [sys.executable, "-c", "raise SystemExit('no such luck')"])

        with pytest.raises(BenchmarkError, match=r"broken ended: 1\n  broken: no such luck"):
            owned.wait_for("the broken one", lambda: False)


def test_what_is_never_ready_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark is bounded in time."""
    monkeypatch.setattr(_processes, "READY_SECONDS", 0.1)

    with processes() as owned, pytest.raises(BenchmarkError, match="it was not ready"):
        owned.wait_for("it", lambda: False)


# -- the client ------------------------------------------------------------------------------------


def test_a_reply_is_whole_or_waited_for() -> None:
    """Head and body may come in pieces."""
    whole = b"HTTP/1.1 202 Accepted\r\ncontent-length: 4\r\nX: y\r\n\r\nbody"

    assert parse(whole) == (202, b"body")
    assert [parse(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


def test_a_reply_without_a_length_is_refused() -> None:
    """Neither side sends one, so it would be a fault."""
    with pytest.raises(BenchmarkError, match="without Content-Length"):
        parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@contextmanager
def server(answer: Answer, dialect: Dialect) -> Iterator[Side]:
    """Serve a side that answers with `answer(method, body or path)`."""

    def serve(link: socket.socket) -> None:
        with link, link.makefile("rb") as lines:
            while line := lines.readline():
                length = 0
                while (header := lines.readline()) not in {b"\r\n", b""}:
                    if header.lower().startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                method, path, _ = line.split()
                status, body = answer(method, lines.read(length) or path)
                head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
                link.sendall(head + body)

    def accept() -> None:
        while True:
            try:
                link, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(link,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        pids = dict.fromkeys(PARTS, os.getpid())
        yield Side("fake", dialect, listener.getsockname()[1], pids)
        listener.shutdown(socket.SHUT_RDWR)


class Store:
    """Answer as a side does; a task ends at its second read."""

    def __init__(self, waiting: bytes, success: bytes, *, wrong: int = 0) -> None:
        self.reads: dict[bytes, int] = {}
        self._waiting, self._success, self._wrong = waiting, success, wrong

    def __call__(self, method: bytes, what: bytes) -> tuple[int, bytes]:
        """Answer one request."""
        if method == b"POST":
            found = re.search(rb'"n": (\d+)', what)
            assert found is not None
            return 202, b'{"task_id": "t-%s", "state": "%s"}' % (found[1], self._waiting)
        task_id = what.rpartition(b"/")[2]
        self.reads[task_id] = self.reads.get(task_id, 0) + 1
        number = int(task_id.removeprefix(b"t-"))
        if self.reads[task_id] == 1:
            return 200, b'{"state":"%s"}' % self._waiting
        shown = number + 1 if number == self._wrong else number
        return 200, b'{"state": "%s", "output": {"n": %d}}' % (self._success, shown)


@pytest.mark.parametrize(
    ("dialect", "waiting", "success"),
    [(OURS_DIALECT, b"Pending", b"Succeeded"), (BASELINE_DIALECT, b"PENDING", b"SUCCESS")],
    ids=["ours", "baseline"],
)
def test_every_task_lives_its_whole_life(dialect: Dialect, waiting: bytes, success: bytes) -> None:
    """Each is submitted once and read until its end shows, on all connections."""
    store = Store(waiting, success)

    with server(store, dialect) as side:
        load = live(side, 20, 4, limit=20)

    assert sorted(load.ids) == sorted(b"t-%d" % number for number in range(1, 21))
    assert set(store.reads.values()) == {2}
    assert load.polls == 40
    assert len(load.latencies) == 20
    # Two pauses of 5 and 10 ms lie in every life.
    assert min(load.latencies) > 0.014


def test_a_wrong_output_ends_the_benchmark() -> None:
    """Speed with another task's answer is worth nothing."""
    store = Store(b"Pending", b"Succeeded", wrong=3)

    with server(store, OURS_DIALECT) as side, pytest.raises(BenchmarkError, match="a read"):
        live(side, 5, 1, limit=20)


def test_a_refused_submit_ends_the_benchmark() -> None:
    """The reply is shown."""

    def refuse(_method: bytes, _what: bytes) -> tuple[int, bytes]:
        return 503, b"no store"

    with (
        server(refuse, OURS_DIALECT) as side,
        pytest.raises(BenchmarkError, match=r"503.*no store"),
    ):
        live(side, 5, 1, limit=20)


def test_a_round_is_bounded() -> None:
    """A server that never shows the end is given up."""

    def wait(method: bytes, _what: bytes) -> tuple[int, bytes]:
        return (202 if method == b"POST" else 200), b'{"task_id":"t","state":"Pending"}'

    with server(wait, OURS_DIALECT) as side, pytest.raises(BenchmarkError, match="longer than"):
        live(side, 5, 2, limit=0.2)


def test_reads_take_the_requests_in_turn() -> None:
    """All are asked as often as each other."""
    store = Store(b"Pending", b"Succeeded")

    with server(store, OURS_DIALECT) as side:
        requests = [side.dialect.poll(side.port, b"t-%d" % number) for number in range(5)]
        load = read(side, requests, 50, 3, limit=20)

    assert set(store.reads.values()) == {10}
    assert len(load.latencies) == 50


@pytest.mark.parametrize("apart", [False, True])
def test_every_submit_is_accepted_once(*, apart: bool) -> None:
    """In one packet or in two, on all connections."""
    with server(Store(b"Pending", b"Succeeded"), OURS_DIALECT) as side:
        load = submit(side, 20, 3, limit=20, apart=apart)

    assert sorted(load.ids) == sorted(b"t-%d" % number for number in range(1, 21))
    assert len(load.latencies) == 20


def test_an_offer_does_not_wait_for_replies() -> None:
    """What a stalled server answers late counts from when it was due."""
    stalled = iter([0.2])

    def stall(_method: bytes, _what: bytes) -> tuple[int, bytes]:
        time.sleep(next(stalled, 0))
        return 200, b"{}"

    with server(stall, OURS_DIALECT) as side:
        request = side.dialect.poll(side.port, b"t-1")
        load = offer(side.port, [request], rate=100, seconds=0.5, connections=1, limit=20)

    assert load.polls == 50
    assert 0.45 < load.seconds < 1.5
    late = [each for each in load.latencies if each > 0.05]
    assert len(late) >= 10  # not only the one that stalled


# -- the list --------------------------------------------------------------------------------------


def test_the_benchmarks_are_listed() -> None:
    """``python -m benchmarks`` lists what ``async-nodes bench`` offers, with a line about each."""
    from async_nodes.cli.verbs.bench import benchmarks

    root = Path(_processes.__file__).parents[1]
    listed = subprocess.run(
        [sys.executable, "-m", "benchmarks"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()

    assert [line.split()[0] for line in listed] == list(benchmarks(root))
    assert {"batch", "first-token", "instructions", "kill", "life", "poll", "submit"} <= benchmarks(
        root
    ).keys()
    assert all(len(line.split()) > 3 for line in listed)
    chinese = json.loads((root / "benchmarks" / "chinese.json").read_text(encoding="utf-8"))
    assert benchmarks(root).keys() <= chinese.keys()


def test_an_unknown_benchmark_is_named() -> None:
    """The answer lists what there is, and the status is that of a wrong use."""
    root = Path(_processes.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "lief"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "'lief'; there are: batch, breaker, " in done.stderr


# -- the breaker's gate ----------------------------------------------------------------------------


def test_the_breakers_gate_tells_which_promise_was_broken() -> None:
    """The P99, the windows until it opened, and the way back."""
    options = breaker.options_of(["--window", "2", "--open-seconds", "10", "--slow", "24"])
    watched = breaker.Watched()
    for at, state in [(0.1, "closed"), (2.6, "open"), (12.0, "half-open"), (25.6, "closed")]:
        watched.see(at, state)
    quick, slow = ({breaker.NODES[0]: {"p99_ms": ms}} for ms in (160.0, 800.0))

    assert all(breaker.judge(options, quick, watched).values())
    assert breaker.judge(options, slow, breaker.Watched()) == {
        "p99": False, "opened": False, "recovered": False,
    }  # fmt: skip


def test_what_came_before_the_breaker_could_open_is_left_out() -> None:
    """Three windows; and the other node's answers."""
    node, other = breaker.NODES
    found = [
        {"node": name, "at": at, "seconds": at, "state": "Succeeded", "fallback": at > 7}
        for name in (node, other)
        for at in (1.0, 7.0, 8.0)
    ]

    summary = breaker.summary(found, node, after=6.0)

    assert (summary["answers"], summary["most_ms"], summary["fallback"]) == (2, 8_000.0, 1)
