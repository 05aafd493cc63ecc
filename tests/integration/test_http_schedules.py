"""The routes of schedules over a real server: what is kept, shown, changed, refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from async_nodes.storage.schedules import Schedules
from tests.integration.web import Answer, Hand, Web, _web_log, _web_process, hand, web

__all__ = ["_web_log", "_web_process", "hand", "web"]
NIGHTLY = {
    "name": "nightly",
    "cron": "30 2 * * *",
    "task": {"node": "echo", "inputs": {"a": 1}, "tags": ["x"], "priority": "high"},
}


def send(web: Web, method: str, path: str, members: Any = None, **headers: str) -> Answer:
    raw = None if members is None else json.dumps(members).encode()
    if raw is not None:
        headers["content_type"] = "application/json"
    return web.ask(method, f"/v1/schedules{path}", raw, **headers)


def create(web: Web, **members: Any) -> Answer:
    return send(web, "POST", "", {**NIGHTLY, **members})


def in_utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_a_schedule_is_created_and_shown(web: Web) -> None:
    """Every member, with its defaults, the time zone of the settings, and the ticks to come."""
    answer = create(web)

    assert answer.status == 201, answer
    assert answer.headers["location"] == "/v1/schedules/nightly"
    assert answer.headers["etag"] == '"1"'
    made = answer.json
    assert made["task"] == NIGHTLY["task"]
    assert (made["timezone"], made["cron"], made["every"]) == ("Asia/Shanghai", "30 2 * * *", None)
    assert (made["missed"], made["overlap"], made["jitter"]) == ("once", "allow", 0)
    assert (made["paused"], made["reason"], made["version"]) == (False, None, 1)
    assert (made["last_at"], made["last_task_id"]) == (None, None)
    assert made["counts"] == {"fired": 0, "missed": 0, "skipped": 0}
    ticks = [in_utc(text) for text in made["preview"]]
    assert made["next_at"] == made["preview"][0]
    assert [(tick.hour, tick.minute) for tick in ticks] == [(18, 30)] * 5
    assert {b - a for a, b in pairwise(ticks)} == {timedelta(days=1)}
    assert send(web, "GET", "/nightly").json == made


def test_a_name_is_there_once(web: Web) -> None:
    """Another schedule of that name is refused; an unknown name is 404."""
    create(web)
    again = create(web)

    assert (again.status, again.code) == (409, "schedule_exists")
    for path in ("/other", "/a%20b"):
        missing = send(web, "GET", path)
        assert (missing.status, missing.code) == (404, "schedule_not_found")
    for method, path in (("DELETE", "/other"), ("POST", "/other/pause"), ("POST", "/other/resume"),
                         ("POST", "/other/trigger")):  # fmt: skip
        assert send(web, method, path).code == "schedule_not_found"
    changed = {"every": 5, "task": {"node": "echo"}}
    assert send(web, "PUT", "/other", changed).code == "schedule_not_found"


def test_schedules_are_listed_by_name(web: Web) -> None:
    """Page by page; a cursor is ours or refused."""
    for name in ("b", "a", "c"):
        create(web, name=name)

    first = send(web, "GET", "?limit=2").json
    rest = send(web, "GET", f"?limit=2&cursor={first['next']}").json

    assert [one["name"] for one in first["schedules"]] == ["a", "b"]
    assert [one["name"] for one in rest["schedules"]] == ["c"]
    assert rest["next"] is None
    assert "preview" not in first["schedules"][0]
    for query in ("?cursor=%21", "?limit=0", "?limit=201", "?page=1"):
        assert send(web, "GET", query).code == "bad_request"


def test_a_schedule_is_replaced_by_whoever_has_read_it(web: Web) -> None:
    """If-Match stops a change over another one; what the schedule has done stays."""
    create(web)
    changed = {"every": 60, "task": {"node": "echo"}, "overlap": "skip"}

    done = send(web, "PUT", "/nightly", changed, if_match='"1"')
    assert (done.status, done.headers["etag"]) == (200, '"2"')
    assert (done.json["every"], done.json["cron"], done.json["overlap"]) == (60, None, "skip")

    late = send(web, "PUT", "/nightly", changed, if_match='"1"')
    assert (late.status, late.code, late.json["version"]) == (412, "version_mismatch", 2)
    assert send(web, "DELETE", "/nightly", if_match='"1"').code == "version_mismatch"
    assert send(web, "PUT", "/nightly", changed, if_match="*").status == 200
    assert send(web, "PUT", "/nightly", changed, if_match="2").code == "bad_request"
    wrong = send(web, "PUT", "/nightly", {**changed, "name": "x"})
    assert (wrong.code, wrong.json["pointer"]) == ("invalid_request", "/name")


def test_a_replacement_keeps_the_tick_that_is_waited_for(web: Web, hand: Hand) -> None:
    """As long as the ticks are the same; another pace begins anew."""
    create(web, cron=None, every=3600)
    before = send(web, "GET", "/nightly").json

    same = send(web, "PUT", "/nightly", {"every": 3600, "task": {"node": "echo"}}).json
    other = send(web, "PUT", "/nightly", {"every": 7200, "task": {"node": "echo"}}).json

    assert same["preview"] == before["preview"]
    assert in_utc(other["next_at"]) - in_utc(before["next_at"]) >= timedelta(hours=1)
    found, _ = Schedules(hand.store).read("default", "nightly")
    assert found is not None
    score = hand.store.link.call("ZSCORE", hand.store.keys.due, "s:default:nightly")
    assert int(score) == found.next_ms


def test_a_pause_lasts_until_it_is_resumed(web: Web) -> None:
    """Paused: nothing comes. Resumed: it goes on from now. Either twice is as good as once."""
    create(web, paused=True)
    paused = send(web, "GET", "/nightly").json
    assert (paused["paused"], paused["next_at"], paused["preview"]) == (True, None, [])

    resumed = [send(web, "POST", "/nightly/resume", {}) for _ in range(2)]
    assert [answer.status for answer in resumed] == [200, 200]
    assert resumed[0].json == resumed[1].json
    assert len(resumed[0].json["preview"]) == 5

    again = [send(web, "POST", "/nightly/pause") for _ in range(2)]
    assert again[0].json == again[1].json
    assert (again[0].json["paused"], again[0].json["version"]) == (True, 3)
    assert send(web, "POST", "/nightly/pause", {"for": 5}).code == "invalid_request"


def test_a_deleted_schedule_is_gone(web: Web) -> None:
    """204 once, then 404; its name is free."""
    create(web)
    assert send(web, "DELETE", "/nightly", if_match='"1"').status == 204
    assert send(web, "DELETE", "/nightly").status == 404
    assert create(web).status == 201


def test_a_trigger_sends_the_task_now(web: Web, hand: Hand) -> None:
    """202 like a submit, with the tag; the schedule tells of it, and its next tick stays."""
    next_at = create(web, paused=True).json["next_at"]

    answer = send(web, "POST", "/nightly/trigger", {}, idempotency_key="k")
    again = send(web, "POST", "/nightly/trigger", idempotency_key="k")

    assert answer.status == again.status == 202
    task_id = answer.json["task_id"]
    assert (again.json["task_id"], again.headers["idempotency-replayed"]) == (task_id, "true")
    record = web.get(f"/v1/tasks/{task_id}").json
    assert record["tags"] == ["x", "schedule:nightly"]
    assert record["priority"] == 0
    assert record["trace_id"] is not None
    shown = send(web, "GET", "/nightly").json
    assert shown["last_task_id"] == task_id
    assert shown["last_at"] == record["metadata"]["scheduled_at"]
    assert shown["links"]["last_task"] == f"/v1/tasks/{task_id}"
    assert (shown["next_at"], shown["counts"]["fired"]) == (next_at, 1)
    hand.done(task_id)
    tagged = web.get("/v1/tasks?tag=schedule:nightly").json["tasks"]
    assert [one["task_id"] for one in tagged] == [task_id]


@pytest.mark.parametrize(
    ("members", "pointer", "code"),
    [
        ({"name": "a b"}, "/name", "invalid_request"),
        ({"name": "a" * 56}, "/name", "invalid_request"),
        ({"name": None}, "/name", "invalid_request"),
        ({"cron": "61 * * * *"}, "/cron", "invalid_request"),
        ({"cron": None}, "/cron", "invalid_request"),
        ({"cron": 5}, "/cron", "invalid_request"),
        ({"cron": "@reboot"}, "/cron", "invalid_request"),
        ({"every": 5}, "/cron", "invalid_request"),
        ({"cron": "0 0 30 2 *"}, "/cron", "invalid_request"),
        ({"cron": None, "every": 0.9}, "/every", "invalid_request"),
        ({"cron": None, "every": True}, "/every", "invalid_request"),
        ({"cron": None, "every": 10**9}, "/every", "invalid_request"),
        ({"cron": None, "every": 5, "jitter": 6}, "/jitter", "invalid_request"),
        ({"jitter": -1}, "/jitter", "invalid_request"),
        ({"jitter": 3601}, "/jitter", "invalid_request"),
        ({"timezone": "Asia/Shanghia"}, "/timezone", "invalid_request"),
        ({"timezone": "../../etc/passwd"}, "/timezone", "invalid_request"),
        ({"timezone": "Asia"}, "/timezone", "invalid_request"),
        ({"timezone": None}, "/timezone", "invalid_request"),
        ({"missed": "twice"}, "/missed", "invalid_request"),
        ({"overlap": []}, "/overlap", "invalid_request"),
        ({"paused": 1}, "/paused", "invalid_request"),
        ({"starts_at": "2026-01-01T00:00:00"}, "/starts_at", "invalid_request"),
        ({"starts_at": "9999-01-01T00:00:00Z"}, "/starts_at", "invalid_request"),
        ({"ends_at": "2020-01-01T00:00:00Z"}, "/cron", "invalid_request"),
        (
            {"starts_at": "2030-01-02T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"},
            "/ends_at",
            "invalid_request",
        ),
        ({"crom": "* * * * *"}, "/crom", "invalid_request"),
        ({"task": None}, "/task", "invalid_request"),
        ({"task": {}}, "/task/node", "invalid_request"),
        ({"task": {"node": "eco"}}, "/task/node", "unknown_node"),
        ({"task": {"node": "http.request", "inputs": {}}}, "/task/inputs/url", "invalid_inputs"),
        ({"task": {"node": "echo", "nod": 1}}, "/task/nod", "invalid_request"),
        (
            {"task": {"node": "echo", "deadline": "2030-01-01T00:00:00Z"}},
            "/task/deadline",
            "invalid_request",
        ),
        ({"task": {"node": "echo", "tags": ["t"] * 32}}, "/task/tags", "invalid_request"),
        (
            {"task": {"node": "echo", "metadata": {"m": "x" * 16_350}}},
            "/task/metadata",
            "invalid_request",
        ),
    ],
)
def test_what_is_wrong_is_named(web: Web, members: dict[str, Any], pointer: str, code: str) -> None:
    """422 with the place, and nothing is kept."""
    answer = create(web, **members)

    assert (answer.status, answer.code) == (422, code), answer
    assert answer.json["pointer"] == pointer
    assert send(web, "GET", "").json["schedules"] == []


def test_every_fault_is_told_at_once(web: Web) -> None:
    """Those of the schedule and those of its task, each with its place in the whole."""
    answer = create(
        web,
        missed="never",
        cron="x",
        task={"node": "http.request", "inputs": {"method": 5}, "ttl": 0},
    )

    places = {fault["pointer"] for fault in answer.json["errors"]}
    assert places >= {"/missed", "/cron", "/task/ttl", "/task/inputs/url", "/task/inputs/method"}


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"", "not_json"), (b"[]", "invalid_request"), (b'{"a":1,"a":2}', "not_json")],
)
def test_what_is_no_object_is_refused(web: Web, raw: bytes, code: str) -> None:
    """As with a submit."""
    answer = web.ask("POST", "/v1/schedules", raw, content_type="application/json")
    assert answer.code == code
    typed = web.ask("POST", "/v1/schedules", b"{}", content_type="text/plain")
    assert typed.code == "not_acceptable_type"


def test_secret_inputs_are_kept_and_not_shown(web: Web, hand: Hand) -> None:
    """A replacement that leaves [redacted] where it was keeps the secret."""
    inputs = {
        "base_url": "http://127.0.0.1:1/v1",
        "model": "m",
        "messages": [],
        "api_key": "s3cret",
    }
    task = {
        "node": "llm.chat",
        "inputs": {**inputs, "messages": [{"role": "user", "content": "x"}]},
    }
    made = create(web, task=task)
    assert made.status == 201, made
    assert made.json["task"]["inputs"]["api_key"] == "[redacted]"
    assert b"s3cret" not in send(web, "GET", "").body

    shown = send(web, "GET", "/nightly").json["task"]
    again = send(web, "PUT", "/nightly", {"every": 5, "task": shown})

    assert again.status == 200, again
    assert again.json["task"]["inputs"]["api_key"] == "[redacted]"
    found, _ = Schedules(hand.store).read("default", "nightly")
    assert found is not None
    assert json.loads(found.task)["inputs"]["api_key"] == "s3cret"
    fresh = create(web, name="other", task=shown)
    assert fresh.status == 201  # nothing to keep: it is taken as it stands
    elsewhere = {"every": 5, "task": {"node": "echo", "inputs": {"api_key": "[redacted]"}}}
    assert send(web, "PUT", "/nightly", elsewhere).status == 200


def test_why_it_was_paused_is_shown(web: Web, hand: Hand) -> None:
    """Until somebody resumes it."""
    create(web)
    reason = b'{"code":"unknown_node","detail":"there is no node"}'
    Schedules(hand.store).pause("default", "nightly", reason=reason)

    shown = send(web, "GET", "/nightly").json

    assert shown["paused"]
    assert shown["reason"] == {"code": "unknown_node", "detail": "there is no node"}
    assert send(web, "POST", "/nightly/resume").json["reason"] is None
