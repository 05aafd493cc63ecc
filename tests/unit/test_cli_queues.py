"""The verbs about queues and workers: whom they mean, what they print."""

from __future__ import annotations

from typing import Any

import click
import pytest

from async_nodes.cli import control
from async_nodes.cli.tables import seconds, table
from async_nodes.cli.terminal import Terminal
from async_nodes.cli.verbs import queues, workers
from async_nodes.cli.watching import show

PLAIN = Terminal(columns=200)
QUEUE: dict[str, Any] = {
    "name": "io.default", "kind": "io", "state": "open", "since": None, "reason": None,
    "depth": 3, "unclaimed": 1_234, "parked": 0, "held": 2, "delayed": 1, "backoff": 0,
    "oldest_seconds": 75.4, "rate": 12.34, "workers": 1, "slots": None, "running": 7,
}  # fmt: skip
WORKER: dict[str, Any] = {
    "worker_id": "io-1-deadbeef", "kind": "io", "host": "box", "pid": 1, "version": "0.2",
    "transport": "fast", "started_at": "2026-07-04T12:00:00.000Z", "lease_seconds": 14.2,
    "concurrency": 300, "running": 7, "free": 293, "rates": {"io.high": 1.5, "io.default": 2.0},
    "nodes": 17, "stalls": 1,
}  # fmt: skip
SILENT = {
    **WORKER, "worker_id": "cpu-2-00000000", "host": None, "version": None, "started_at": None,
    "concurrency": None, "stalls": None, "rates": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ("io.high", "/v1/queues/io.high"),
        ("cpu", "/v1/queues/cpu"),
        ("llm.chat", "/v1/nodes/llm.chat"),
        ("node:io", "/v1/nodes/io"),
        ("queue:io.lwo", "/v1/queues/io.lwo"),
        ("a/b", "/v1/nodes/a%2Fb"),
    ],
)
def test_a_name_is_a_queue_or_a_node(scope: str, path: str) -> None:
    """The queues' own names are queues, all others are nodes; a prefix settles it."""
    assert control.path_of(scope) == path


@pytest.mark.parametrize("scope", ["task:x", "node:", ":x"])
def test_other_scopes_are_refused(scope: str) -> None:
    """The message says how to write one."""
    with pytest.raises(click.BadParameter, match="say queue:NAME or node:NAME"):
        control.path_of(scope)


def test_what_was_done_is_told() -> None:
    """What is in force, and how many tasks it touched; nothing steers the terminal."""
    scope = {"scope": "node:echo", "state": "paused", "reason": "a\x1b[2Jb", "held": 2}
    document = {"scopes": [scope], "touched": 5, "more": False}
    assert control.lines("pause", document) == ["echo: paused (a [2Jb), 2 held"]
    opened = {**document, "scopes": [{**scope, "state": "open", "reason": None, "held": 0}]}
    assert control.lines("resume", opened) == ["echo: open", "5 put back"]
    assert control.lines("purge", opened) == ["echo: open", "5 cancelled"]
    more = control.lines("resume", {**opened, "more": True})
    assert more[-1] == "the rest is put back by the workers"


def test_queues_are_a_table() -> None:
    """Numbers to the right; below it why a queue is not open, and whether all was counted."""
    held = {**QUEUE, "name": "io.low", "state": "paused", "since": "then", "reason": "quota"}
    lines = queues.lines({"queues": [QUEUE, held], "exact": False}, PLAIN)

    assert lines[0].split() == [
        "queue", "state", "waiting", "parked", "held", "delayed", "backoff", "oldest", "per",
        "second", "running", "workers",
    ]  # fmt: skip
    assert lines[1].split() == [
        "io.default", "open", "1,234", "0", "2", "1", "0", "75", "s", "12.3", "7/?", "1",
    ]  # fmt: skip
    assert lines[3] == "io.low: paused since then: quota"
    assert "more may be delayed" in lines[4]
    assert len({len(line) for line in lines[:3]}) == 1


def test_workers_are_a_table() -> None:
    """One that says nothing of itself has dashes; one alone is shown with what it runs."""
    at = 1_783_166_400.0 + 3_700
    lines = workers.lines({"workers": [WORKER, SILENT]}, PLAIN, now=at)
    assert lines[1].split() == [
        "io-1-deadbeef", "box", "0.2", "62", "min", "7/300", "3.5", "1", "14", "s",
    ]  # fmt: skip
    assert lines[2].split()[:4] == ["cpu-2-00000000", "-", "-", "-"]
    task = {"task_id": "t_1", "node": "echo", "attempt": 2, "seconds": 0.25}
    alone = workers.lines({**WORKER, "tasks": [task]}, PLAIN, now=at)
    assert alone[-1].split() == ["t_1", "echo", "2", "0.2", "s"]
    assert workers.lines({"workers": []}, PLAIN, now=at) == ["There is no live worker."]


def test_a_table_is_cut_to_the_terminal() -> None:
    """Wide characters count as two columns."""
    rows = [[("队列", ""), ("1", "")], [("x", ""), ("22", "")]]
    columns = [("name", "left"), ("n", "right")]
    assert table(columns, rows, PLAIN) == ["name   n", "队列   1", "x     22"]
    assert all(len(line) <= 5 for line in table(columns, rows[1:], Terminal(columns=5)))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"), (0, "0.0 s"), (9.94, "9.9 s"), (10, "10 s"), (119.4, "119 s"),
        (120, "2 min"), (7_199, "120 min"), (7_200, "2 h"), (172_800, "2 d"),
    ],
)  # fmt: skip
def test_times_are_short(count: float | None, text: str) -> None:
    """Two or three digits and a unit."""
    assert seconds(count) == text


class Stop(Exception):
    """Stand for Ctrl-C."""


def test_watching_shows_it_again(capsys: pytest.CaptureFixture[str]) -> None:
    """In the same place on a terminal, below on paper; once without being asked to."""
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) % 3 == 0:
            raise Stop

    for terminal in (PLAIN, Terminal(live=True)):
        with pytest.raises(Stop):
            show(lambda: ["a", "b"], terminal, every=0.5, sleep=sleep)
    show(lambda: ["once"], PLAIN, every=None, sleep=sleep)

    assert pauses == [0.5] * 6
    again = "\x1b[H\x1b[2Ja\nb\n"
    assert capsys.readouterr().out == "a\nb\n\na\nb\n\na\nb\n" + again * 3 + "once\n"
