from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.egress import Guard
from async_nodes.egress.guard import is_public

if TYPE_CHECKING:
    from collections.abc import Callable

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",  # noqa: S104 - judged, not bound
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",  # cloud metadata
    "100.64.0.1",
    "100.100.100.200",  # Alibaba metadata
    "168.63.129.16",  # Azure wire server
    "192.0.0.192",  # Oracle metadata
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:8.8.8.8",
    "::ffff:127.0.0.1",
    "::8.8.8.8",
    "64:ff9b::8.8.8.8",
    "64:ff9b::127.0.0.1",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:808:808::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "fc00::1",
    "fd00:ec2::254",  # AWS metadata
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
]
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "2a00:1450:4001:80e::200e"]

REFUSED_URLS = [
    "http://127.0.0.1/",
    "http://2130706433/",  # decimal
    "http://0x7f000001/",  # hex
    "http://0x7f.1/",
    "http://0177.0.0.1/",  # octal
    "http://127.1/",  # short
    "http://0/",
    "http://\uff11\uff12\uff17.0.0.1/",  # full-width digits
    "http://127\u30020\u30020\u30021/",  # ideographic full stops
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[0:0:0:0:0:ffff:7f00:1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/",
]
BAD_URLS = [
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "//example.com/",
    "example.com",
    "",
    "http:///path",
    "http://user:pass@example.com/",
    "http://@example.com/",
    "http://example.com:0/",
    "http://example.com:/",
    "http://example.com:99999/",
    "http://example.com:8o/",
    "http://exa mple.com/",
    "http://example.com/\r\nX: y",
    "http://example.com/\x00",
    "http://example.com\\@127.0.0.1/",
    "http://%31%32%37.0.0.1/",
    "http://[::1/",
    "http://[::1%25lo]/",
    "http://[v1.x]/",
    "http://-a.com/",
    "http://" + "a" * 300 + "/",
    "http://example.com/" + "a" * 9000,
]


def answer(*addresses: str) -> Callable[..., list[object]]:
    """Return a stand-in for getaddrinfo that answers with these addresses."""

    def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        family = socket.AF_INET6 if ":" in addresses[0] else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (text, port)) for text in addresses]

    return getaddrinfo


@pytest.mark.parametrize("text", PRIVATE)
def test_an_address_that_is_not_global_unicast_is_not_public(text: str) -> None:
    """Loopback, private, link-local, metadata, CGNAT, multicast and tunnels are refused."""
    assert not is_public(text)


@pytest.mark.parametrize("text", PUBLIC)
def test_a_global_address_is_public(text: str) -> None:
    """Ordinary addresses of the internet pass."""
    assert is_public(text)


@given(st.ip_addresses(v=4).filter(lambda ip: not ip.is_global))
def test_what_the_standard_library_calls_private_is_never_public(ip: object) -> None:
    """Our table never allows more than the standard library does."""
    assert not is_public(str(ip))
    assert not is_public(f"::ffff:{ip}")


@pytest.mark.parametrize("url", REFUSED_URLS)
def test_every_spelling_of_a_private_address_is_refused(url: str) -> None:
    """The meaning of an address counts, not how it is written."""
    guard = Guard()
    target = guard.check(url)

    with pytest.raises(TerminalError) as caught:
        guard.resolve(target.host, target.port)

    assert caught.value.code == "egress_refused"


@pytest.mark.parametrize("url", BAD_URLS)
def test_a_url_that_is_not_plainly_http_host_and_port_is_refused(url: str) -> None:
    """Other schemes, user info, control characters and malformed parts are refused."""
    with pytest.raises(TerminalError) as caught:
        Guard().check(url)

    assert caught.value.code == "egress_refused"


def test_one_private_answer_among_public_ones_refuses_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All answers must be public, whichever would be used."""
    monkeypatch.setattr(socket, "getaddrinfo", answer("8.8.8.8", "10.0.0.1"))

    with pytest.raises(AsyncNodesError, match="not a public address"):
        Guard().resolve("mixed.example", 80)


def test_a_refusal_does_not_tell_the_private_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is no way to map the names of a private network."""
    monkeypatch.setattr(socket, "getaddrinfo", answer("10.1.2.3"))

    with pytest.raises(AsyncNodesError) as caught:
        Guard().resolve("db.internal", 80)

    assert "10.1.2.3" not in caught.value.detail


def test_all_public_answers_are_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets every address, so that it can try the next when one is down."""
    monkeypatch.setattr(socket, "getaddrinfo", answer("8.8.8.8", "1.1.1.1"))

    found = Guard().resolve("dns.example", 443)

    assert [address.sockaddr for address in found] == [("8.8.8.8", 443), ("1.1.1.1", 443)]


def test_an_unknown_name_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing resolver is the network's fault, not the request's."""

    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", fail)

    with pytest.raises(RetryableError) as caught:
        Guard().resolve("nowhere.example", 80)

    assert caught.value.code == "egress_failed"


@pytest.mark.parametrize(
    ("allowed", "url", "passes"),
    [
        ("127.0.0.1:9999", "http://127.0.0.1:9999/", True),
        ("127.0.0.1:9999", "http://127.0.0.1:9998/", False),
        ("127.0.0.1:9999", "http://localhost:9999/", False),  # as written, not as meant
        ("127.0.0.1:9999", "http://127.1:9999/", False),
        ("localhost:9999", "http://LocalHost:9999/", True),
        ("LOCALHOST:9999", "http://localhost:9999/", True),
        ("localhost:9999", "http://127.0.0.1:9999/", False),
        ("127.0.0.1:80", "http://127.0.0.1/", True),
        ("127.0.0.1:443", "http://127.0.0.1/", False),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("127.0.0.1", "http://127.0.0.1/", False),  # an entry names its port
    ],
)
def test_only_exactly_the_allowed_host_and_port_pass(
    *, allowed: str, url: str, passes: bool
) -> None:
    """An allow-list entry opens one host and port as written in the URL, nothing near it."""
    guard = Guard(frozenset({allowed}))
    target = guard.check(url)

    if passes:
        assert guard.resolve(target.host, target.port)
        return
    with pytest.raises(AsyncNodesError, match="not a public address"):
        guard.resolve(target.host, target.port)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://example.com", "/"),
        ("http://example.com?q=1", "/?q=1"),
        ("http://example.com/a%2Fb?x=%20#part", "/a%2Fb?x=%20"),
        ("http://example.com/\u8def\u5f84", "/%E8%B7%AF%E5%BE%84"),
    ],
)
def test_the_request_line_is_ascii_and_keeps_what_is_encoded(url: str, path: str) -> None:
    """Characters outside ASCII are encoded once; encoded ones stay; fragments are not sent."""
    assert Guard().check(url).path == path


@given(st.text(max_size=60))
def test_no_text_breaks_the_check(text: str) -> None:
    """Any text is either a target with a plain host or a named refusal."""
    try:
        target = Guard().check("http://" + text)
    except TerminalError:
        return
    assert target.host.isascii()
    assert target.path.isascii()
    assert not set(target.host + target.path) & set(" \r\n\t\x00\\")
