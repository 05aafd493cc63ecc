"""Addresses of Sentinels: taken apart, spelled for both libraries, without showing a password."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.redacted import masked
from async_nodes.core.redis_urls import is_redis, kombu_url, redis_py_url, with_password
from async_nodes.core.sentinel_urls import SentinelAddress, parse_sentinel
from async_nodes.settings import Settings

OURS = "sentinel://u:p%40w@a:1;b;[::1]:3/2?master_name=m"
PLAIN = "sentinel://a:26379;b:26379/0?master_name=m"

words = st.text("aB9-_ %:@;/?#é", min_size=1, max_size=8)
hosts = st.one_of(st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True), st.just("[::1]"))
addresses = st.builds(
    SentinelAddress,
    sentinels=st.lists(st.tuples(hosts, st.integers(1, 65_535)), min_size=1, max_size=4).map(tuple),
    name=words,
    database=st.integers(0, 15),
    user=st.none() | words,
    password=st.none() | words,
    sentinel_user=st.none() | words,
    sentinel_password=st.none() | words,
    others=st.integers(0, 3),
    tls=st.booleans(),
    sentinel_tls=st.booleans(),
    options=st.just(MappingProxyType({"client_name": "x"})),
)


@given(addresses)
def test_an_address_survives_its_own_spelling(address: SentinelAddress) -> None:
    """Whatever the names and passwords are."""
    assert parse_sentinel(address.url) == address


@given(addresses)
def test_kombu_gets_all_of_it(address: SentinelAddress) -> None:
    """What its address does not say stands in its transport options."""
    options = address.transport_options()
    tls = address.tls_options() if address.tls else None
    found = parse_sentinel(address.kombu_url, options, tls=tls)

    same = ("sentinels", "name", "database", "user", "password", "others", "tls")
    assert [getattr(found, name) for name in same] == [getattr(address, name) for name in same]
    assert found.sentinel_password == address.sentinel_password


def test_kombu_has_one_address_for_each_sentinel() -> None:
    """With the credentials in each, as its transport and Celery's backend want it."""
    each = "sentinel://u:p%40w@{}/2"

    assert kombu_url(OURS) == ";".join(each.format(h) for h in ("a:1", "b:26379", "[::1]:3"))
    assert is_redis(OURS)


def test_ours_stays_as_it_is() -> None:
    """redis-py has no spelling for it, and translating twice changes nothing."""
    assert redis_py_url(PLAIN) == PLAIN
    assert redis_py_url(redis_py_url(OURS)) == redis_py_url(OURS)


def test_the_server_is_spoken_to_as_the_address_says() -> None:
    """User, password, database and TLS are the server's; the Sentinels have their own."""
    address = parse_sentinel(OURS + "&sentinel_password=s&ssl_ca_certs=/ca")

    assert address.server_url("10.0.0.7", 6379) == (
        "rediss://u:p%40w@10.0.0.7:6379/2?ssl_ca_certs=%2Fca"
    )
    assert address.server_url("fd00::7", 1).startswith("rediss://u:p%40w@[fd00::7]:1/2")
    assert address.sentinel_urls()[0] == "rediss://:s@a:1/0?ssl_ca_certs=%2Fca"


def test_sentinels_may_be_without_tls() -> None:
    """The options of TLS are kept from them then."""
    address = parse_sentinel(PLAIN + "&ssl_ca_certs=/ca&sentinel_ssl=false")

    assert address.sentinel_urls()[0] == "redis://a:26379/0"
    assert address.transport_options()["sentinel_kwargs"].keys() == {
        "socket_connect_timeout",
        "socket_timeout",
    }


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("sentinel://a:26379;b:26379/0", "?master_name="),
        ("sentinel://?master_name=m", "must name Sentinels"),
        ("sentinel://a:x?master_name=m", "must name Sentinels"),
        ("sentinel://a:70000?master_name=m", "must name Sentinels"),
        ("sentinel://a/zero?master_name=m", "'zero' where a number"),
        ("sentinel://a/0?master_name=m&ssl=perhaps", "ssl=perhaps"),
        ("sentinel://:hush@a b/0?master_name=m&sentinel_password=hush", "must name Sentinels"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(url: str, why: str) -> None:
    """The setting and the reason are named, no password is."""
    with pytest.raises(AsyncNodesError) as caught:
        parse_sentinel(url)

    assert caught.value.code == "invalid_setting"
    assert why in str(caught.value)
    assert "hush" not in str(caught.value)


def test_passwords_are_masked() -> None:
    """Those of the server and those of the Sentinels."""
    shown = masked("sentinel://u:hush@a:1;b:2/0?master_name=m&sentinel_password=hush&ssl=true")

    assert shown == "sentinel://u:***@a:1;b:2/0?master_name=m&sentinel_password=***&ssl=true"


@pytest.mark.parametrize(
    ("url", "whole"),
    [
        ("redis://h:1/0", "redis://:s%2F%3A@h:1/0"),
        ("rediss://u@h/0?ssl_cert_reqs=none", "rediss://u:s%2F%3A@h/0?ssl_cert_reqs=none"),
        ("unix:///a/b?db=1", "unix://:s%2F%3A@/a/b?db=1"),
        (PLAIN, "sentinel://:s%2F%3A@a:26379;b:26379/0?master_name=m"),
    ],
)
def test_a_password_from_a_file_is_put_into_any_address(url: str, whole: str) -> None:
    """Quoted, beside the user that is there; an address that has one already is refused."""
    assert with_password(url, "s/:") == whole
    with pytest.raises(AsyncNodesError, match="REDIS_PASSWORD_FILE must not be set"):
        with_password(whole, "another")


def load(tmp_path: Path, **environ: str) -> Settings:
    """Return the settings of an environment, with files for the names in `{}`."""
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"secret-{name}\n")
    filled = {key: text.format(tmp=tmp_path) for key, text in environ.items()}
    return Settings.load(filled, SimpleNamespace())


def test_celery_is_told_the_same_place(tmp_path: Path) -> None:
    """One address and its files of passwords give Celery all it needs for broker and results."""
    settings = load(
        tmp_path,
        ASYNC_NODES_REDIS_URL=PLAIN + "&ssl_ca_certs=/ca",
        ASYNC_NODES_REDIS_PASSWORD_FILE="{tmp}/one",
        ASYNC_NODES_REDIS_SENTINEL_PASSWORD_FILE="{tmp}/two",
        CELERY_BROKER_TRANSPORT_OPTIONS='{{"health_check_interval": 5}}',
    )
    celery = settings.celery

    assert settings.store_url.startswith("sentinel://:secret-one@a:26379;b:26379/0?master_name=m")
    assert celery["broker_url"] == celery["result_backend"]
    assert celery["broker_url"] == (
        "sentinel://:secret-one@a:26379/0;sentinel://:secret-one@b:26379/0"
    )
    for name in ("broker_transport_options", "result_backend_transport_options"):
        assert celery[name]["master_name"] == "m"
        assert celery[name]["sentinel_kwargs"]["password"] == "secret-two"
        assert celery[name]["sentinel_kwargs"]["ssl_ca_certs"] == "/ca"
    assert celery["broker_transport_options"]["health_check_interval"] == 5
    assert celery["broker_use_ssl"] == {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca"}
    assert celery["redis_backend_use_ssl"] == celery["broker_use_ssl"]
    assert "secret" not in str(settings.shown()).replace("ssl_certfile", "")


def test_a_broker_in_kombus_spelling_is_the_store_too(tmp_path: Path) -> None:
    """What stands in its transport options is part of the address."""
    settings = load(
        tmp_path,
        CELERY_BROKER_URL="sentinel://a:26379/0;sentinel://b:26379/0",
        CELERY_BROKER_TRANSPORT_OPTIONS='{{"master_name": "m"}}',
    )

    assert settings.store_url == PLAIN
    assert settings.with_redis_url(OURS).store_url == redis_py_url(OURS)


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({"ASYNC_NODES_REDIS_PASSWORD_FILE": "{tmp}/one"}, "needs ASYNC_NODES_REDIS_URL"),
        (
            {
                "ASYNC_NODES_REDIS_URL": "redis://h/0",
                "ASYNC_NODES_REDIS_PASSWORD_FILE": "{tmp}/none",
            },
            "ASYNC_NODES_REDIS_PASSWORD_FILE cannot be read",
        ),
        (
            {
                "ASYNC_NODES_REDIS_URL": "redis://h/0",
                "ASYNC_NODES_REDIS_SENTINEL_PASSWORD_FILE": "{tmp}/one",
            },
            "is for an address of Sentinels",
        ),
    ],
)
def test_files_of_passwords_that_cannot_be_used(
    tmp_path: Path, environ: dict[str, Any], why: str
) -> None:
    """Each is refused by its own name."""
    with pytest.raises(AsyncNodesError, match=why):
        load(tmp_path, **environ)
