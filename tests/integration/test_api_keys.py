"""Keys with tenants and scopes, asked of a real web process, by both of its ways to answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from async_nodes.core.api_keys import NewKey, Scope
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.settings import Settings
from async_nodes.storage.api_keys import ApiKeys
from tests.integration.web import ROOT, Hand, Web, hand, wait_until
from tests.servers import RedisServer

pytestmark = pytest.mark.needs("redis")
__all__ = ["hand"]

FLASK = {"X_Slow_Way": "1"}
"""A header that the fast lane does not know: the app answers."""


@pytest.fixture
def keys(one_server: RedisServer) -> Iterator[ApiKeys]:
    settings = Settings(redis_url=one_server.url)
    store = open_blocking(settings, make_app(settings), title="keys")
    yield ApiKeys(store)
    store.link.close()


@pytest.fixture
def web(one_server: RedisServer, tmp_path: Path) -> Iterator[Web]:
    started = Web(one_server.url, tmp_path / "log", ASYNC_NODES_API_KEYS="true")
    started.start()
    wait_until(lambda: started.get("/readyz").json["checks"]["store"]["ok"])
    yield started
    assert started.stop() == 0, started.log


def bearer(key: NewKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.text}"}


def made(keys: ApiKeys, *scopes: Scope, tenant: str = "default") -> NewKey:
    return keys.create("test", tenant=tenant, scopes=scopes or (Scope.READ, Scope.RUN))


@pytest.mark.parametrize("way", [{}, FLASK], ids=["lane", "app"])
def test_nobody_comes_in_without_a_key(web: Web, way: dict[str, str]) -> None:
    """Not from this machine either."""
    assert web.submit(**way).code == "unauthorized"
    assert web.get("/v1/tasks", **way).code == "unauthorized"
    wrong = {"Authorization": "Bearer an_aaaaaaaa_wrong"}
    assert web.submit(**wrong, **way).code == "unauthorized"


@pytest.mark.parametrize("way", [{}, FLASK], ids=["lane", "app"])
def test_a_tenant_sees_its_own_tasks_alone(web: Web, keys: ApiKeys, way: dict[str, str]) -> None:
    """Another tenant's task is as unknown as one that was never there, whatever is asked of it."""
    ours, theirs = (bearer(made(keys, tenant=name)) for name in ("acme", "other"))
    submitted = web.submit(**ours, **way)
    assert submitted.status == 202, submitted
    path = f"/v1/tasks/{submitted.json['task_id']}"

    assert web.get(path, **ours, **way).json["state"] == "Pending"
    for asked in (path, f"{path}/result", f"{path}/logs", f"{path}/events"):
        assert web.get(asked, **theirs, **way).status == 404, asked
    assert web.ask("POST", f"{path}/cancel", None, **theirs, **way).status == 404
    assert web.ask("DELETE", path, None, **theirs, **way).status == 404
    listed = [web.get("/v1/tasks", **one, **way).json["tasks"] for one in (ours, theirs)]
    assert [len(tasks) for tasks in listed] == [1, 0]


def test_an_idempotency_key_is_the_tenant_s_own(web: Web, keys: ApiKeys) -> None:
    """The same word of two tenants names two tasks."""
    same = {"Idempotency_Key": "order-1"}
    answers = [web.submit(**bearer(made(keys, tenant=name)), **same) for name in ("a", "b")]
    assert [answer.status for answer in answers] == [202, 202], answers
    assert answers[0].json["task_id"] != answers[1].json["task_id"]


@pytest.mark.parametrize("way", [{}, FLASK], ids=["lane", "app"])
def test_a_key_does_what_its_scopes_say(web: Web, keys: ApiKeys, way: dict[str, str]) -> None:
    """What it may not do is answered 403, with the scope that is missing."""
    reader, runner, admin, meter = (bearer(made(keys, scope)) for scope in Scope)
    task = web.submit(**runner, **way).json["task_id"]

    assert web.get(f"/v1/tasks/{task}", **reader, **way).status == 200
    refused = web.submit(**reader, **way)
    assert refused.code == "forbidden_scope"
    assert "run" in refused.json["detail"]
    assert web.get(f"/v1/tasks/{task}", **runner, **way).code == "forbidden_scope"
    pause = ("POST", "/v1/queues/io.default/pause", b"{}")
    json_type = {"content_type": "application/json"}
    assert web.ask(*pause, **runner, **way, **json_type).code == "forbidden_scope"
    assert web.ask(*pause, **admin, **way, **json_type).status == 200
    assert web.get("/metrics", **reader, **way).code == "forbidden_scope"
    assert web.get("/metrics", **meter, **way).status == 200


@pytest.mark.parametrize("way", [{}, FLASK], ids=["lane", "app"])
def test_a_revoked_key_opens_nothing_more(web: Web, keys: ApiKeys, way: dict[str, str]) -> None:
    """On a connection that it has used before, too; the other key of a rotation goes on."""
    old, new = made(keys), made(keys)
    task = web.submit(**bearer(old), **way).json["task_id"]
    path = f"/v1/tasks/{task}"
    assert web.get(path, **bearer(old), **way).status == 200

    assert keys.revoke(old.key_id)

    wait_until(lambda: web.get(path, **bearer(old), **way).status == 401, 5)
    assert web.get(path, **bearer(new), **way).status == 200


def test_a_worker_takes_tasks_of_every_tenant(web: Web, keys: ApiKeys, hand: Hand) -> None:
    """Whose a task is changes nothing for who runs it."""
    key = bearer(made(keys, tenant="acme"))
    task = web.submit(**key).json["task_id"]
    hand.done(task)
    record = web.get(f"/v1/tasks/{task}", **key).json
    assert (record["state"], record["output"]) == ("Succeeded", {"ok": 1})


def test_what_has_expired_leaves_every_tenant_s_index(keys: ApiKeys, hand: Hand) -> None:
    """The sweep walks through all of them in turn."""
    store = hand.store
    for tenant in ("acme", "default", "other"):
        made(keys, tenant=tenant)
        store.link.call("ZADD", store.keys.index(tenant), 1, "t_gone")
    assert store.tenants() == ["acme", "default", "other"]
    for _ in range(8):
        store.sweep()
    assert [store.link.call("ZCARD", store.keys.index(one)) for one in store.tenants()] == [0] * 3


def command(server: RedisServer, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("ASYNC_NODES", "CELERY"))}
    environ |= {"ASYNC_NODES_REDIS_URL": server.url, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    argv = [sys.executable, "-P", "-m", "async_nodes.cli", "keys", *words]
    return subprocess.run(
        argv, env=environ, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


def test_keys_are_made_and_revoked_at_the_command_line(one_server: RedisServer, web: Web) -> None:
    """The key alone is on standard output; a list never shows it; a revoked one is gone."""
    done = command(one_server, "create", "ci runner", "--tenant", "acme", "--scope", "run")
    assert done.returncode == 0, done.stderr
    key = done.stdout.strip()
    assert "ASYNC_NODES_API_KEYS" in done.stderr, "it is said that the server has to ask for keys"
    wait_until(lambda: web.submit(authorization=f"Bearer {key}").status == 202, 5)

    listed = command(one_server, "list", "--json")
    (shown,) = map(json.loads, listed.stdout.splitlines())
    expected: dict[str, Any] = {"name": "ci runner", "tenant": "acme", "scopes": ["run"]}
    assert shown.items() >= expected.items()
    assert key not in listed.stdout + command(one_server, "list").stdout
    assert "ci runner" in command(one_server, "list").stdout

    assert command(one_server, "revoke", shown["id"]).returncode == 0
    again = command(one_server, "revoke", shown["id"])
    assert again.returncode == 1
    assert shown["id"] in again.stderr
    wait_until(lambda: web.submit(authorization=f"Bearer {key}").status == 401, 5)


def test_a_tenant_that_is_none_is_refused(one_server: RedisServer) -> None:
    """With the rule that it breaks."""
    done = command(one_server, "create", "x", "--tenant", "a:b")
    assert done.returncode == 1
    assert "a tenant is 1 to 32 of" in done.stderr


def test_a_key_may_have_so_many_streams(one_server: RedisServer, tmp_path: Path) -> None:
    """One more is refused with a time to come again; a place is free once a client has left."""
    web = Web(one_server.url, tmp_path / "log", ASYNC_NODES_MAX_STREAMS="3")
    web.start()
    try:
        wait_until(lambda: web.get("/readyz").json["checks"]["store"]["ok"])
        path = f"/v1/tasks/{web.task()}/events"
        streams = []
        for _ in range(3):
            streams.append(web.connect())
            streams[-1].request("GET", path)
            assert streams[-1].getresponse().status == 200
        refused = web.get(path)
        assert refused.code == "too_many_streams"
        assert int(refused.headers["retry-after"]) >= 1
        assert web.get("/v1/events").code == "too_many_streams"
        assert web.ask("HEAD", path).status == 200
        task = path.removesuffix("/events")
        assert web.get(task).status == 200

        streams.pop().close()
        assert web.cancel(task.rpartition("/")[2]).status == 200  # what is sent finds out who left

        again = f"/v1/tasks/{web.task()}/events"

        def is_let_in() -> bool:
            with closing(web.connect()) as one:
                one.request("GET", again)
                return one.getresponse().status == 200

        wait_until(is_let_in)
        for stream in streams:
            stream.close()
    finally:
        assert web.stop() == 0, web.log
