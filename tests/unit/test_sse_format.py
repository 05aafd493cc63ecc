"""What goes over the wire of an event stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.streams.sse_format import BLOCK_BYTES, frame, joined, one_line, parse_cursor
from async_nodes.core.errors import AsyncNodesError
from tests.event_stream import Parser

NASTY = [
    "\u2028", "\u2029", "\u0085", "\v", "\f", "\r", "\n", "\r\n", "\n\n", "\ufeff",
    "data: x", "id: 9-9", ": comment", "event: done", "\0", "\x1c\x1d\x1e",
    "👩‍👩‍👧‍👦", "🏳️‍🌈", "e\u0301", "\\", '"', " ", "",
]  # fmt: skip
nasty_texts = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), max_size=8).map("".join)
as_json = st.sampled_from(
    [
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: json.dumps(value, ensure_ascii=False, indent=1).replace("\n", "\r\n"),
    ]
)


@given(st.lists(nasty_texts, min_size=1, max_size=5), as_json, st.integers(1, 40))
def test_a_strict_parser_gets_the_exact_text(texts: list[str], dump: object, size: int) -> None:
    """Separators, BOM, field names and blank lines inside a text arrive as they were sent."""
    frames = [
        frame((3, n), "chunk", dump({"text": text, "n": n}).encode())  # type: ignore[operator]
        for n, text in enumerate(texts, 1)
    ]
    raw = b"retry: 2000\n\n" + b"".join(frames)

    parser = Parser()
    events = [
        event
        for start in range(0, len(raw), size)
        for event in parser.feed(raw[start : start + size])
    ]

    assert [event.json["text"] for event in events] == texts
    assert [event.position for event in events] == [(3, n) for n in range(1, len(texts) + 1)]
    assert {event.type for event in events} == {"chunk"}


@given(nasty_texts, as_json)
def test_no_client_finds_a_line_break_in_the_data(text: str, dump: object) -> None:
    """Even Python's splitlines, which knows eleven line ends, sees one line."""
    json_bytes = dump({"text": text}).encode()  # type: ignore[operator]

    line = one_line(json_bytes).decode()

    assert len(line.splitlines()) == 1
    assert json.loads(line) == {"text": text}


def test_ordinary_json_is_not_copied() -> None:
    """Data without a line break goes out as the very bytes that came in."""
    ordinary = '{"text":"中文 and – dashes"}'.encode()

    assert one_line(ordinary) is ordinary


@pytest.mark.parametrize(
    ("text", "position"), [(None, (0, 0)), ("0-0", (0, 0)), ("3-17", (3, 17)), ("007-01", (7, 1))]
)
def test_a_cursor_is_a_position(text: str | None, position: tuple[int, int]) -> None:
    """An id of an event is understood; none means the start."""
    assert parse_cursor(text, pointer="/query/after") == position


@pytest.mark.parametrize(
    "text",
    ["", "3", "3-", "-1", "3-1 ", " 3-1", "3-1\n", "3--1", "a-b", "3-1-1", "٣-١", "1" * 11 + "-0"],
)
def test_any_other_cursor_is_a_bad_request(text: str) -> None:
    """The error is `bad_request` and points to where the cursor stood."""
    with pytest.raises(AsyncNodesError) as caught:
        parse_cursor(text, pointer="/headers/Last-Event-ID")

    assert caught.value.code == "bad_request"
    assert caught.value.pointer == "/headers/Last-Event-ID"


def test_frames_travel_in_blocks() -> None:
    """Small frames share a write, a large one does not wait for others."""
    frames = [b"x" * 1000] * 40 + [b"y" * 50_000] + [b"z"]

    blocks = list(joined(frames))

    assert b"".join(blocks) == b"".join(frames)
    assert len(blocks) == 4
    assert all(len(block) < 2 * BLOCK_BYTES for block in blocks[:2])
    assert list(joined([])) == []
