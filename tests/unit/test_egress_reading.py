from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import TerminalError
from async_nodes.egress import Client, Guard, retry_after
from async_nodes.egress.response import MAX_LINE, LineSplitter

NOW = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\r", b"\n", b"\r\n", b"a"])))
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes]) -> None:
    """Any cutting of a stream gives the lines of the whole."""
    splitter = LineSplitter()
    lines = [line for piece in pieces for line in splitter.feed(piece)]

    *expected, rest = re.split(rb"\r\n|\n|\r", b"".join(pieces))

    assert lines == expected
    assert splitter.rest == rest


def test_separators_of_unicode_are_text() -> None:
    """Only CR and LF end a line: U+2028, U+0085, VT and FF stay inside of it."""
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf"

    assert LineSplitter().feed(text.encode() + b"\n") == [text.encode()]


def test_a_line_is_given_at_its_cr() -> None:
    """A lone CR ends the line at once, without waiting for a following LF."""
    assert LineSplitter().feed(b"data: x\r") == [b"data: x"]


def test_a_line_without_an_end_is_refused() -> None:
    """Memory is bounded whatever a server sends."""
    with pytest.raises(TerminalError) as caught:
        LineSplitter().feed(b"x" * (MAX_LINE + 1))

    assert caught.value.code == "egress_too_large"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "2"}, 2.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "9999999999"}, 86_400.0),
        ({"Retry-After": "Sun, 09 Sep 2001 01:46:50 GMT"}, 10.0),
        ({"Retry-After": "Sun, 09 Sep 2001 01:46:30 GMT"}, 0.0),
        ({"Retry-After-Ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After-Ms": "x", "Retry-After": "2"}, 2.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_date(
    headers: dict[str, str], seconds: float | None
) -> None:
    """Seconds, milliseconds and HTTP dates are understood; nonsense counts as absent."""
    assert retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("CONNECT", {}),
        ("TRACE", {}),
        ("GET /x HTTP/1.1\r\nHost: y", {}),
        ("", {}),
        ("GET", {"Host": "other"}),
        ("GET", {"content-length": "3"}),
        ("GET", {"Transfer-Encoding": "chunked"}),
        ("GET", {"Proxy-Authorization": "x"}),
    ],
)
def test_what_could_smuggle_a_request_is_refused(method: str, headers: dict[str, str]) -> None:
    """Methods and headers that change framing or routing are the client's own."""
    with pytest.raises(TerminalError) as caught:
        Client(Guard()).request(method, "http://example.com/", headers=headers)

    assert caught.value.code == "egress_refused"


def test_json_that_json_cannot_hold_is_refused() -> None:
    """NaN never leaves as JSON."""
    with pytest.raises(TerminalError, match="cannot be sent"):
        Client(Guard()).request("POST", "http://example.com/", json={"x": float("nan")})


def test_a_request_has_one_body() -> None:
    """Giving json and body together is a mistake, not a preference."""
    with pytest.raises(TerminalError, match="not both"):
        Client(Guard()).request("POST", "http://example.com/", json={}, body="x")
