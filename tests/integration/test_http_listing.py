"""GET /v1/tasks over real HTTP: filters, pages, ids, what is shown, bad queries."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from async_nodes.core.states import EventType
from tests.integration.web import Answer, Hand, Web, _web_log, _web_process, hand, web

__all__ = ["_web_log", "_web_process", "hand", "web"]

MISSING = "t_00000000000000000000000000"
LEFT_OUT = ("inputs", "output", "attempts", "metadata")


def listed(web: Web, **query: Any) -> Answer:
    answer = web.get("/v1/tasks?" + urlencode(query, doseq=True))
    assert answer.status == 200, answer
    assert answer.headers["cache-control"] == "no-store"
    return answer


def ids(answer: Answer) -> list[str]:
    return [one["task_id"] for one in answer.json["tasks"]]


def test_tasks_are_shown_in_brief_newest_first(web: Web, hand: Hand) -> None:
    """A summary is the record without its large parts; with fields=full it is the record."""
    first, second = web.task(inputs={"a": 1}, metadata={"m": 1}), web.task(tags=["x"])
    hand.done(first)

    answer = listed(web)
    assert ids(answer) == [second, first]
    assert answer.json["next"] is None
    for shown in answer.json["tasks"]:
        record = web.get(f"/v1/tasks/{shown['task_id']}").json
        assert shown == {name: record[name] for name in record if name not in LEFT_OUT}
    full = listed(web, fields="full").json["tasks"]
    assert full == [web.get(f"/v1/tasks/{task_id}").json for task_id in (second, first)]


def test_filters_choose(web: Web, hand: Hand) -> None:
    """State and node: any of those named; tags: all; times: strictly between."""
    a, b = web.task(tags=["x", "日本"]), web.task(tags=["x"])
    chunk = web.submit({"node": "text.chunk", "inputs": {"text": "t"}}).json["task_id"]
    hand.done(a)
    hand.finish(hand.claim(b), EventType.ERROR)
    made = web.get(f"/v1/tasks/{b}").json["created_at"]

    assert ids(listed(web, state="Succeeded")) == [a]
    assert ids(listed(web, state=["Failed", "Pending"])) == [chunk, b]
    assert ids(listed(web, node="text.chunk")) == [chunk]
    assert ids(listed(web, node=["text.chunk", "echo"], tag="x")) == [b, a]
    assert ids(listed(web, tag=["x", "日本"])) == [a]
    assert a in ids(listed(web, created_before="2100-01-01T00:00:00Z"))
    assert ids(listed(web, created_after="2100-01-01T00:00:00+08:00")) == []
    assert b not in ids(listed(web, created_before=made))
    assert b not in ids(listed(web, created_after=made))
    # A part of a millisecond counts.
    assert b in ids(listed(web, created_before=made.replace("Z", "001Z")))
    assert b not in ids(listed(web, created_after=made.replace("Z", "001Z")))
    # A plus sign that the client did not encode.
    raw = web.get("/v1/tasks?created_after=2000-01-01T00:00:00+08:00&state=Failed")
    assert ids(raw) == [b]


def task_of_its_own_millisecond(web: Web) -> str:
    """Return a task that is older than the next one, whatever their ids."""
    time.sleep(0.002)
    return web.task()


def test_pages_follow_each_other(web: Web) -> None:
    """Every task once, whatever is submitted or deleted meanwhile."""
    made = [task_of_its_own_millisecond(web) for _ in range(7)][::-1]
    first = listed(web, limit=3)
    assert ids(first) == made[:3]
    web.task()
    assert web.cancel(made[2]).status == 200
    assert web.ask("DELETE", f"/v1/tasks/{made[2]}").status == 204
    second = listed(web, limit=3, cursor=first.json["next"])
    third = listed(web, limit=3, cursor=second.json["next"])
    assert [ids(second), ids(third)] == [made[3:6], made[6:]]
    assert third.json["next"] is None


def test_whole_records_come_in_pages_by_their_bytes(web: Web) -> None:
    """A page of large records ends early, with a next."""
    made = [web.task(inputs={"text": "x" * 1_000_000}) for _ in range(12)][::-1]
    first = listed(web, fields="full", limit=200)
    found = ids(first)
    assert 8 <= len(found) < 12
    rest = listed(web, fields="full", cursor=first.json["next"])
    assert [*found, *ids(rest)] == made
    some = listed(web, fields="full", ids=",".join(made))
    assert [*ids(some), *some.json["left"]] == made
    assert some.json["missing"] == []
    assert len(ids(listed(web, ids=",".join(made)))) == 12


def test_tasks_by_their_ids(web: Web) -> None:
    """In the order asked for, each once; those that are not there are named."""
    a, b = web.task(), web.task()
    answer = listed(web, ids=f"{b},{MISSING},{a},{b}")
    assert ids(answer) == [b, a]
    assert answer.json["missing"] == [MISSING]
    assert (answer.json["next"], answer.json["left"]) == (None, [])
    full = listed(web, ids=f"{a},{MISSING}", fields="full")
    assert (ids(full), full.json["missing"]) == ([a], [MISSING])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sate=Failed", "did you mean 'state'?"),
        ("state=failed", "did you mean 'Failed'?"),
        ("state=", "1 to 16 characters"),
        ("limit=0", "from 1 to 200"),
        ("limit=201", "from 1 to 200"),
        ("limit=x", "from 1 to 200"),
        ("cursor=x", "cursor is not one"),
        ("cursor=" + "A" * 200, "1 to 128 characters"),
        ("fields=all", "one of brief, full"),
        ("created_after=2026", "zone"),
        ("created_after=2026-01-01T00:00:00", "zone"),
        ("created_before=yesterday", "zone"),
        ("tag=" + "x" * 65, "1 to 64 characters"),
        ("&".join(["tag=x"] * 33), "32 times"),
        ("ids=", "1 to"),
        ("ids=x", "is not a task's id"),
        (f"ids={MISSING},", "is not a task's id"),
        (f"ids={MISSING}&state=Failed", "no place beside it"),
        ("node=%00&limit=1&limit=2", "limit may be given 1 times"),
    ],
)
def test_a_wrong_query_is_told(web: Web, query: str, said: str) -> None:
    """No filter is ignored."""
    answer = web.get(f"/v1/tasks?{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert said in answer.json["detail"]


def test_too_many_ids_are_refused(web: Web) -> None:
    """Two hundred are the most."""
    from async_nodes.core.ids import IdSource

    source = IdSource(b"a secret of the tests")
    many = [source.make(n) for n in range(201)]
    assert web.get("/v1/tasks?ids=" + ",".join(many)).status == 400
    assert listed(web, ids=",".join(many[:200])).json["missing"] == many[:200]


def test_odd_names_are_looked_for_as_they_are(web: Web) -> None:
    """Nothing in a filter means anything to the store."""
    web.task(tags=['"],"metadata":', "%d*"])
    for tag, count in (('"],"metadata":', 1), ("%d*", 1), ("%d", 0), ("*", 0)):
        assert len(ids(listed(web, tag=tag))) == count
    assert ids(web.get("/v1/tasks?node=" + quote("[a-z]*\0"))) == []


def test_head_and_bodies(web: Web) -> None:
    """HEAD tells of the same; the list of an empty store is empty JSON."""
    assert json.loads(web.get("/v1/tasks").body) == {"tasks": [], "next": None}
    answer = web.ask("HEAD", "/v1/tasks")
    assert (answer.status, answer.body) == (200, b"")
