"""Addresses of every kind against real servers: what works, and what is said when it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from redis.exceptions import RedisError

from async_nodes.cli.doctor import local, store
from async_nodes.cli.doctor.check import Check, Outcome, Patient, examine
from async_nodes.storage.redis_address import unconnected
from async_nodes.storage.redis_client import client
from async_nodes.storage.redis_connection import BlockingConnection, NotSent
from async_nodes.storage.redis_errors import explained
from async_nodes.testing.sentinel_group import PASSWORD, Tls, free_ports
from tests.sentinel_server import WRONG_NAME, Certificates, SentinelServer
from tests.servers import RedisServer

pytestmark = pytest.mark.needs("redis-server", "openssl")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def watched(authority: Certificates) -> Iterator[SentinelServer]:
    """Run servers under Sentinel that speak TLS."""
    server = SentinelServer(tls=authority.sign("watched"))
    try:
        server.start()
        yield server
    finally:
        server.remove()


class TlsServer:
    """One server that speaks TLS with some certificate."""

    def __init__(self, tls: Tls, *options: str) -> None:
        (self.port,) = free_ports(1)
        self.server = RedisServer(
            "redis-server", "--tls-port", str(self.port), "--bind", "127.0.0.1",
            "--tls-cert-file", str(tls.certificate), "--tls-key-file", str(tls.key),
            "--tls-ca-cert-file", str(tls.authority), *options,
        )  # fmt: skip
        self.url = f"rediss://localhost:{self.port}/0?ssl_ca_certs={tls.authority}"

    def __enter__(self) -> Self:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.remove()


def refusals(url: str) -> set[str]:
    """Return what a native thread and a greenlet are told of an address that cannot be used."""
    link = BlockingConnection(url, timeout=0.8)
    with pytest.raises(NotSent) as caught:
        link.call("PING")
    link.close()
    with pytest.raises((RedisError, OSError)) as other:
        greet(unconnected(url, connect_timeout=2.0))
    said = str(caught.value.detail).partition("reached: ")[2] or str(caught.value.detail)
    return {said, explained(other.value)}


def greet(connection: Any) -> None:
    """Connect as a greenlet's connection does; with TLS 1.3 some refusals come with a reply."""
    connection.connect()
    connection.send_command("PING")
    connection.read_response()


def works(url: str) -> bool:
    """Tell whether a native thread's connection and redis-py's client get an answer."""
    link = BlockingConnection(url, timeout=10.0)
    answers = [link.call("ECHO", "native")]
    link.close()
    with client(url, timeout=10.0) as plain:
        answers.append(plain.echo("plain"))
    return answers == [b"native", b"plain"]


def test_a_good_certificate(authority: Certificates) -> None:
    """TLS with a certificate of the authority that is named works."""
    with TlsServer(authority.sign("good"), "--tls-auth-clients", "no") as one:
        assert works(one.url)


def test_a_certificate_of_another_authority(authority: Certificates, tmp_path: Path) -> None:
    """It is not accepted, and the reason is named."""
    stranger = Certificates(tmp_path, "stranger").sign("strange")
    with TlsServer(stranger, "--tls-auth-clients", "no") as one:
        url = f"rediss://localhost:{one.port}/0?ssl_ca_certs={authority.authority}"
        (said,) = refusals(url)
    assert "certificate is not accepted: self-signed certificate in certificate chain" in said


def test_a_certificate_that_has_expired(authority: Certificates) -> None:
    """It is not accepted, and the reason is named."""
    with TlsServer(authority.sign("old", days=-1), "--tls-auth-clients", "no") as one:
        (said,) = refusals(one.url)
    assert "certificate is not accepted: certificate has expired" in said


def test_a_certificate_for_another_host(authority: Certificates) -> None:
    """It is not accepted, unless host names are not looked at."""
    tls = authority.sign("elsewhere", WRONG_NAME)
    with TlsServer(tls, "--tls-auth-clients", "no") as one:
        (said,) = refusals(one.url)
        assert "certificate is not accepted: Hostname mismatch" in said
        assert "'localhost'" in said
        assert works(one.url + "&ssl_check_hostname=false")


def test_a_certificate_of_the_client(authority: Certificates) -> None:
    """A server that wants one takes it, and refuses who has none."""
    with TlsServer(authority.sign("strict"), "--tls-auth-clients", "yes") as one:
        mine = authority.sign("client")
        assert works(f"{one.url}&ssl_certfile={mine.certificate}&ssl_keyfile={mine.key}")
        # The server's word for it may be lost with the connection that it resets.
        assert refusals(one.url)


def test_tls_before_1_2(authority: Certificates) -> None:
    """A server that speaks nothing newer is not spoken to."""
    tls = authority.sign("ancient")
    options = ("--tls-auth-clients", "no", "--tls-protocols", "TLSv1.1", "--tls-ciphers")
    with TlsServer(tls, *options, "DEFAULT:@SECLEVEL=0") as one:
        said = refusals(one.url)
    assert any("TLS failed: " in one for one in said), said


def test_users_and_passwords() -> None:
    """A user of an ACL comes in, on a unix socket too; a wrong password is said, and not shown."""
    (port,) = free_ports(1)
    server = RedisServer(
        "redis-server", "--port", str(port), "--user", "web", "on", ">right", "~an*", "&*", "+@all"
    )
    try:
        server.start()
        place = f"127.0.0.1:{port}/0"
        assert works(f"redis://web:right@{place}")
        assert works(f"unix://web:right@{server.path}?db=0")
        for said in refusals(f"redis://web:hush@{place}"):
            assert "WRONGPASS" in said or "refuses the user or the password" in said
            assert "hush" not in said
    finally:
        server.remove()


def test_sentinels_name_the_primary(watched: SentinelServer) -> None:
    """Every kind of connection finds it, with TLS and passwords for both."""
    assert works(watched.url)


def test_a_wrong_name_and_a_wrong_password_of_sentinels(watched: SentinelServer) -> None:
    """What each Sentinel said is in the message, no password is."""
    for said in refusals(watched.url.replace("master_name=mymaster", "master_name=other")):
        assert "no Sentinel names a primary for 'other'" in said
        assert "No such master with that name" in said
    wrong = watched.url.replace(f"sentinel_password={PASSWORD}", "sentinel_password=hush")
    for said in refusals(wrong):
        assert "no Sentinel names a primary" in said
        assert "hush" not in said


def diagnosis(monkeypatch: pytest.MonkeyPatch, url: str, **environ: str) -> list[Check]:
    """Return what the doctor says of an address."""
    for name, value in {"ASYNC_NODES_REDIS_URL": url, **environ}.items():
        monkeypatch.setenv(name, value)
    patient = Patient("http://127.0.0.1:1", time.monotonic() + 30)
    checks = (local.settings, store.store, store.replication, store.persistence)
    return examine(patient, checks)[1:]


def test_the_doctor_tells_who_is_what(
    monkeypatch: pytest.MonkeyPatch, watched: SentinelServer
) -> None:
    """The primary, its replicas, and how many Sentinels agree; no password."""
    watched.group.until(watched.group.is_whole, "no replica")
    found = diagnosis(monkeypatch, watched.url)
    assert [check.outcome for check in found] == [Outcome.OK] * 3, found
    primary = watched.group.primary().port
    assert f"3 of 3 Sentinels answer, quorum 2, 127.0.0.1:{primary}" in found[1].detail
    assert "1 replicas" in found[1].detail
    assert PASSWORD not in str(found)


def test_the_doctor_finds_too_few_replicas(
    monkeypatch: pytest.MonkeyPatch, watched: SentinelServer
) -> None:
    """Where submits wait for more than there are, and at a server that is one itself."""
    found = diagnosis(monkeypatch, watched.url, ASYNC_NODES_REDIS_WAIT_REPLICAS="2")
    assert found[1].outcome is Outcome.FAIL
    assert "2 must have a task" in found[1].hint
    replica = watched.group.other(watched.group.primary())
    place = f"rediss://:{PASSWORD}@127.0.0.1:{replica.port}/0"
    authority = watched.url.partition("ssl_ca_certs=")[2]
    found = diagnosis(monkeypatch, f"{place}?ssl_ca_certs={authority}")
    assert found[1].outcome is Outcome.FAIL
    assert "refuses to write" in found[1].detail
