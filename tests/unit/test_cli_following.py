from __future__ import annotations

import io
import json
from typing import Any

import pytest

from async_nodes.cli.following import Follower
from async_nodes.cli.sse import Message

RUNNING = ("state", {"state": "Running", "reason": "", "attempt": 1})
SUCCEEDED: dict[str, Any] = {"state": "Succeeded", "attempt": 1, "output": "hi there"}


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def follow(
    *events: tuple[str, dict[str, Any]], out: io.StringIO | None = None
) -> tuple[str, str, int]:
    """Return what is on stdout, on stderr, and the exit status."""
    out = io.StringIO() if out is None else out
    follower = Follower(out, io.StringIO())
    for kind, data in events:
        record = follower.show(Message(kind, json.dumps(data), "1-0"))
        if record is not None:
            status = follower.end(record)
            return out.getvalue(), follower.notes.getvalue(), status  # type: ignore[attr-defined]
    raise AssertionError("no done event")


def chunk(text: str, attempt: int = 1) -> tuple[str, dict[str, Any]]:
    return "chunk", {"text": text, "attempt": attempt, "n": 1}


def test_stdout_holds_the_text_and_stderr_the_rest() -> None:
    """A streamed text is on stdout exactly, with one line end; states are on stderr."""
    out, notes, status = follow(RUNNING, chunk("hi "), chunk("there"), ("done", SUCCEEDED))
    assert (out, status) == ("hi there\n", 0)
    assert notes == "● Running  attempt 1\n✔ Succeeded  attempt 1\n"


def test_an_output_that_was_not_streamed_is_printed() -> None:
    """Without chunks the output itself is printed: text as it is, other values as JSON."""
    assert follow(RUNNING, ("done", SUCCEEDED))[0] == "hi there\n"
    out = follow(RUNNING, ("done", {**SUCCEEDED, "output": {"text": "你好"}}))[0]
    assert json.loads(out) == {"text": "你好"}
    assert "你好" in out


def test_what_a_stream_returns_besides_its_text_is_a_note() -> None:
    """An object of a body that streamed is on stderr; stdout holds the text alone."""
    done = ("done", {**SUCCEEDED, "output": {"words": 2, "é": "x" * 900}})
    out, notes, _ = follow(RUNNING, chunk("hi there"), done)

    assert out == "hi there\n"
    assert '  result: {"words": 2, "é": "xxx' in notes
    assert max(map(len, notes.splitlines())) < 600


def test_a_failure_is_told_with_its_error() -> None:
    """A failed task prints its error on stderr, nothing on stdout, and ends with 1."""
    error = {"code": "node_failed", "message": "no luck", "type": "KeyError", "retryable": False}
    done = {"state": "Failed", "attempt": 1, "error": error, "output": None}
    out, notes, status = follow(RUNNING, ("done", done))
    assert (out, status) == ("", 1)
    assert "KeyError: no luck [node_failed]" in notes


def test_text_of_a_superseded_attempt_is_called_that() -> None:
    """When an attempt begins anew after it had streamed, the person is told; late chunks go."""
    again = ("state", {"state": "Running", "reason": "", "attempt": 2})
    events = (RUNNING, chunk("bad"), again, chunk("late"), chunk("good", 2), ("done", SUCCEEDED))
    out, notes, _ = follow(*events)
    assert out == "bad\ngood\n"
    assert "the text of attempt 1 is superseded by attempt 2" in notes


def test_progress_is_a_bar() -> None:
    """Progress is drawn with what the node says about it."""
    notes = follow(("progress", {"fraction": 0.5, "text": "half"}), ("done", SUCCEEDED))[1]
    assert "━" * 12 + "─" * 12 + "  50% half" in notes


@pytest.mark.parametrize(
    ("stream", "expected"), [(Screen(), "a [2J\tb\n"), (io.StringIO(), "a\x1b[2J\tb\n")]
)
def test_escape_codes_stay_out_of_a_terminal_only(stream: io.StringIO, expected: str) -> None:
    """A terminal is not steered by what a node streams; a file gets the exact bytes."""
    assert follow(chunk("a\x1b[2J\tb"), ("done", SUCCEEDED), out=stream)[0] == expected
