"""Which heads are so ordinary that the fast lane may answer: a closed set, without exceptions."""

from __future__ import annotations

import http.client
import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.guard import Guard
from async_nodes.access.lane.head import MAX_BODY, MAX_REMEMBERED, Head, Heads
from async_nodes.settings import Settings

HOST = b"Host: localhost\r\n"
POST = HOST + b"Content-Type: application/json\r\nContent-Length: 15\r\n"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def heads(api_key: str | None = None) -> Heads:
    return Heads(Guard(Settings(api_key=api_key)))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"", {}),
        (b"User-Agent: curl/8.5.0\r\nAccept: */*\r\n", {}),
        (b"accept: application/json\r\naccept-encoding: gzip, deflate, br\r\n", {}),
        (b"ACCEPT-LANGUAGE: zh-CN,zh;q=0.9\r\nConnection:Keep-Alive\r\n", {}),
        (b"Authorization: Bearer anything\r\n", {}),
        (b'If-None-Match: W/"3", "4"\r\n', {"if_none_match": 'W/"3", "4"'}),
        (b"X-Request-ID: a.b_c-1\r\n", {"request_id": "a.b_c-1"}),
        (b"traceparent: " + TRACE.encode() + b"\r\n", {"traceparent": TRACE}),
    ],
)
def test_an_ordinary_read_is_recognised(line: bytes, expected: dict[str, str]) -> None:
    """In any case and order of names, as clients write them."""
    wanted = replace(Head(tenant="default"), **expected)
    assert heads().of_read(HOST + line) == wanted
    assert heads().of_read(line + HOST) == wanted


def test_an_ordinary_submit_is_recognised() -> None:
    """Its length and its key are read; both spellings of the key mean the same."""
    assert heads().of_submit(POST) == Head(tenant="default", length=15)
    charset = POST.replace(b"json", b"json; charset=UTF-8")
    assert heads().of_submit(charset) == Head(tenant="default", length=15)
    for key in (b"k-1", b'"k-1"'):
        found = heads().of_submit(POST + b"Idempotency-Key: " + key + b"\r\n")
        assert found == Head(tenant="default", length=15, idempotency_key="k-1")


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"Host: localhost\r\nHost: localhost\r\n",
        b"Host: localhost\r\nhost: localhost\r\n",
        b"Host: evil.example\r\n",
        b"Host: localhost/\r\n",
        b"Host: localhost:123456\r\n",
        b"Host: \r\n",
        b"Host:  localhost\r\n",
        b"Host: localhost \r\n",
        b"Host:\tlocalhost\r\n",
        b"Host : localhost\r\n",
        b"Host: localhost\n",
        HOST + b" folded: line\r\n",
        HOST + b"User-Agent: a\tb\r\n",
        HOST + b"User-Agent: \xc3\xa9\r\n",
        HOST + b"User-Agent: a\0b\r\n",
        HOST + b"User-Agent\r\n",
        HOST + b"User_Agent: a\r\n",
        HOST + b"Accept: text/event-stream\r\n",
        HOST + b"Accept: text/html, */*\r\n",
        HOST + b"Connection: close\r\n",
        HOST + b"Connection: keep-alive, Upgrade\r\n",
        HOST + b"Upgrade: websocket\r\n",
        HOST + b"Prefer: wait=3\r\n",
        HOST + b"Origin: http://localhost\r\n",
        HOST + b"Sec-Fetch-Site: same-origin\r\n",
        HOST + b"Cookie: a=b\r\n",
        HOST + b"Expect: 100-continue\r\n",
        HOST + b"Transfer-Encoding: chunked\r\n",
        HOST + b"Content-Length: 1\r\n",
        HOST + b"Content-Type: application/json\r\n",
        HOST + b"Idempotency-Key: k\r\n",
        HOST + b"X-Forwarded-For: 10.0.0.1\r\n",
        HOST + b"Range: bytes=0-1\r\n",
    ],
)
def test_any_other_read_is_not(lines: bytes) -> None:
    """What is unknown, doubled, folded, padded or means something is the app's."""
    assert heads().of_read(lines) is None


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (b"Content-Length: 15\r\n", b""),
        (b"Content-Length: 15\r\n", b"Content-Length: 15\r\nContent-Length: 15\r\n"),
        (b"15", b"0"),
        (b"15", b"015"),
        (b"15", b"+15"),
        (b"15", b"1_5"),
        (b"15", b"-15"),
        (b"15", b"15, 15"),
        (b"15", b"%d" % (MAX_BODY + 1)),
        (b"15", b"99999999999"),
        (b"Content-Type: application/json\r\n", b""),
        (b"application/json", b"text/plain"),
        (b"application/json", b"application/problem+json"),
        (b"application/json", b"application/json; charset=latin-1"),
        (HOST, HOST + b"Transfer-Encoding: chunked\r\n"),
        (HOST, HOST + b"Expect: 100-continue\r\n"),
        (HOST, HOST + b"Prefer: respond-async\r\n"),
        (HOST, HOST + b'If-None-Match: "1"\r\n'),
        (HOST, HOST + b"Content-Encoding: gzip\r\n"),
        (HOST, HOST + b'Idempotency-Key: "\r\n'),
        (HOST, HOST + b"Idempotency-Key: " + b"k" * 256 + b"\r\n"),
    ],
)
def test_any_other_submit_is_not(was: bytes, now: bytes) -> None:
    """A length that is doubtful, a type that is not JSON, a key that is none."""
    assert was in POST
    assert heads().of_submit(POST.replace(was, now)) is None


def test_a_body_of_64_kibibytes_is_the_most() -> None:
    """One byte more is the app's."""
    found = heads().of_submit(POST.replace(b"15", b"%d" % MAX_BODY))
    assert found is not None
    assert found.length == MAX_BODY


def test_with_a_key_only_its_holder_is_served() -> None:
    """Whoever has none, or another, is told so by the app; any Host will do."""
    of_read = heads("s3cret").of_read
    assert of_read(b"Host: api.example\r\nAuthorization: Bearer s3cret\r\n") is not None
    for line in (b"", b"Authorization: Bearer s3cre\r\n", b"Authorization: s3cret\r\n"):
        assert of_read(b"Host: api.example\r\n" + line) is None


def test_invalid_names_are_replaced_for_each_request() -> None:
    """A request id that is not harmless gets a new one every time."""
    lines = HOST + b"X-Request-ID: a b\r\n"
    known = heads()
    first, second = known.of_read(lines), known.of_read(lines)
    assert first is not None
    assert second is not None
    assert first.request_id != second.request_id


def test_the_heads_that_come_again_are_remembered() -> None:
    """Within a bound, and only those whose values are not another in each request."""
    known = heads()
    assert known.of_read(HOST) is known.of_read(HOST)
    own = HOST + b"X-Request-ID: r\r\n"
    assert known.of_read(own) is not known.of_read(own)
    for number in range(2 * MAX_REMEMBERED):
        known.of_read(HOST + b"User-Agent: %d\r\n" % number)
        known.of_read(HOST + b"User-Agent: %d %s\r\n" % (number, b"x" * 2_000))
    assert len(known._reads) <= MAX_REMEMBERED


def test_a_head_of_one_kind_is_none_of_the_other() -> None:
    """What is remembered of submits does not let a read through."""
    known = heads()
    assert known.of_submit(POST) is not None
    assert known.of_read(POST) is None
    assert known.of_read(HOST) is not None
    assert known.of_submit(HOST) is None


PARTS = [
    *(b"Host", b"host", b"Content-Length", b"Content-Type", b"Accept", b"X-Request-ID", b"Cookie"),
    *(b"Transfer-Encoding", b"Connection", b"Idempotency-Key", b"If-None-Match", b"traceparent"),
    *(b": ", b":", b" ", b"\t", b"\r\n", b"\n", b"\r", b"\r\n ", b"\0", b"\x85", b"\xff"),
    *(
        b"localhost",
        b"application/json",
        b"15",
        b"015",
        b"+15",
        b"1_5",
        b"chunked",
        b"close",
        b'"1"',
    ),
]
SAID = st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=30).map(b"".join)
LINE = st.lists(st.sampled_from(PARTS), max_size=4).map(b"".join)


@st.composite
def nearly_ordinary(draw: st.DrawFn) -> bytes:
    """Return an ordinary head with a line put in and a few bytes changed."""
    lines = POST.split(b"\r\n")[:-1]
    lines.insert(draw(st.integers(0, len(lines))), draw(LINE))
    said = b"\r\n".join(lines) + b"\r\n"
    at = draw(st.integers(0, len(said)))
    return said[:at] + draw(st.sampled_from([b"", *PARTS])) + said[at + draw(st.integers(0, 1)) :]


@given(SAID | nearly_ordinary())
def test_no_bytes_are_taken_for_something_else(lines: bytes) -> None:
    """Whatever comes, what is recognised is what a parser of whole heads reads, each name once."""
    lines = lines.removesuffix(b"\r\n") + b"\r\n"  # as the lane cuts them out
    for read in (heads().of_read, heads().of_submit):
        found = read(lines)
        if found is None:
            continue
        parsed = http.client.parse_headers(io.BytesIO(lines + b"\r\n"))
        names = [name.lower() for name in parsed]
        assert not parsed.defects
        assert len(set(names)) == len(names) == lines.count(b"\r\n")
        assert parsed["Host"].startswith("localhost")
        assert not {"transfer-encoding", "cookie"} & set(names)
        assert found.length == int(parsed.get("Content-Length", 0))
        assert found.if_none_match == parsed.get("If-None-Match")
