"""Heads that two servers may read in two ways: refused, and their connection is closed."""

from __future__ import annotations

import pytest

from tests.integration.test_http_edges import problem_in, raw_exchange
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, web

__all__ = ["Hand", "_web_log", "_web_process", "hand", "web"]

BODY = b'{"node":"echo"}'
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
SMUGGLED = b"GET /v1/nodes HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize(
    "framing",
    [
        pytest.param(LENGTH + CHUNKED, id="both"),
        pytest.param(b"Content-Length: 5\r\n" + LENGTH, id="two lengths"),
        pytest.param(LENGTH + LENGTH, id="the same length twice"),
        pytest.param(b"Content-Length: +%d\r\n" % len(BODY), id="a sign"),
        pytest.param(b"Content-Length: 1_5\r\n", id="an underscore"),
        pytest.param(b"Content-Length: \r\n", id="nothing"),
        pytest.param(b"Content-Length: " + b"9" * 30 + b"\r\n", id="30 digits"),
        pytest.param(b"Transfer-Encoding: gzip, chunked\r\n", id="gzip"),
        pytest.param(b"Transfer-Encoding: identity\r\n" + LENGTH, id="identity"),
        pytest.param(CHUNKED + CHUNKED, id="chunked twice"),
        pytest.param(b"Transfer-Encoding : chunked\r\n", id="space before the colon"),
        pytest.param(LENGTH + b"nonsense\r\nX-Lost: 1\r\n", id="a line that is no header"),
        pytest.param(LENGTH + b"X: a\0b\r\n", id="NUL"),
        pytest.param(b"X: a\r\n b\r\n" + LENGTH, id="a folded line"),
        pytest.param(b"X: a\n" + LENGTH, id="a bare line feed"),
        pytest.param(b"X: a\n" + CHUNKED, id="a bare line feed before chunks"),
        pytest.param(b"X: a\rContent-Length: 0\r\n" + LENGTH, id="a bare carriage return"),
    ],
)
def test_a_head_that_leaves_the_end_of_its_body_in_doubt_is_refused(
    web: Web, framing: bytes
) -> None:
    """One problem comes back, the connection ends, and what follows is no request."""
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    body = chunked if b"chunked" in framing else BODY

    received = raw_exchange(web, head + framing + b"\r\n" + body + SMUGGLED)
    assert problem_in(received)["code"] == "bad_request"
    assert received.count(b"HTTP/1.1 ") == 1


def test_chunks_are_not_of_http_1_0(web: Web) -> None:
    """A proxy of that version takes the chunks for the next request: the head is refused."""
    head = b"POST /v1/tasks HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    chunked = b"Connection: keep-alive\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (CHUNKED, len(BODY), BODY)
    received = raw_exchange(web, head + chunked + SMUGGLED)
    assert problem_in(received)["code"] == "bad_request"
    assert received.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(b"/v1/tasks/t_00000000000000000000000000?x\xe9=1", id="in the query"),
        pytest.param(b"/v1/nodes/\xff", id="in the path"),
        pytest.param(b"/v1/nodes?\xc3\xa9=%C3", id="UTF-8 as it is"),
    ],
)
def test_a_request_line_that_is_not_ascii_is_refused(web: Web, target: bytes) -> None:
    """Bytes beyond ASCII must be percent-encoded; a raw one is the client's fault, not ours."""
    received = raw_exchange(web, b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert problem_in(received)["code"] == "bad_request"
