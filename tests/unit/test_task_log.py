"""What a body logs on its way into the store: beside the body, bounded, whole at the end."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, TaskCancelled
from async_nodes.core.log_levels import LEVELS, level_name
from async_nodes.core.ports import Applied
from async_nodes.execution import task_log
from async_nodes.execution.plain_host import in_thread
from async_nodes.execution.signals import FenceLost
from async_nodes.execution.task_log import MAX_LINE, TaskLog, shortened
from async_nodes.nodes.context import NodeContext, said

OK = Applied(applied=True, version=2, cancel_asked=False)


class Store:
    """Note lines; may be slow, broken or in other hands."""

    def __init__(self, answer: Applied | Exception = OK) -> None:
        self.answer = answer
        self.lines: list[tuple[int, dict[str, Any]]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()

    def log(self, task_id: str, fence: str, line: bytes, *, number: int) -> Applied:
        """Take a line."""
        assert (task_id, fence) == ("t", "f")
        self.may_answer.wait(10)
        if isinstance(self.answer, Exception):
            raise self.answer
        self.lines.append((number, json.loads(line)))
        return self.answer

    @property
    def texts(self) -> list[str]:
        """Return what was said."""
        return [line["text"] for _, line in self.lines]


def opened(store: Store, **options: Any) -> TaskLog:
    return TaskLog(
        store.log,
        task_id="t",
        fence="f",
        attempt=3,
        aside=options.pop("aside", in_thread),
        **options,
    )


def test_lines_arrive_numbered_and_in_order() -> None:
    """Each line has its time, level, text, attempt and number; the end waits for all of them."""
    store = Store()
    log = opened(store)
    for number in range(150):
        log.line(logging.INFO, f"line {number}")
    log.close()

    assert store.texts == [f"line {number}" for number in range(150)]
    assert [number for number, _ in store.lines] == list(range(1, 151))
    first = store.lines[0][1]
    assert list(first) == ["at", "level", "text", "attempt", "n"]
    assert (first["level"], first["attempt"], first["n"]) == ("info", 3, 1)
    assert first["at"].endswith("Z")


def test_a_line_arrives_without_another_one() -> None:
    """What a body said last before a long silence is stored meanwhile."""
    store = Store()
    log = opened(store)
    log.line(logging.INFO, "loading")
    log.line(logging.WARNING, "loaded")
    until = time.monotonic() + 5
    while len(store.lines) < 2:
        assert time.monotonic() < until
        time.sleep(0.01)

    assert store.texts == ["loading", "loaded"]


def test_a_slow_store_holds_up_nobody() -> None:
    """Lines wait in a bounded buffer; beyond it they are dropped and counted."""
    store = Store()
    store.may_answer.clear()
    log = opened(store)
    began = time.monotonic()
    for number in range(50_000):
        log.line(logging.INFO, str(number))
    assert time.monotonic() - began < 8
    log.close(0.05)  # gives up
    store.may_answer.set()
    log.close()

    dropped = [text for text in store.texts if "dropped" in text]
    assert dropped
    assert len(store.lines) < 50_000
    counted = sum(int(text.split()[1].replace(",", "")) for text in dropped)
    assert counted + len(store.lines) - len(dropped) == 50_000


def test_a_flood_says_how_many_lines_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many lines a second are taken; then a line tells of the others."""
    monkeypatch.setattr(task_log, "LINES_PER_SECOND", 10)
    monkeypatch.setattr(task_log.time, "time", lambda: 1000.5)
    store = Store()
    log = opened(store)
    for number in range(25):
        log.line(logging.INFO, str(number))
    monkeypatch.setattr(task_log.time, "time", lambda: 1001.5)
    log.line(logging.INFO, "later")
    log.close()

    assert store.texts == [*map(str, range(10)), "… 15 lines dropped: too many at once", "later"]
    assert store.lines[10][1]["level"] == "warning"


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (Applied(applied=False, version=0, cancel_asked=False), FenceLost),
        (Applied(applied=True, version=2, cancel_asked=True), TaskCancelled),
    ],
)
def test_the_stores_word_is_raised_at_the_next_line(
    answer: Applied, word: type[BaseException]
) -> None:
    """A body that only logs hears of a lost task or a cancel, too."""
    log = opened(Store(answer))
    log.line(logging.INFO, "one")
    log.close()
    with pytest.raises(word):
        log.line(logging.INFO, "two")


@pytest.mark.parametrize("applied", [True, False])
def test_a_clean_up_is_not_told_what_it_follows(*, applied: bool) -> None:
    """After the end a cancel is no news, and a record that is gone no reason to stop."""
    store = Store(Applied(applied=applied, version=2, cancel_asked=True))
    log = opened(store, is_over=True)
    for _ in range(2):
        log.line(logging.INFO, "cleaning")
        log.close()
    assert store.texts == (["cleaning"] * 2 if applied else ["cleaning"])


def test_a_store_that_fails_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The body goes on, the process's log has a warning, later lines tell of what is missing."""
    store = Store(AsyncNodesError("store_unavailable"))
    log = opened(store)
    log.line(logging.INFO, "lost")
    log.close()
    store.answer = OK
    log.line(logging.INFO, "kept")
    log.close()

    assert store.texts == ["kept", "… 1 lines dropped: too many at once"]
    assert "lost" in caplog.text


def test_a_forked_process_leaves_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a body's own child says goes to the process's log only."""
    store = Store()
    log = opened(store)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    log.line(logging.INFO, "from a child")
    log.close()
    assert store.lines == []


@given(st.text(max_size=40), st.integers(0, 3 * MAX_LINE))
def test_a_long_line_is_cut_with_a_mark(text: str, length: int) -> None:
    """What is stored is valid UTF-8 of at most 8 KiB and says how long it was."""
    given_text = (text + "é") * (length // (len(text.encode("utf-8", "replace")) + 2))
    raw = given_text.encode("utf-8", "replace")
    cut = shortened(given_text)
    assert len(cut.encode()) <= MAX_LINE
    if len(raw) <= MAX_LINE:
        assert cut == raw.decode()
    else:
        assert cut.endswith(f"… [cut: {len(raw):,} bytes]")


def test_half_a_character_does_not_break_a_line() -> None:
    """Lone surrogates become question marks."""
    assert shortened("a\ud800b") == "a?b"


@given(st.integers(-5, 100))
def test_every_level_has_a_name(level: int) -> None:
    """The name is that of the nearest level that is not more severe."""
    least = LEVELS[level_name(level)]
    assert least <= max(level, LEVELS["debug"])
    assert not [one for one in LEVELS.values() if least < one <= level]


# -- ctx.log ---------------------------------------------------------------------------------------


def logged(use: Callable[[Any], None], **options: Any) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    ctx = NodeContext(
        task_id="t", node="n", on_log=lambda level, text: lines.append((level, text)), **options
    )
    use(ctx.log)
    return lines


def test_what_is_severe_enough_goes_to_the_task(caplog: pytest.LogCaptureFixture) -> None:
    """INFO and above, though the process itself logs warnings only; not twice."""

    def use(log: Any) -> None:
        log.debug("no")
        log.info("yes %s", 1)
        log.warning("and %(a)s", {"a": 2})
        log.log(35, "between")
        assert log.isEnabledFor(logging.INFO)
        assert not log.isEnabledFor(logging.DEBUG)

    with caplog.at_level(logging.WARNING, logger="async_nodes.node"):
        assert logged(use) == [(20, "yes 1"), (30, "and 2"), (35, "between")]
        assert [record.getMessage() for record in caplog.records] == ["and 2", "between"]
        assert caplog.records[0].filename == "test_task_log.py"


def test_another_level_may_be_kept() -> None:
    """The level is the context's."""
    assert logged(lambda log: log.debug("fine"), log_level=logging.DEBUG) == [(10, "fine")]
    assert logged(lambda log: log.info("no"), log_level=logging.ERROR) == []


def test_a_traceback_stands_in_the_line() -> None:
    """`exception` keeps what was raised, as the process's log does."""

    def use(log: Any) -> None:
        try:
            int("inner")
        except ValueError:
            log.exception("outer")

    ((level, text),) = logged(use)
    assert level == logging.ERROR
    assert text.startswith("outer\nTraceback")
    assert text.endswith("ValueError: invalid literal for int() with base 10: 'inner'")


class Rude:
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("message", "args", "text"),
    [
        ("%s and %s", ("one",), "%s and %s"),
        ("%d", ("x",), "%d"),
        ("100%", (), "100%"),
        ({"a": 1}, (), "{'a': 1}"),
        ("%s", (Rude(),), "%s"),
        (Rude(), (), "Rude without a text"),
    ],
)
def test_a_line_that_cannot_be_formatted_is_kept_as_it_is(
    message: object, args: tuple[Any, ...], text: str
) -> None:
    """A mistake in a log line is no failure of the node."""
    assert said(message, args) == text
