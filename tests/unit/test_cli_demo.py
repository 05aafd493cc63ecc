from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.cli.demo import plain, report
from async_nodes.cli.demo.director import first_token
from async_nodes.cli.demo.frame import frame, rows
from async_nodes.cli.demo.tasks import demo_tasks, prompt, what_is_wrong
from async_nodes.cli.demo.view import TaskView, accepted, advance, failed
from async_nodes.cli.terminal import Terminal, width

ID = "t_01KQ7W4D9XZ2M8R5T6V3B0C1EF"
ASCII = Terminal(unicode=False, columns=72)
RUNNING = {"state": "Running", "reason": "", "attempt": 1}
BACKOFF = {"state": "Pending", "reason": "backoff", "attempt": 1}


def streaming() -> TaskView:
    view = TaskView(node="llm.chat", expected=4.0, text_rows=2)
    view = accepted(view, ID, answered_ms=6.4, at=1.0)
    view = advance(view, "state", RUNNING, at=1.5)
    return advance(view, "chunk", {"text": "hello wor", "attempt": 1, "n": 1}, at=2.0)


def test_a_frame_shows_state_word_icon_attempt_bar_and_text() -> None:
    """The frame of two tasks, one streaming and one waiting for its retry, as it is drawn."""
    waiting = accepted(TaskView(node="test.fail"), ID, answered_ms=5.0, at=1.0)
    waiting = advance(advance(waiting, "state", RUNNING, at=1.1), "state", BACKOFF, at=1.2)
    drawn = frame([streaming(), waiting], blocking="still waiting", now=3.5, terminal=ASCII)
    assert drawn == [
        "",
        " * llm.chat     Running    attempt 1 ##########..........  50%    2.5 s",
        "    t_01KQ7W4D9XZ2M8R5T6V3B0C1EF  caller answered in 6 ms",
        "    | hello wor_",
        "    | ",
        "",
        " o test.fail    Pending    attempt 1 ....................   0%    2.5 s",
        "    t_01KQ7W4D9XZ2M8R5T6V3B0C1EF  caller answered in 5 ms  failed, wait~",
        "",
        "still waiting",
    ]


def test_a_frame_in_unicode_and_colour() -> None:
    """Colour and icons come on top of the same words."""
    terminal = Terminal(color=True, columns=80)
    line = frame([streaming()], blocking="", now=3.5, terminal=terminal)[1]
    assert line == (
        "\x1b[1;36m ● \x1b[0m\x1b[1mllm.chat     \x1b[0m\x1b[36mRunning    \x1b[0mattempt 1 "
        "\x1b[36m" + "━" * 14 + "─" * 14 + "\x1b[0m  50%\x1b[2m    2.5 s\x1b[0m"
    )


@given(st.integers(30, 200), st.text(max_size=300))
def test_no_line_of_a_frame_is_too_long_and_their_number_is_fixed(columns: int, text: str) -> None:
    """Whatever a model says, a frame has the same rows and fits the terminal."""
    view = replace(streaming(), text=text)
    drawn = frame([view], blocking="b" * 300, now=9.0, terminal=Terminal(columns=columns))
    assert len(drawn) + 1 == rows([view])
    assert all(width(line) <= columns for line in drawn)


def test_progress_is_what_the_node_says_else_guessed_and_only_an_end_is_full() -> None:
    """A guess from the time never reaches the end; the end is full whatever was said."""
    view = streaming()
    assert view.progress(1000.0) == 0.95
    assert advance(view, "progress", {"fraction": 0.25}, at=2.0).progress(1000.0) == 0.25
    assert advance(view, "done", {"state": "Succeeded", "attempt": 1}, at=3.0).progress(3.1) == 1.0


def test_a_new_attempt_begins_without_the_text_of_the_one_before() -> None:
    """What a superseded attempt streamed disappears, and what of it comes late is dropped."""
    view = advance(streaming(), "state", BACKOFF, at=2.5)
    view = advance(view, "state", {**RUNNING, "attempt": 2}, at=3.0)
    assert view.text == ""
    assert advance(view, "chunk", {"text": "late", "attempt": 1}, at=3.1).text == ""
    assert advance(view, "chunk", {"text": "new", "attempt": 2}, at=3.1).text == "new"


def test_the_plain_lines_of_a_life() -> None:
    """Where nothing can be drawn over, each change is a line with its time."""
    before = TaskView(node="test.fail")
    steps: list[TaskView] = [accepted(before, ID, answered_ms=5.0, at=1.0)]
    for kind, data in (("state", RUNNING), ("state", BACKOFF), ("progress", {"fraction": 0.1})):
        steps.append(advance(steps[-1], kind, data, at=2.0))
    steps.append(advance(steps[-1], "done", {"state": "Failed", "attempt": 2}, at=2.0))
    said = [
        line
        for was, is_now in zip([before, *steps], steps, strict=False)
        for line in plain.changes(was, is_now, at=2.0, terminal=ASCII)
    ]
    assert said == [
        "  2.00 s  test.fail     accepted as t_01KQ7W4D9XZ2M8R5T6V3B0C1EF in 5 ms",
        "  2.00 s  test.fail     * Running, attempt 1",
        "  2.00 s  test.fail     o Pending, attempt 1 (failed, waits to be retried)",
        "  2.00 s  test.fail     x Failed, attempt 2",
    ]


@given(st.text(max_size=300), st.lists(st.integers(0, 300), max_size=20))
def test_streamed_text_is_told_whole_and_once(text: str, cuts: list[int]) -> None:
    """However a text arrives, its lines together hold every word once."""
    lines = plain.TextLines()
    said = [line for cut in sorted(cuts) for line in lines.take(text[:cut], is_over=False)]
    said += lines.take(text, is_over=True)
    assert all(width(line) <= 90 for line in said)
    kept = "".join(c for c in text if c.isalnum())
    assert "".join(c for line in said for c in line if c.isalnum()) == kept


def test_another_attempts_text_is_told_from_its_beginning() -> None:
    """A text that became shorter is a new one."""
    lines = plain.TextLines()
    assert lines.take("first\n", is_over=False) == ["first"]
    assert lines.take("", is_over=False) == []
    assert lines.take("next\n", is_over=False) == ["next"]


def record(**more: Any) -> dict[str, Any]:
    def at(ms: int) -> str:
        return f"2026-11-30T21:00:{ms // 1000:02}.{ms % 1000:03}Z"

    attempts = [
        {"queued_at": at(0), "started_at": at(10), "finished_at": at(110)},
        {"queued_at": at(510), "started_at": at(530), "finished_at": at(1530)},
    ]
    times = {"created_at": at(0), "finished_at": at(1530), "attempts": attempts}
    return {"node": "test.fail", "state": "Succeeded", "attempt": 2, **times, **more}


def test_a_row_splits_the_life_of_a_record() -> None:
    """Queued, running and the pause between attempts add up to the total."""
    row = report.row_of(record(), answered_ms=5.0, blocking_ms=None, outcome="fine")
    assert (round(row.queued), round(row.running), round(row.pause)) == (30, 1100, 400)
    assert round(row.total) == 1530
    assert round(row.blocking) == 1500
    assert not row.is_measured


def test_a_task_that_never_ran_has_a_row() -> None:
    """A record without attempts is a row of waiting only."""
    row = report.row_of(
        record(attempts=[], state="Cancelled"), answered_ms=5.0, blocking_ms=None, outcome=""
    )
    assert (row.running, round(row.total)) == (0, 1530)


def test_the_table_and_its_sum() -> None:
    """The table as it is printed, the measured blocking call marked."""
    fail = report.row_of(record(), answered_ms=5.0, blocking_ms=None, outcome="fine")
    chat = replace(fail, node="llm.chat", pause=0.0, blocking=2000.0, is_measured=True, outcome="")
    assert report.table([chat, fail], replace(ASCII, columns=200)) == [
        "node       state        queued  running  total  answered  blocking",
        "------------------------------------------------------------------",
        "llm.chat   + Succeeded      30   1,100   1,530         5    2,000*",
        "test.fail  + Succeeded      30   1,100+  1,530         5    1,500   fine",
        "------------------------------------------------------------------",
        "sum                                                   10    3,500",
        "times in ms",
        "+ pause before the retry: test.fail 400",
        "* measured by a blocking call beside it; the others: running time and pauses",
    ]
    assert report.verdict([chat, fail]) == (
        "The callers were answered in 10 ms; blocking calls would have cost them 3,500 ms, "
        "350 times as long."
    )


def test_each_task_is_checked_for_its_own_end() -> None:
    """A task that ended otherwise than it should is named, one that ended well is not."""
    chat, http, chunk, fail = demo_tasks("http://127.0.0.1:1")
    good: list[tuple[Any, dict[str, Any]]] = [
        (chat, {"output": prompt()}),
        (http, {"output": {"status": 200}}),
        (chunk, {"output": {"count": 9}}),
        (fail, {"output": {"attempt": 2}, "attempt": 2}),
    ]
    bad: list[dict[str, Any]] = [
        {"output": prompt()[:-1]},
        {"output": {"status": 500}},
        {"output": None},
        {"output": {"attempt": 1}, "attempt": 1},
    ]
    for (task, well), ill in zip(good, bad, strict=True):
        assert what_is_wrong(task, {"state": "Succeeded", **well}) == ""
        assert "unexpected result" in what_is_wrong(task, {"state": "Succeeded", **ill})
        error = {"code": "node_failed", "message": "no"}
        ended = what_is_wrong(task, {"state": "Failed", "error": error, **well})
        assert ended == "Failed: no [node_failed]"
        assert what_is_wrong(task, None) == "did not end in time"


def test_a_task_that_could_not_be_submitted_is_over() -> None:
    """Trouble ends a task's block and is shown in it."""
    view = failed(TaskView(node="echo"), "no such node", at=2.0)
    assert view.is_over
    drawn = frame([view], blocking="", now=3.0, terminal=ASCII)
    assert "Trouble" in drawn[1]
    assert "no such node" in drawn[2]


def test_the_first_token_is_told_with_the_set_up_before_it() -> None:
    """A set-up that took time is told apart from the start."""
    assert first_token(1.84, 0.1) == "First token 1.8 s after the start."
    assert first_token(1.84, 14.0) == "First token 1.8 s after the start, after 14.0 s of set-up."
