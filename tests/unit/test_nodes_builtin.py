from __future__ import annotations

import itertools
import signal
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes.registry import registry
from async_nodes.nodes.text_chunk import _joins, spans
from async_nodes.testing import nodes as test_nodes
from async_nodes.testing import run_node

registry(["async_nodes.testing.nodes"])


def test_echo_returns_its_inputs() -> None:
    """Whatever comes in goes out."""
    assert run_node("echo", {"text": "hi", "n": [1, None]}).output == {"text": "hi", "n": [1, None]}
    assert run_node("echo").output == {}


@given(
    st.text(alphabet="ab. \n!你好。🚀\u200d\u0301", max_size=300),
    st.integers(1, 40),
    st.integers(0, 39),
)
@example("aa \u0301\u200da", 4, 2)  # the space has an accent: no word ends behind it
@example("aaaaaaaa bb", 10, 8)  # a word's end that the piece before has ended at already
def test_pieces_cover_the_text_within_their_bounds(text: str, size: int, overlap: int) -> None:
    """Every character is in a piece; no piece is too long, repeats too much or stands still."""
    overlap = min(overlap, size - 1)
    found = list(spans(text, size=size, overlap=overlap))

    assert all(0 < end - start <= size for start, end in found)
    assert "".join(text[max(start, last) : end] for last, (start, end) in _after(found)) == text
    for (start, end), (following, further) in itertools.pairwise(found):
        assert start < following <= end < further
        assert end - following <= overlap


@given(
    st.text(alphabet="a \n.。か\u3099🚀\u200d\u0301\r", max_size=100),
    st.integers(1, 20),
    st.integers(0, 19),
)
def test_no_character_is_cut_that_fits_into_a_piece(text: str, size: int, overlap: int) -> None:
    """Only what is longer than a piece is cut between its code points, for any kind of boundary."""
    whole = [0, *(cut for cut in range(1, len(text)) if not _joins(text, cut)), len(text)]

    for piece in spans(text, size=size, overlap=min(overlap, size - 1)):
        for cut in set(piece) - set(whole):
            before = max(place for place in whole if place < cut)
            after = min(place for place in whole if place > cut)
            assert after - before > size


@pytest.mark.parametrize("unit", [".", '."', "…", "!)", " ", "\u0301", "。", "\u200d."])
def test_a_text_of_nothing_but_boundaries_takes_no_longer(unit: str) -> None:
    """The time grows with the text, not with its square, whatever it is made of."""
    text = unit * (200_000 // len(unit)) + "x"
    began = time.process_time()

    assert sum(1 for _ in spans(text, size=800, overlap=100)) > 200
    assert time.process_time() - began < 2.0


def _after(found: list[tuple[int, int]]) -> list[tuple[int, tuple[int, int]]]:
    ends = [0, *(end for _, end in found)]
    return list(zip(ends, found, strict=False))


@pytest.mark.parametrize(
    ("text", "size", "pieces"),
    [
        ("One is 3.14. Two here. Three.", 24, ["One is 3.14. Two here. ", "Three."]),
        ("你好世界。这是第二句。结束。", 7, ["你好世界。", "这是第二句。", "结束。"]),
        ("aaaa bbbb cccc", 10, ["aaaa bbbb ", "cccc"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("abce\u0301fg", 4, ["abc", "e\u0301fg"]),  # a letter keeps its accent
        ("", 4, []),
    ],
)
def test_pieces_end_where_sentences_and_words_do(text: str, size: int, pieces: list[str]) -> None:
    """A sentence's end is best, then a word's, then a whole character's."""
    chunks = run_node("text.chunk", {"text": text, "size": size, "overlap": 0}).output["chunks"]

    assert [chunk["text"] for chunk in chunks] == pieces


def test_overlap_starts_at_a_sentence() -> None:
    """A following piece repeats whole sentences where they fit."""
    text = "First one. Second one. Third one. Fourth one."
    output = run_node("text.chunk", {"text": text, "size": 24, "overlap": 12}).output

    assert [chunk["text"] for chunk in output["chunks"]][1].startswith("Second one. ")
    assert output["count"] == len(output["chunks"])


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({"text": "x", "size": 10, "overlap": 10}, "invalid_inputs"),
        ({"text": "x", "size": 0}, "invalid_inputs"),
        ({"text": "x" * 200_000, "size": 2_000, "overlap": 1_999}, "output_too_large"),
    ],
)
def test_chunking_that_makes_no_sense_is_refused(inputs: dict[str, Any], code: str) -> None:
    """An overlap that repeats everything, or an output out of proportion, has a named answer."""
    with pytest.raises(AsyncNodesError) as caught:
        run_node("text.chunk", inputs)

    assert caught.value.code == code


def test_a_test_sees_what_a_node_logs() -> None:
    """`run_node` collects the lines with their levels, without a worker."""
    outcome = run_node("test.log", {"lines": ["a", "b"], "level": "error"})
    assert outcome.logs == [(40, "a"), (40, "b")]


def test_emit_streams_each_piece() -> None:
    """One chunk per piece, text or data."""
    assert run_node("test.emit", {"pieces": ["a", {"b": 1}]}).chunks == ["a", {"b": 1}]
    assert run_node("test.emit", {"n": 3, "text": "x"}).output == "xxx"


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("terminal", TerminalError),
        ("retryable", RetryableError),
        ("ZeroDivisionError", ZeroDivisionError),
    ],
)
def test_fail_fails_as_often_as_asked(kind: str, error: type[Exception]) -> None:
    """The first attempts fail in the way asked for, later ones return."""
    with pytest.raises(error, match="boom"):
        run_node("test.fail", {"kind": kind, "message": "boom", "times": 2}, attempt=2)

    assert run_node("test.fail", {"kind": kind, "times": 2}, attempt=3).output == {"attempt": 3}


def test_fail_knows_its_kinds() -> None:
    """An unknown kind is a mistake in the test, not the failure it asked for."""
    with pytest.raises(TerminalError, match="no built-in exception"):
        run_node("test.fail", {"kind": "SystemExit"})


def test_exit_kills_the_process_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts are counted, lost ones included, so a killed attempt is not repeated for ever."""
    sent: list[int] = []
    monkeypatch.setattr(test_nodes.os, "kill", lambda _, number: sent.append(number))
    monkeypatch.setattr(test_nodes.time, "sleep", lambda _: None)

    with pytest.raises(TerminalError, match="outlived"):
        run_node("test.exit", {"signal": "TERM", "times": 1})
    assert run_node("test.exit", {"times": 1}, starts=2).output == {"attempt": 1, "starts": 2}
    with pytest.raises(TerminalError, match="outlived"):
        run_node("test.exit", {"signal": 9}, starts=50)
    with pytest.raises(TerminalError, match="no signal"):
        run_node("test.exit", {"signal": "NOPE"})
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_count_appends_one_line_per_start(tmp_path: Any) -> None:
    """The file shows how often a task has started."""
    path = tmp_path / "starts"

    for attempt in (1, 2):
        run_node("test.count", {"path": str(path)}, attempt=attempt)

    assert [line.split()[1] for line in path.read_text().splitlines()] == ["1", "2"]


def test_sleeps_and_spins_return_their_seconds() -> None:
    """The four ways to take time are told apart by kind and style only."""
    for name in ("test.sleep", "test.async_sleep", "test.spin", "test.spin_io"):
        assert run_node(name, {"seconds": 0.01}).output == {"seconds": 0.01}
    kinds = {name: registry()[f"test.{name}"].kind for name in ("spin", "spin_io")}
    assert kinds == {"spin": "cpu", "spin_io": "io"}


def test_value_returns_what_json_cannot_hold() -> None:
    """The odd values exist, and an unknown kind lists them."""
    assert run_node("test.value", {"kind": "set"}).output == {1, 2}
    with pytest.raises(TerminalError, match="tuple-keys"):
        run_node("test.value", {"kind": "?"})
