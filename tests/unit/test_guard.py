"""Who may call: one key, or none and then this machine's programs only."""

from __future__ import annotations

import hmac

import pytest

from async_nodes.access.guard import EVERYBODY, Guard, check_content_type, is_loopback
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings

KEYLESS = Guard(Settings())
KEYED = Guard(Settings(api_key="s3cret", host="0.0.0.0"))  # noqa: S104 - that is the question


def refusal(guard: Guard, **headers: str | None) -> str | None:
    """Return the code with which a request of these headers is refused, None if it is not."""
    try:
        guard.check_origin(**{"host": None, "origin": None, "fetch_site": None, **headers})
    except AsyncNodesError as error:
        return error.code
    return None


def code(error: pytest.ExceptionInfo[AsyncNodesError]) -> tuple[str, int]:
    return error.value.code, error.value.status


def test_the_right_key_gives_the_tenant() -> None:
    """The scheme's case and spaces around the key do not matter."""
    assert KEYED.caller("Bearer s3cret") == EVERYBODY
    assert KEYED.caller("bearer   s3cret ") == EVERYBODY
    assert not KEYED.keyless


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer s3cret2",
        "Bearer S3CRET",
        "Basic s3cret",
        "s3cret",
        "Bearer s3cret, Bearer x",
        "Bearer s3\udce9cret",
        "Bearer \xff",
    ],
)
def test_any_other_key_is_refused(header: str | None) -> None:
    """Nothing but the key opens, and nothing breaks."""
    with pytest.raises(AsyncNodesError) as caught:
        KEYED.caller(header)
    assert code(caught) == ("unauthorized", 401)
    assert "s3cret" not in str(caught.value)


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is hmac's, over digests of one length."""
    compared: list[tuple[bytes, bytes]] = []

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    real = hmac.compare_digest
    monkeypatch.setattr("async_nodes.access.guard.hmac.compare_digest", watch)
    for key in ("s3cret", "x", "y" * 500):
        try:
            KEYED.caller(f"Bearer {key}")
        except AsyncNodesError:
            continue
    assert len(compared) == 3
    assert {len(part) for pair in compared for part in pair} == {32}


def test_with_a_key_the_origin_does_not_matter() -> None:
    """A web page that knows the key may call."""
    foreign = {"host": "example.org", "origin": "https://evil", "fetch_site": "cross-site"}
    assert refusal(KEYED, **foreign) is None


def test_without_a_key_everybody_on_the_machine_is_the_tenant() -> None:
    """Whatever the Authorization header says."""
    assert KEYLESS.caller(None) == KEYLESS.caller("Bearer x") == EVERYBODY
    assert KEYLESS.keyless


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])  # noqa: S104
def test_an_open_door_is_refused_at_the_start(host: str) -> None:
    """Without a key no address is served that others can reach; the message says what to set."""
    try:
        settings = Settings(host=host)
    except AsyncNodesError:
        return  # no host at all
    with pytest.raises(AsyncNodesError, match="ASYNC_NODES_API_KEY") as caught:
        Guard(settings)
    assert caught.value.code == "invalid_setting"
    assert Guard(Settings(host=host, api_key="k")).caller("Bearer k") == EVERYBODY


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_is_served_without_a_key(host: str) -> None:
    """Every spelling of this machine will do."""
    assert Guard(Settings(host=host)).keyless


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST.:80", "127.0.0.1:8000", "[::1]", "[::1]:80"]
)
def test_a_loopback_host_header_is_accepted(host: str) -> None:
    """What a program on this machine sends."""
    assert refusal(KEYLESS, host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "example.org",
        "localhost.evil.org",
        "127.0.0.1.nip.io",
        "127.0.0.1@evil",
        "evil:80@localhost",
        "localhost:80:90",
        "[::1",
        "10.0.0.1",
        "0.0.0.0",  # noqa: S104
        "2130706433",
        "localhost,evil",
        "127.0.0.1\x00",
    ],
)
def test_another_host_is_a_name_made_to_point_here(host: str | None) -> None:
    """DNS rebinding reaches the port, but under a name of its own."""
    assert refusal(KEYLESS, host=host) == "forbidden_origin"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:8000", True),
        ("http://LOCALHOST:8000", True),
        ("https://localhost:8000", True),
        ("http://localhost", False),
        ("http://localhost:3000", False),
        ("http://127.0.0.1:8000", False),
        ("https://evil.org", False),
        ("http://localhost:8000.evil.org", False),
        ("http://evil.org:8000", False),
        ("null", False),
        ("", False),
        ("file://", False),
        ("http://localhost:x", False),
        ("http://[::1", False),
    ],
)
def test_only_a_page_of_our_own_may_call(origin: str, *, allowed: bool) -> None:
    """The origin must be this very server."""
    refused = refusal(KEYLESS, host="localhost:8000", origin=origin)
    assert refused == (None if allowed else "forbidden_origin")


def test_the_default_port_may_be_left_out() -> None:
    """``http://localhost`` and ``localhost:80`` are one origin."""
    assert refusal(KEYLESS, host="localhost:80", origin="http://localhost") is None
    assert refusal(KEYLESS, host="[::1]", origin="http://[::1]:80") is None


def test_a_browser_says_when_it_comes_from_another_site() -> None:
    """Sec-Fetch-Site tells even where Origin is not sent."""
    for site in ("same-origin", "none", "same-site", None):
        assert refusal(KEYLESS, host="localhost", fetch_site=site) is None
    assert refusal(KEYLESS, host="localhost", fetch_site="Cross-Site") == "forbidden_origin"


@pytest.mark.parametrize(
    ("content_type", "fits"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/vnd.api+json", True),
        (None, False),
        ("", False),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("multipart/form-data; boundary=application/json", False),
        ("application/jsonx", False),
        ("text/plain; application/json", False),
    ],
)
def test_a_body_is_declared_as_json(content_type: str | None, *, fits: bool) -> None:
    """The types that a web page can send without asking are refused."""
    if fits:
        check_content_type(content_type)
        return
    with pytest.raises(AsyncNodesError) as caught:
        check_content_type(content_type)
    assert code(caught) == ("not_acceptable_type", 415)


def test_a_name_is_loopback_by_its_text_alone() -> None:
    """Nothing is looked up."""
    assert not is_loopback("localhost.localdomain")
    assert not is_loopback("")
    assert is_loopback("127.1.2.3")
