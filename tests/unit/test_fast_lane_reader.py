"""The reader of a connection: a buffered file, plus a look ahead that takes nothing."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.lane.reader import Reader


class Socket:
    """Give out pieces, then end or fail."""

    def __init__(self, pieces: list[bytes], failure: OSError | None = None) -> None:
        self._pieces = [piece for piece in pieces if piece]
        self._failure = failure
        self.asked: list[int] = []

    def recv(self, most: int) -> bytes:
        """Return the next piece."""
        self.asked.append(most)
        if self._pieces:
            piece = self._pieces.pop(0)
            if len(piece) > most:
                self._pieces.insert(0, piece[most:])
            return piece[:most]
        if self._failure is not None:
            raise self._failure
        return b""


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("readline"), st.integers(-1, 40)),
        st.tuples(st.just("read"), st.integers(0, 40)),
        st.tuples(st.just("peek"), st.integers(1, 60)),
    ),
    max_size=12,
)
PIECES = st.lists(st.text("ab\n", max_size=20).map(str.encode), max_size=8)


@given(PIECES, OPERATIONS)
def test_it_reads_as_a_file_does(pieces: list[bytes], operations: list[tuple[str, int]]) -> None:
    """Whatever the packets, lines and blocks are those of the whole; a look changes nothing."""
    reader, file = Reader(Socket(pieces)), BytesIO(b"".join(pieces))
    for name, size in operations:
        if name == "peek":
            rest = file.getvalue()[file.tell() :]
            shown = reader.peek(size)
            assert rest.startswith(shown)
            assert len(shown) >= min(size, len(rest))
        else:
            assert getattr(reader, name)(size) == getattr(file, name)(size)
    assert reader.read() == file.read()
    assert reader.empty
    assert reader.peek() == b""


def test_what_was_seen_is_taken_by_its_length() -> None:
    """The next look shows what follows it."""
    reader = Reader(Socket([b"GET / 1POST / 2"]))
    assert reader.peek() == b"GET / 1POST / 2"
    reader.take(7)
    assert not reader.empty
    assert reader.peek() == b"POST / 2"
    assert reader.readline() == b"POST / 2"


@pytest.mark.parametrize(("name", "size"), [("readline", -1), ("read", 9), ("read", -1)])
def test_a_failure_is_kept_for_who_takes(name: str, size: int) -> None:
    """A look shows what came before it; taking more than that raises it, again and again."""
    socket = Socket([b"half"], TimeoutError("timed out"))
    reader = Reader(socket)
    assert reader.peek(5) == b"half"
    assert reader.peek(5) == b"half"
    for _ in range(2):
        with pytest.raises(OSError, match="timed out"):
            getattr(reader, name)(size)
    assert len(socket.asked) == 2


def test_a_limited_line_needs_no_more_than_its_limit() -> None:
    """A line as long as the limit is given out although the connection fails after it."""
    reader = Reader(Socket([b"abcd"], ConnectionResetError(104, "reset")))
    assert reader.readline(4) == b"abcd"
    with pytest.raises(ConnectionResetError):
        reader.readline(4)


def test_a_large_body_is_asked_for_in_large_pieces() -> None:
    """It takes few calls, and none asks for more than is bearable."""
    socket = Socket([b"x" * (1 << 20)])
    assert len(Reader(socket).read(1 << 20)) == 1 << 20
    assert len(socket.asked) == 16
    assert max(socket.asked) == 64 << 10


def test_a_closed_reader_has_nothing() -> None:
    """What was not taken is gone."""
    reader = Reader(Socket([b"abc"]))
    reader.peek()
    reader.close()
    assert reader.closed
    assert reader.empty
