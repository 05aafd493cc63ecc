from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from async_nodes.cli.doctor import local, report, server, store
from async_nodes.cli.doctor.check import Check, Outcome, Patient, examine, status_of
from async_nodes.cli.main import main
from async_nodes.cli.terminal import Terminal
from async_nodes.embedded import EmbeddedServer
from async_nodes.storage.keys import Keys
from tests.acceptance.cli_processes import free_port
from tests.acceptance.cli_stub import StubServer, stub_server

SECRET = "s3cret"


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with stub_server() as running:
        yield running


def patient(url: str = "http://127.0.0.1:1", seconds: float = 10.0) -> Patient:
    return Patient(url, time.monotonic() + seconds)


def outcomes(checks: list[Check]) -> list[str]:
    return [f"{check.name} {check.outcome.name.lower()}" for check in checks]


def test_a_server_that_is_well(stub: StubServer) -> None:
    """Ready, an echo with its timings, and a first event long before the end."""
    checks = examine(patient(stub.url), (server.web, server.echo, server.stream))
    assert outcomes(checks) == ["web ok", "echo ok", "events ok"], checks
    assert "queued" in checks[1].detail
    assert checks[2].seconds < 2


def test_a_proxy_that_holds_events_back_is_found(stub: StubServer) -> None:
    """Events that all arrive at the end are a failure, with the advice for nginx."""
    stub.holds_events = True
    check = examine(patient(stub.url), (server.web, server.stream))[1]
    assert check.outcome is Outcome.FAIL
    assert "proxy_buffering off" in check.hint


def test_what_the_server_misses_is_named(stub: StubServer) -> None:
    """A server that is not ready says what is missing."""
    stub.missing = ["cpu"]
    check = examine(patient(stub.url), (server.web,))[0]
    assert check.outcome is Outcome.FAIL
    assert check.detail.endswith(": cpu")


def test_without_a_server_the_rest_is_not_checked() -> None:
    """A check that depends on a failed one is a warning that says so."""
    url = f"http://127.0.0.1:{free_port()}"
    checks = examine(patient(url), (server.web, server.echo, server.stream))
    assert outcomes(checks) == ["web fail", "echo warn", "events warn"]
    assert checks[1].detail.startswith("not checked: ")


def test_a_check_that_breaks_is_a_failed_check() -> None:
    """An exception inside a check is shown, and the next one is made."""

    def broken(_: Patient) -> Check:
        """broken: always."""
        raise ZeroDivisionError("on purpose")

    checks = examine(patient(), (broken, local.versions))
    assert outcomes(checks) == ["broken fail", "versions ok"]
    assert checks[0].detail == "ZeroDivisionError: on purpose"


def test_time_is_bounded(stub: StubServer) -> None:
    """When the time is used up the remaining checks are skipped at once."""
    checks = examine(patient(stub.url, seconds=0.0), (server.web, server.echo))
    assert outcomes(checks) == ["web warn", "echo warn"]
    assert sum(check.seconds for check in checks) < 0.1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ASYNC_NODES_PROT", "1", "did you mean ASYNC_NODES_PORT"),
        ("CELERY_TASK_SERIALISER", "json", "did you mean CELERY_TASK_SERIALIZER"),
        ("ASYNC_NODES_PORT", "x", "must be a whole number"),
    ],
)
def test_a_wrong_setting_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    """An unknown name, ours or Celery's, and a wrong value are failures; Celery waits for it."""
    monkeypatch.setenv(name, value)
    checks = examine(patient(), (local.settings, local.celery))
    assert outcomes(checks) == ["settings fail", "celery warn"]
    assert said in checks[0].detail


def test_celery_obeys_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The app's broker is the one the settings name."""
    monkeypatch.setenv("ASYNC_NODES_DATA_DIR", str(tmp_path))
    checks = examine(patient(), (local.settings, local.celery, local.transport))
    assert outcomes(checks) == ["settings ok", "celery ok", "transport ok"], checks


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"visibility_timeout": 3600}, "visibility_timeout is 3600 s"),
        ({}, "visibility_timeout is 3600 s"),
        ({"visibility_timeout": 315_360_000, "max_connections": 10}, "max_connections = 10"),
    ],
)
def test_transport_options_that_hurt_are_found(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, int], said: str
) -> None:
    """Options under which tasks run twice or a pool starves are warnings."""
    monkeypatch.setenv("CELERY_BROKER_TRANSPORT_OPTIONS", json.dumps(options))
    check = examine(patient(), (local.settings, local.transport))[1]
    assert check.outcome is Outcome.WARN
    assert check.detail == said


@pytest.mark.needs("redis")
def test_a_store_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Eviction with a limit is a failure, a missing AOF a warning, missing workers a failure."""
    config = {"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru", "appendonly": "no"}
    with EmbeddedServer(tmp_path, config=config) as running:
        monkeypatch.setenv("ASYNC_NODES_REDIS_URL", running.url)
        examinations = (
            local.settings,
            store.store,
            store.eviction,
            store.persistence,
            store.workers,
        )
        checks = examine(patient(), examinations)
    assert outcomes(checks) == [
        "settings ok",
        "store ok",
        "eviction fail",
        "persistence warn",
        "workers fail",
    ]


@pytest.mark.needs("redis")
def test_what_is_paused_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whoever wonders why nothing runs is told what was paused, and why."""
    monkeypatch.setenv("LANG", "C.UTF-8")
    with EmbeddedServer(tmp_path / "data") as running:
        monkeypatch.setenv("ASYNC_NODES_REDIS_URL", running.url)
        checks = (local.settings, store.store, store.pauses)
        assert outcomes(examine(patient(), checks))[-1] == "pauses ok"
        with redis.Redis.from_url(running.url) as client:
            said = '{"mode":"pause","since":1,"reason":"quota\\u001b"}'
            client.hset(Keys().controls, "node:echo", said)
            client.hset(Keys().controls, "queue:io.low", '{"mode":"drain","since":1}')
        check = examine(patient(), checks)[-1]

    assert check.outcome is Outcome.WARN
    assert check.detail == "node:echo paused (quota ); queue:io.low draining"
    assert "async-nodes resume" in check.hint


def test_no_secret_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Passwords of addresses and the key appear nowhere, in no form of the report."""
    url = f"redis://user:{SECRET}@127.0.0.1:{free_port()}/0"
    monkeypatch.setenv("ASYNC_NODES_REDIS_URL", url)
    monkeypatch.setenv("ASYNC_NODES_API_KEY", SECRET)
    monkeypatch.setenv("ASYNC_NODES_PORT", str(free_port()))
    began = time.monotonic()
    for arguments in (["doctor"], ["doctor", "--json"]):
        assert main(arguments) == 2
    shown = "".join(capsys.readouterr())
    assert "127.0.0.1" in shown
    assert SECRET not in shown
    assert time.monotonic() - began < 10


CHECKS = [
    Check("versions", Outcome.OK, "all there", seconds=0.1),
    Check("store", Outcome.WARN, "no AOF", "CONFIG SET appendonly yes", 0.1),
]


def test_the_report_has_words_beside_icons() -> None:
    """Each line says ok, warn or fail in words, with the advice below it."""
    assert report.lines(CHECKS, Terminal(unicode=False)) == [
        "+ ok    versions     all there",
        "! warn  store        no AOF",
        "                     CONFIG SET appendonly yes",
        "",
        "0 failed, 1 to look at (0.2 s).",
    ]


def test_the_report_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report speaks Chinese to a Chinese locale."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    shown = report.lines(CHECKS, Terminal())
    assert shown[0] == "✔ 正常  versions     all there"
    assert shown[-1] == "0 项失败,1 项需注意(0.2 秒)。"


def test_the_exit_status_is_the_worst_outcome() -> None:
    """0 for all well, 1 with warnings, 2 with failures; the JSON says the same."""
    assert status_of(CHECKS[:1]) == 0
    assert status_of(CHECKS) == 1
    assert status_of([*CHECKS, Check("web", Outcome.FAIL, "gone")]) == 2
    assert json.loads(report.document(CHECKS))["status"] == "warn"
