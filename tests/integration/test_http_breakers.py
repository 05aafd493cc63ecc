"""The routes of the breakers: what they show, and what an administrator may change."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes import Breaker, node
from async_nodes.access.app import build_app
from async_nodes.access.services import Services
from async_nodes.core.breaker import PRISTINE, Cause, Figures, opened
from async_nodes.nodes.registry import Registry
from async_nodes.settings import Settings
from async_nodes.storage.breakers import SharedBreakers
from tests.contract.real_store import RealStore, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

    from tests.servers import RedisServer

LOADED = Breaker(base_rate=10, base_latency=0.2)
OPEN = opened(
    LOADED,
    PRISTINE,
    Cause.FAILURES,
    now_ms=1_780_000_000_000,
    draw=0.5,
    figures=Figures(80, 60, 8.0, 1.5, 0.75),
)


@pytest.fixture
def store(one_server: RedisServer) -> Iterator[RealStore]:
    """Give a store."""
    made = open_store(one_server)
    yield made
    made.link.close()


@pytest.fixture
def shared(store: RealStore) -> SharedBreakers:
    """Return the breakers of that store."""
    return SharedBreakers(store.store)


@pytest.fixture
def client(store: RealStore, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    """Return a client of a service with two nodes that declare breakers."""
    nodes = Registry()
    monkeypatch.setattr("async_nodes.nodes.registry._registry", nodes)
    for name, breaker in (("ask", LOADED), ("bill", Breaker(key="money")), ("plain", None)):
        node(name, breaker=breaker)(lambda: None)
    hub: Any = SimpleNamespace(subscribers=0)
    services = Services.assemble(Settings(), store.store, hub, nodes)
    return build_app(Settings(), lambda: services, nodes=nodes).test_client()


def ask(client: FlaskClient, path: str, **given: Any) -> Any:
    """Send a request from this machine."""
    return client.open(path, base_url="http://localhost", **given)


def test_declared_breakers_are_shown_before_their_first_call(client: FlaskClient) -> None:
    """With their thresholds; a node without one has none."""
    shown = ask(client, "/v1/breakers").json["breakers"]

    assert [one["name"] for one in shown] == ["key:money", "node:ask"]
    assert shown[1]["state"] == "closed"
    assert shown[1]["thresholds"] == {
        "window_seconds": 10.0, "failures": 50, "failure_rate": 0.3, "rate": 10.0,
        "p95_seconds": pytest.approx(0.3),
    }  # fmt: skip


def test_an_open_one_shows_why_and_until_when(client: FlaskClient, shared: SharedBreakers) -> None:
    """The figures that decided."""
    assert shared.change("node:ask", 0, OPEN) is None

    shown = ask(client, "/v1/breakers/node:ask").json

    assert (shown["state"], shown["cause"], shown["mode"]) == ("open", "failures", "auto")
    assert shown["until"] == "2026-05-28T20:27:10.000Z"
    assert shown["measured"] == {
        "calls": 80, "failures": 60, "failure_rate": 0.75, "rate": 8.0, "p95_seconds": 1.5,
    }  # fmt: skip


def test_endpoints_of_other_tenants_are_not_shown(
    client: FlaskClient, shared: SharedBreakers
) -> None:
    """Not even that they are there."""
    for name in ("endpoint:api.example:443", "endpoint:api.example:443@acme"):
        assert shared.change(name, 0, replace(OPEN, version=1)) is None

    names = [one["name"] for one in ask(client, "/v1/breakers").json["breakers"]]
    other = ask(client, "/v1/breakers/endpoint:api.example:443@acme")

    assert names == ["endpoint:api.example:443", "key:money", "node:ask"]
    assert (other.status_code, other.json["code"]) == (404, "breaker_not_found")


def test_a_breaker_is_forced_and_let_go(client: FlaskClient, shared: SharedBreakers) -> None:
    """One that was never used too; and the answer is what holds now."""
    answers = [
        ask(client, "/v1/breakers/node:ask", method="POST", json={"mode": mode}).json
        for mode in ("open", "open", "closed", "auto")
    ]

    assert [(one["state"], one["mode"]) for one in answers] == [
        ("open", "open"), ("open", "open"), ("closed", "closed"), ("closed", "auto"),
    ]  # fmt: skip
    known = shared.one("node:ask")
    assert known is not None
    assert (known.forced, known.version) == ("", 4)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"mode": "shut"}, "invalid_request"),
        ({}, "invalid_request"),
        ({"mode": "open", "why": "x"}, "invalid_request"),
        ([], "invalid_request"),
    ],
    ids=str,
)
def test_a_wrong_word_is_refused(client: FlaskClient, body: Any, code: str) -> None:
    """By name, and nothing is changed."""
    answer = ask(client, "/v1/breakers/node:ask", method="POST", json=body)

    assert (answer.status_code, answer.json["code"]) == (422, code)


def test_a_typing_mistake_is_helped(client: FlaskClient) -> None:
    """With the name that may have been meant."""
    answer = ask(client, "/v1/breakers/node:aks")

    assert (answer.status_code, answer.json["suggestion"]) == (404, "node:ask")


def test_the_metrics_show_them(client: FlaskClient, shared: SharedBreakers) -> None:
    """State and figures, from the store."""
    assert shared.change("node:ask", 0, OPEN) is None

    text = ask(client, "/metrics").text

    assert 'async_nodes_breaker_state{breaker="node:ask"} 2.0' in text
    assert 'async_nodes_breaker_measured{breaker="node:ask",of="failure_rate"} 0.75' in text
