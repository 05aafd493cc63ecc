from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.cli.sse import Message, Parser

STREAM = (
    b"\xef\xbb\xbfretry: 2000\n\n: heartbeat\n\n"
    b'id: 1-0\nevent: state\ndata: {"a":1}\n\n'
    b"data: x\r\ndata: y\r\n\r\n"
    b"id: 2-0\revent: done\rdata:  two spaces\r\r"
    b"id: bad\0id\ndata: \xe4\xbd\xa0\n\nevent: empty\n\ndata: cut"
)
MESSAGES = [
    Message("state", '{"a":1}', "1-0"),
    Message("message", "x\ny", "1-0"),
    Message("done", " two spaces", "2-0"),
    Message("message", "你", "2-0"),
]


def test_a_stream_is_read_as_the_standard_says() -> None:
    """BOM, comments, all three line ends, ids with NUL, events without data, an unfinished end."""
    parser = Parser()
    assert parser.feed(STREAM) == MESSAGES
    assert parser.retry == 2.0
    assert parser.last_id == "2-0"


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_the_cuts_between_packets_do_not_matter(cuts: list[int]) -> None:
    """Any cutting of the bytes gives the same messages."""
    edges = [0, *sorted(cuts), len(STREAM)]
    parser = Parser()
    found = [m for a, b in pairwise(edges) for m in parser.feed(STREAM[a:b])]
    assert found == MESSAGES


def test_an_id_counts_only_with_its_event() -> None:
    """An id whose event did not arrive whole is not resumed after."""
    parser = Parser("1-0")
    parser.feed(b"id: 2-0\ndata: x\n")
    assert parser.last_id == "1-0"
    parser.feed(b"\n")
    assert parser.last_id == "2-0"
