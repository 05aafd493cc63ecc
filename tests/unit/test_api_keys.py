"""API keys: what they look like, how a web process knows them, and what each may do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.app import build_app
from async_nodes.access.guard import EVERYBODY, Guard, check_scope, refuse_open_door, scope_of
from async_nodes.access.keyring import FRESH, SOONER, Keyring
from async_nodes.access.lane.head import Heads
from async_nodes.core.api_keys import (
    EVERYTHING,
    Caller,
    NewKey,
    Scope,
    checked_tenant,
    digest,
    make_key,
)
from async_nodes.core.errors import AsyncNodesError
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage.api_keys import ApiKeys
from async_nodes.storage.keys import Keys
from async_nodes.storage.redis_errors import StoreUnavailable

LINES = b"Host: 127.0.0.1:8000\r\nAuthorization: Bearer %s\r\n"


class Shelf:
    """A store that holds nothing but keys, and may be away."""

    def __init__(self) -> None:
        self.keys = Keys()
        self.link = self
        self.kept: dict[bytes, bytes] = {}
        self.tenants: set[str] = set()
        self.away = False
        self.reads = 0

    def now_ms(self) -> int:
        """Return a time."""
        return 1_796_000_000_000 + len(self.kept)

    def call(self, command: str, _key: str, *rest: Any, timeout: float | None = None) -> Any:
        """Do what a server does with a command."""
        if self.away:
            raise StoreUnavailable("away")
        if command == "HGETALL":
            self.reads += 1
            return [part for pair in self.kept.items() for part in pair]
        if command == "HDEL":
            return int(self.kept.pop(rest[0].encode(), None) is not None)
        if command == "HSET":
            self.kept[rest[0].encode()] = rest[1].encode()
        else:
            self.tenants.add(rest[0])
        return 1


class Clock:
    """Stand still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let so many pass."""
        self.now += seconds


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keyring(shelf: Shelf, clock: Clock) -> Keyring:
    services: Any = SimpleNamespace(store=shelf)
    return Keyring(lambda: services, clock=clock, sleep=clock.sleep)


def new(shelf: Any, *scopes: Scope, tenant: str = "default") -> NewKey:
    return ApiKeys(shelf).create("a key", tenant=tenant, scopes=scopes or {Scope.READ, Scope.RUN})


def test_a_key_names_itself_and_hides() -> None:
    """Its id stands in it; what is printed by accident does not hold the secret."""
    made = make_key()
    assert made.text.startswith(f"an_{made.key_id}_")
    assert len(made.text) > 50
    assert made.text not in repr(made)
    assert made.key_id in repr(made)
    assert make_key().text != made.text


def test_the_store_never_has_the_key(shelf: Shelf) -> None:
    """It has what the key hashes to."""
    made = new(shelf, Scope.ADMIN, tenant="acme")
    (raw,) = shelf.kept.values()
    assert made.text.encode() not in raw
    assert digest(made.text).hex().encode() in raw
    (kept,) = ApiKeys(shelf).all()
    assert kept.caller == Caller("acme", frozenset({Scope.ADMIN}), made.key_id)
    assert shelf.tenants == {"acme"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"scopes": ()},
        {"tenant": "a:b"},
        {"tenant": ""},
        {"tenant": "a b"},
        {"tenant": "x" * 33},
    ],
    ids=str,
)
def test_what_is_no_key_is_refused(shelf: Shelf, wrong: dict[str, Any]) -> None:
    """A sentence says what is wrong, and nothing is kept."""
    asked: dict[str, Any] = {"name": "n", "tenant": "default", "scopes": {Scope.READ}} | wrong
    with pytest.raises(AsyncNodesError) as caught:
        ApiKeys(shelf).create(**asked)
    assert caught.value.code == "invalid_request"
    assert not shelf.kept


@given(st.text(max_size=40))
def test_a_tenant_fits_a_record_and_a_key(text: str) -> None:
    """Whatever passes has at most 32 bytes and nothing that divides keys."""
    try:
        name = checked_tenant(text)
    except AsyncNodesError:
        return
    assert 1 <= len(name.encode()) <= 32
    assert not set(name) & set(": {}\n\0")


def test_a_new_key_is_known_at_once(shelf: Shelf, keyring: Keyring, clock: Clock) -> None:
    """What is not among the known ones is looked for, though twenty times a second at most."""
    assert keyring.caller("an_nobody_x") is None
    made = new(shelf)
    assert keyring.caller(made.text) == Caller("default", frozenset(made_scopes()), made.key_id)
    reads, began = shelf.reads, clock.now
    for _ in range(50):
        assert keyring.caller("an_guess_x") is None
        assert keyring.caller("no key of ours") is None
    assert shelf.reads - reads <= (clock.now - began) / SOONER + 1
    assert clock.now - began > 2


def made_scopes() -> set[Scope]:
    return {Scope.READ, Scope.RUN}


def test_a_revoked_key_is_forgotten_within_a_second(
    shelf: Shelf, keyring: Keyring, clock: Clock
) -> None:
    """And a change of the keys has another number."""
    made = new(shelf)
    assert keyring.caller(made.text) is not None
    before = keyring.generation
    assert ApiKeys(shelf).revoke(made.key_id)
    clock.now += FRESH + 0.01
    assert keyring.caller(made.text) is None
    assert keyring.generation == before + 1
    assert not ApiKeys(shelf).revoke(made.key_id)


def test_known_keys_open_while_the_store_is_away(
    shelf: Shelf, keyring: Keyring, clock: Clock
) -> None:
    """What was never read is an outage; what was read once counts."""
    shelf.away = True
    with pytest.raises(StoreUnavailable):
        keyring.caller("an_x_y")
    shelf.away = False
    made = new(shelf)
    assert keyring.caller(made.text) is not None
    shelf.away = True
    clock.now += 3_600
    assert keyring.caller(made.text) is not None
    assert keyring.caller("an_x_y") is None


def test_the_lane_forgets_what_it_remembered(shelf: Shelf, keyring: Keyring, clock: Clock) -> None:
    """A head that was let in is let in no longer once its key is revoked."""
    made = new(shelf, Scope.READ)
    heads = Heads(Guard(Settings(api_keys=True), keyring))
    lines = LINES % made.text.encode()
    heads.look_at_the_keys()
    assert heads.of_read(lines) is heads.of_read(lines) is not None
    ApiKeys(shelf).revoke(made.key_id)
    clock.now += FRESH + 0.01
    heads.look_at_the_keys()
    assert heads.of_read(lines) is None


@pytest.mark.parametrize(
    ("scopes", "reads", "submits"),
    [({Scope.READ}, True, False), ({Scope.RUN}, False, True), ({Scope.ADMIN}, False, False)],
    ids=str,
)
def test_the_lane_knows_scopes(
    shelf: Shelf, keyring: Keyring, scopes: set[Scope], *, reads: bool, submits: bool
) -> None:
    """What a key may not do is left to the app, which says so."""
    made = new(shelf, *scopes, tenant="acme")
    heads = Heads(Guard(Settings(api_keys=True), keyring))
    lines = LINES % made.text.encode()
    found = heads.of_read(lines)
    assert (found is not None) == reads
    assert found is None or found.tenant == "acme"
    posted = heads.of_submit(lines + b"Content-Type: application/json\r\nContent-Length: 9\r\n")
    assert (posted is not None) == submits


def test_the_settings_key_may_do_everything(shelf: Shelf, keyring: Keyring) -> None:
    """Beside the keys of the store."""
    guard = Guard(Settings(api_key="root", api_keys=True), keyring)
    assert guard.caller("Bearer root") == EVERYBODY
    assert EVERYBODY.scopes == EVERYTHING
    assert guard.caller(f"Bearer {new(shelf).text}").scopes == made_scopes()
    for wrong in (None, "", "Bearer ", "Bearer nothing", "Basic root"):
        with pytest.raises(AsyncNodesError) as caught:
            guard.caller(wrong)
        assert caught.value.code == "unauthorized"


def test_keys_open_the_door() -> None:
    """With them a server may listen where others can reach it, and pages need a key like all."""
    refuse_open_door(Settings(host="0.0.0.0", api_keys=True))  # noqa: S104 - that is the question
    with pytest.raises(AsyncNodesError):
        refuse_open_door(Settings(host="0.0.0.0"))  # noqa: S104


WANTED = {
    "/metrics": Scope.METRICS,
    "/v1/tasks": {"GET": Scope.READ, "POST": Scope.RUN},
    "/v1/tasks/<task_id>": {"GET": Scope.READ, "DELETE": Scope.RUN},
    "/v1/tasks/<task_id>/cancel": Scope.RUN,
    "/v1/queues": Scope.READ,
    "/v1/queues/<name>/pause": Scope.ADMIN,
    "/v1/nodes/<name>/drain": Scope.ADMIN,
    "/v1/dead-letters": Scope.READ,
    "/v1/dead-letters/requeue": Scope.ADMIN,
    "/v1/dead-letters/<task_id>": {"GET": Scope.READ, "DELETE": Scope.ADMIN},
    "/v1/files": {"GET": Scope.READ, "POST": Scope.RUN},
}


@pytest.mark.parametrize("path", WANTED)
def test_what_each_address_asks_for(path: str) -> None:
    """Reading, working, and looking after the service are three things."""
    wanted = WANTED[path]
    if not isinstance(wanted, dict):
        wanted = {"GET" if wanted in {Scope.READ, Scope.METRICS} else "POST": wanted}
    for method, scope in wanted.items():
        assert scope_of(method, path) is scope


def test_every_change_needs_more_than_reading() -> None:
    """No route that changes something is open to a key that may only read."""
    app = build_app(Settings(), lambda: None, nodes=registry())  # type: ignore[arg-type, return-value]
    reader = Caller(scopes=frozenset({Scope.READ}))
    changes = 0
    for rule in app.url_map.iter_rules():
        for method in (rule.methods or set()) - {"GET", "HEAD", "OPTIONS"}:
            changes += 1
            with pytest.raises(AsyncNodesError) as caught:
                check_scope(reader, method, rule.rule)
            assert caught.value.code == "forbidden_scope"
    assert changes > 15
