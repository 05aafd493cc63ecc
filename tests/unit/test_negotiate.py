"""What a request's headers ask for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access import negotiate
from async_nodes.core.errors import AsyncNodesError


@pytest.mark.parametrize(
    ("prefer", "query", "seconds"),
    [
        (None, None, 0),
        ("wait=5", None, 5),
        ("respond-async, wait=5", None, 5),
        ("respond-async,  Wait = 7 ; x=y", None, 7),
        ('wait="9"', None, 9),
        ("wait=600", None, 30),
        ("wait=-1", None, 0),
        ("wait=abc", None, 0),
        ("await=5", None, 0),
        ("wait", None, 0),
        ("return=minimal", None, 0),
        ("wait=5", "2", 2),
        (None, "0", 0),
        (None, "1.5", 1.5),
        (None, "1000", 30),
        (None, "1e1", 10),
        (None, "2.5E-1", 0.25),
        (None, "1.5e+308", 30),
        (None, "1e999", 30),
    ],
)
def test_a_wait_is_read_from_query_or_prefer(
    prefer: str | None, query: str | None, seconds: float
) -> None:
    """The query wins, both are cut to 30 s, and a wrong preference is no preference."""
    assert negotiate.wait_seconds(prefer, query) == seconds


@pytest.mark.parametrize("query", ["", "x", "-1", "1e", "e3", "inf", "nan", " 1", "1\n", "٣"])
def test_a_wrong_wait_in_the_query_is_refused(query: str) -> None:
    """A parameter is a demand, so a wrong one is an error and not ignored."""
    with pytest.raises(AsyncNodesError) as caught:
        negotiate.wait_seconds(None, query)
    assert caught.value.code == "bad_request"


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (None, ""),
        ("abc", "abc"),
        ('"abc"', "abc"),
        ('"with space"', "with space"),
        (r'"a\"b\\c"', r"a\"b\c".replace('\\"', '"')),
        ("a,b;c=d", "a,b;c=d"),
        ("x" * 255, "x" * 255),
        ('"' + "x" * 255 + '"', "x" * 255),
    ],
)
def test_a_key_is_taken_bare_or_quoted(header: str | None, key: str) -> None:
    """Both spellings mean the same key."""
    assert negotiate.idempotency_key(header) == key


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        '""',
        '" "',
        '"abc',
        '"a"b"',
        "a b",
        "x" * 256,
        "é",
        "a\x7f",
        '"a\tb"',
        '"\\x"',
        "\n",
    ],
)
def test_a_malformed_key_is_refused(header: str) -> None:
    """An empty, long, half-quoted or invisible key is an error: ignoring it would double tasks."""
    with pytest.raises(AsyncNodesError) as caught:
        negotiate.idempotency_key(header)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("header", "same"),
    [
        (None, False),
        ("", False),
        ('"3"', True),
        ('W/"3"', True),
        ("*", True),
        ('"1", "3"', True),
        ('"33"', False),
        ("3", False),
        ('"1", "2"', False),
    ],
)
def test_entity_tags_are_compared_weakly(header: str | None, *, same: bool) -> None:
    """A list, a weak tag and a star match the version; anything else does not."""
    assert negotiate.matches(header, '"3"') is same


@pytest.mark.parametrize(
    ("accept", "events"),
    [
        (None, False),
        ("*/*", False),
        ("application/json", False),
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-stream, application/json", True),
        ("application/json, text/event-stream;q=0.5", False),
        ("text/event-stream;q=0", False),
        ("text/event-stream;q=x", False),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
    ],
)
def test_events_are_given_to_who_names_them(accept: str | None, *, events: bool) -> None:
    """Only an Accept that names the event stream, and not JSON before it, gets one."""
    assert negotiate.wants_events(accept) is events


def test_a_browser_gets_a_page() -> None:
    """What browsers send asks for HTML; what curl sends does not."""
    assert negotiate.wants_page("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
    assert not negotiate.wants_page("*/*")
    assert not negotiate.wants_page("application/json")


@pytest.mark.parametrize(
    ("header", "tongue"),
    [
        (None, "en"),
        ("", "en"),
        ("zh", "zh"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB, zh;q=0.9", "en"),
        ("fr", "en"),
        ("en;q=0.1, zh-Hant;q=0.2", "zh"),
        ("zh;q=0", "en"),
        (";;;,=,zh;q=", "en"),
    ],
)
def test_the_better_of_two_languages_is_chosen(header: str | None, tongue: str) -> None:
    """Chinese where it is preferred, English everywhere else."""
    assert negotiate.language(header) == tongue


GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SHAPE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def test_a_trace_is_continued() -> None:
    """A valid trace is kept; one of a later version is kept as far as it is understood."""
    assert negotiate.traceparent(GOOD) == GOOD
    assert negotiate.traceparent("cc" + GOOD[2:] + "-more") == GOOD
    assert negotiate.traceparent(f" {GOOD} ") == GOOD


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        GOOD.upper(),
        GOOD + "-more",
        "ff" + GOOD[2:],
        GOOD[:-3],
        "00-" + "0" * 32 + GOOD[35:],
        GOOD[:36] + "0" * 16 + "-01",
        GOOD + "\n",
        GOOD + "," + GOOD,
        "cc" + GOOD[2:] + "-" + "x" * 300,
    ],
)
def test_without_a_valid_trace_a_new_one_begins(header: str | None) -> None:
    """What is not a trace is replaced, never passed on."""
    made = negotiate.traceparent(header)
    assert SHAPE.fullmatch(made)
    assert header is None or header.strip() == GOOD or made[3:35] != GOOD[3:35]


@given(st.text())
def test_a_request_id_is_harmless(header: str) -> None:
    """Whatever was sent, what is echoed and logged is short and plain."""
    made = negotiate.request_id(header)
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", made, re.ASCII)
    assert made == header or len(made) == 16


@given(
    st.text(max_size=40), st.sampled_from(["language", "wants_events", "matches", "traceparent"])
)
def test_no_header_breaks_the_reading(header: str, name: str) -> None:
    """Every text is answered with a value."""
    arguments = (header, '"1"') if name == "matches" else (header,)
    assert getattr(negotiate, name)(*arguments) is not None
