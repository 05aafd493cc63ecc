"""Which bytes a client wants: what is a range, what is ignored, what lies behind the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.api.ranges import Part, part_for, requested_part, still_the_same
from async_nodes.core.errors import AsyncNodesError


@given(first=st.integers(0, 50), last=st.integers(0, 50), size=st.integers(1, 40))
def test_a_part_lies_within_the_whole(first: int, last: int, size: int) -> None:
    """It is what a slice would give, or refused, or ignored where it is none."""
    whole = bytes(range(size))
    header = f"bytes={first}-{last}"
    if last < first:
        assert requested_part(header, size) is None
    elif first >= size:
        with pytest.raises(AsyncNodesError) as caught:
            requested_part(header, size)
        assert (caught.value.status, caught.value.extra) == (416, {"size": size})
    else:
        part = requested_part(header, size)
        assert part is not None
        assert whole[part.first : part.last + 1] == whole[first : last + 1]
        assert part.length == len(whole[first : last + 1])
        assert part.content_range(size) == f"bytes {first}-{min(last, size - 1)}/{size}"


@given(length=st.integers(0, 50), size=st.integers(1, 40))
def test_the_last_bytes(length: int, size: int) -> None:
    """A suffix is at most the whole; the last none are nowhere."""
    if not length:
        with pytest.raises(AsyncNodesError):
            requested_part("bytes=-0", size)
        return
    assert requested_part(f"bytes=-{length}", size) == Part(max(size - length, 0), size - 1)


@given(
    first=st.integers(0, 10**25),
    last=st.integers(0, 10**25),
    zeros=st.integers(0, 25),
    size=st.integers(1, 40),
)
def test_numbers_may_have_any_number_of_digits(
    first: int, last: int, zeros: int, size: int
) -> None:
    """They are taken for what they are, or for far behind the end."""
    for header in (f"bytes={'0' * zeros}{first}-", f"bytes={first}-{'0' * zeros}{first + last}"):
        if first >= size:
            with pytest.raises(AsyncNodesError):
                requested_part(header, size)
        else:
            part = requested_part(header, size)
            assert part is not None
            assert part.first == first
    if last:
        assert requested_part(f"bytes=-{last}", size) == Part(max(size - last, 0), size - 1)


@given(st.text(max_size=30))
def test_whatever_a_client_sends_is_a_part_or_nothing(header: str) -> None:
    """No text leads to anything else."""
    part: Part | str | None
    try:
        part = requested_part(header, 10)
    except AsyncNodesError as error:
        part = error.code
    if isinstance(part, Part):
        assert 0 <= part.first <= part.last < 10
    else:
        assert part in (None, "range_not_satisfiable")


@pytest.mark.parametrize("header", [None, "", "bytes=-", "bytes=1", "bytes=1-2,4-5", "bytes=٣-٤"])
def test_what_is_no_range_is_ignored(header: str | None) -> None:
    """Several parts at once are too."""
    assert requested_part(header, 10) is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_only_get_has_parts(method: str) -> None:
    """For HEAD the header is not even wrong."""
    part = part_for(method, "bytes=1-2", None, etag='"1"', size=10)
    assert part == (Part(1, 2) if method == "GET" else None)
    if method == "HEAD":
        assert part_for(method, "bytes=10-", None, etag='"1"', size=10) is None


def test_a_part_goes_with_its_version() -> None:
    """If-Range is compared strongly."""
    assert still_the_same(None, '"1"')
    assert still_the_same('"1"', '"1"')
    assert not still_the_same('W/"1"', '"1"')
    assert not still_the_same("Tue, 01 Dec 2026 00:00:00 GMT", '"1"')
