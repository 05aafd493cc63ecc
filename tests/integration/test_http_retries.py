"""Retry and delete over real HTTP: the same again, edits, secrets, keys, what is gone when."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from async_nodes.core.ids import IdSource
from async_nodes.core.states import EventType
from tests.integration.web import Answer, Hand, Web, _web_log, _web_process, hand, wait_until, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

DAY = 86_400_000
NASTY = (
    '{"text": "é\\u2028日本 👩‍👩‍👧", "n": 1.50, "deep": [[[{"a": -0.0, "b": 1e2}]]], "zero": null}'
)


def retry(web: Web, task_id: str, edits: Any = None, query: str = "", **headers: str) -> Answer:
    raw = None if edits is None else json.dumps(edits).encode()
    kind = {} if raw is None else {"content_type": "application/json"}
    return web.ask("POST", f"/v1/tasks/{task_id}/retry{query}", raw, **{**kind, **headers})


def delete(web: Web, task_id: str) -> Answer:
    return web.ask("DELETE", f"/v1/tasks/{task_id}")


def failed(web: Web, hand: Hand, **members: Any) -> str:
    task_id = str(web.submit({"node": "echo", **members}).json["task_id"])
    hand.finish(hand.claim(task_id), EventType.ERROR)
    return task_id


def test_a_retry_is_a_new_task_that_does_the_same(web: Web, hand: Hand) -> None:
    """202 like a submit; all that was asked is asked again, and the tasks are linked."""
    asked = {
        "inputs": {"a": [1, None]}, "priority": 1, "timeout_ms": 1234, "ttl": 60, "tags": ["x"],
        "metadata": {"k": 1.5}, "retry_policy": {"max_attempts": 2, "jitter": False},
    }  # fmt: skip
    first = failed(web, hand, **asked)
    answer = retry(web, first)

    assert answer.status == 202
    again = answer.json["task_id"]
    assert again != first
    assert answer.json["retry_of"] == first
    assert answer.headers["location"] == answer.json["links"]["self"] == f"/v1/tasks/{again}"
    old, new = (web.get(f"/v1/tasks/{one}").json for one in (first, again))
    same = ("node", "inputs", "priority", "timeout_ms", "tags", "metadata", "deadline")
    assert {name: new[name] for name in same} == {name: old[name] for name in same}
    assert (old["retry_of"], new["retry_of"], new["state"]) == (None, first, "Pending")
    claims = [hand.store.read(one) for one in (first, again)]
    assert claims[0] is not None
    assert claims[1] is not None
    private = [json.loads(one.private) for one in claims if one is not None]
    assert private[0]["retry"] == private[1]["retry"]
    assert claims[0].ttl == claims[1].ttl == 60_000


def test_a_retry_of_a_retry_names_the_one_before(web: Web, hand: Hand) -> None:
    """Succeeded and cancelled tasks may be run again too."""
    first = web.task()
    web.cancel(first)
    second = retry(web, first).json["task_id"]
    hand.done(second)
    third = retry(web, second).json["task_id"]
    assert web.get(f"/v1/tasks/{third}").json["retry_of"] == second


@pytest.mark.parametrize("size", [0, 200_000])
def test_inputs_are_the_very_bytes_that_were_sent(web: Web, hand: Hand, size: int) -> None:
    """Unicode, nesting, spelling of numbers, size: the worker gets them as the first time."""
    inputs = NASTY[:-1] + f', "long": "{"x" * size}"}}'
    raw = f'{{"node": "echo", "inputs": {inputs}}}'.encode()
    first = web.ask("POST", "/v1/tasks", raw, content_type="application/json").json["task_id"]
    claim = hand.claim(first)
    assert claim.inputs == inputs.encode()
    hand.finish(claim, EventType.ERROR)

    again = retry(web, first).json["task_id"]
    assert hand.claim(again).inputs == inputs.encode()
    edited = retry(web, first, {"priority": 9}).json["task_id"]
    assert hand.claim(edited).inputs == inputs.encode()


def test_secrets_go_over_without_being_shown(web: Web, hand: Hand) -> None:
    """Unchanged, and where the edited inputs say [redacted]; a new one replaces the old."""
    inputs = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "api_key": "s3cret",
              "messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    first = failed(web, hand, node="llm.chat", inputs=inputs)
    shown = web.get(f"/v1/tasks/{first}").json["inputs"]
    assert shown["api_key"] == "[redacted]"
    cases = [(None, "s3cret", "m"), ({**shown, "model": "n"}, "s3cret", "n"),
             ({**shown, "api_key": "new"}, "new", "m")]  # fmt: skip
    for edited, key, model in cases:
        answer = retry(web, first, None if edited is None else {"inputs": edited})
        again = answer.json["task_id"]
        record = web.get(f"/v1/tasks/{again}")
        assert b"s3cret" not in record.body
        assert record.json["inputs"]["api_key"] == "[redacted]"
        given = json.loads(hand.claim(again).private)["inputs"]
        assert (given["api_key"], given["model"]) == (key, model)
    without = failed(
        web, hand, node="llm.chat", inputs={k: v for k, v in inputs.items() if k != "api_key"}
    )
    answer = retry(web, without, {"inputs": shown})
    assert (answer.status, answer.code) == (422, "invalid_inputs")
    assert answer.json["pointer"] == "/inputs/api_key"


def test_edits_replace_what_they_name(web: Web, hand: Hand) -> None:
    """Everything but the node, each by the rules of a submit."""
    first = failed(web, hand, inputs={"a": 1, "b": 2}, tags=["old"])
    edits = {
        "inputs": {"c": 1.50}, "priority": "high", "timeout_ms": 77,
        "deadline": "2100-01-01T00:00Z",
        "retry_policy": {"max_attempts": 9}, "delay": 60, "ttl": 99, "tags": [],
        "metadata": {"n": 1},
    }  # fmt: skip
    record = web.get(retry(web, first, edits).headers["location"]).json
    assert record["inputs"] == {"c": 1.5}
    assert (record["priority"], record["timeout_ms"], record["reason"]) == (0, 77, "delayed")
    assert (record["tags"], record["metadata"]) == ([], {"n": 1})
    assert record["deadline"] == "2100-01-01T00:00:00.000Z"
    document = hand.store.read(record["task_id"])
    assert document is not None
    assert (document.ttl, json.loads(document.private)["retry"]["max_attempts"]) == (99_000, 9)


@pytest.mark.parametrize(
    ("edits", "status", "pointers"),
    [
        ({"node": "echo"}, 422, ["/node"]),
        ({"inptus": {}, "priority": 11}, 422, ["/inptus", "/priority"]),
        ({"inputs": 7}, 422, ["/inputs"]),
        ({"deadline": "2000-01-01T00:00:00Z", "tags": [""]}, 422, ["/tags/0", "/deadline"]),
        ([], 422, [""]),
    ],
)
def test_wrong_edits_are_told(
    web: Web, hand: Hand, edits: Any, status: int, pointers: list[str]
) -> None:
    """All of them, each with its place; nothing is accepted."""
    answer = retry(web, failed(web, hand), edits)
    assert answer.status == status
    found = answer.json.get("errors", [{"pointer": answer.json["pointer"]}])
    assert [fault["pointer"] for fault in found] == pointers


@pytest.mark.parametrize("name", ["nod", "nodes", "xyz"])
def test_only_what_can_be_changed_is_suggested(web: Web, hand: Hand, name: str) -> None:
    """A retry keeps its node."""
    answer = retry(web, failed(web, hand), {name: "echo"})
    assert answer.json["pointer"] == f"/{name}"
    assert "'node'" not in answer.json["detail"]
    assert " node," not in answer.json["detail"]


def test_only_what_has_ended_is_retried(web: Web, hand: Hand) -> None:
    """409 with Retry-After before; 404 for what is none; the body is JSON or nothing."""
    task_id = web.task()
    for _ in range(2):
        answer = retry(web, task_id)
        assert (answer.status, answer.code) == (409, "task_not_finished")
        assert "retry-after" in answer.headers
        if web.get(f"/v1/tasks/{task_id}").json["state"] == "Pending":
            hand.claim(task_id)
    assert retry(web, "t_00000000000000000000000000").code == "task_not_found"
    ended = failed(web, hand)
    assert retry(web, ended, {}, content_type="text/plain").status == 415
    assert web.ask(
        "POST", f"/v1/tasks/{ended}/retry", b"{", content_type="application/json"
    ).code == "not_json"  # fmt: skip


def test_a_retry_sent_again_makes_no_third_task(web: Web, hand: Hand) -> None:
    """The key stands for this retry, and for nothing else."""
    first, other = failed(web, hand), failed(web, hand)
    one = retry(web, first, {}, idempotency_key="k")
    two = retry(web, first, None, idempotency_key="k")
    assert one.json["task_id"] == two.json["task_id"]
    assert two.headers["idempotency-replayed"] == "true"
    assert retry(web, other, {}, idempotency_key="k").code == "idempotency_mismatch"
    assert web.submit({"node": "echo"}, idempotency_key="k").code == "idempotency_mismatch"


def test_a_retry_can_be_waited_for(web: Web, hand: Hand) -> None:
    """200 with the record once the new task has ended."""
    first = failed(web, hand)
    key = {"idempotency_key": "w"}
    hand.done(retry(web, first, {}, **key).json["task_id"])
    answer = retry(web, first, {}, "?wait=5", **key)
    assert (answer.status, answer.json["state"], answer.json["retry_of"]) == (
        200, "Succeeded", first,
    )  # fmt: skip


# -- delete, and what is gone ----------------------------------------------------------------------


def test_a_deleted_task_is_gone(web: Web, hand: Hand) -> None:
    """204 without a body; from then on 410, for reads, events, results, retries and cancels."""
    task_id = web.task()
    hand.finish(hand.claim(task_id), output=b'"%s"' % (b"x" * 10_000))
    answer = delete(web, task_id)
    assert (answer.status, answer.body) == (204, b"")
    path = f"/v1/tasks/{task_id}"
    gone = [
        web.get(path), web.get(f"{path}/events"), web.get(f"{path}/result"), delete(web, task_id),
        web.cancel(task_id), retry(web, task_id), web.get(path, accept="text/event-stream"),
        web.get(f"{path}?wait=1"),
    ]  # fmt: skip
    assert [(one.status, one.code) for one in gone] == [(410, "task_gone")] * len(gone)
    assert "24 h" in gone[0].json["detail"]
    assert web.get("/v1/tasks").json["tasks"] == []


def test_only_what_has_ended_is_deleted(web: Web, hand: Hand) -> None:
    """409 with Retry-After for a task that waits or runs; it goes on."""
    task_id = web.task()
    assert (delete(web, task_id).status, delete(web, task_id).code) == (409, "task_not_finished")
    claim = hand.claim(task_id)
    answer = delete(web, task_id)
    assert (answer.code, answer.json["state"]) == ("task_not_finished", "Running")
    assert "retry-after" in answer.headers
    hand.finish(claim)
    assert delete(web, task_id).status == 204


def test_an_expired_task_is_gone(web: Web, hand: Hand) -> None:
    """Once its ttl is over: 410, and its key makes a new task."""
    members = {"node": "echo", "ttl": 1}
    task_id = web.submit(members, idempotency_key="e").json["task_id"]
    hand.done(task_id)
    wait_until(lambda: web.get(f"/v1/tasks/{task_id}").status == 410)
    assert web.get(f"/v1/tasks/{task_id}").code == "task_gone"
    assert web.submit(members, idempotency_key="e").json["task_id"] != task_id


@pytest.mark.parametrize(
    ("age", "code"),
    [(0, "task_gone"), (2 * DAY - 60_000, "task_gone"), (2 * DAY + 1, "task_not_found")],
)
def test_long_gone_is_unknown(
    one_server: RedisServer, hand: Hand, tmp_path: Path, age: int, code: str
) -> None:
    """An id of ours without a record: 410 for two days, then 404; a foreign one is never ours."""
    now = int(time.time() * 1000)
    task_id = hand.store.id_source().make(now - age)
    own = Web(one_server.url, tmp_path / "log")
    own.start()
    try:
        wait_until(lambda: own.get("/readyz").json["checks"]["store"]["ok"])
        answers = [own.get(f"/v1/tasks/{task_id}{path}") for path in ("", "/events", "/result")]
        answers += [own.cancel(task_id), retry(own, task_id), delete(own, task_id)]
        assert [answer.code for answer in answers] == [code] * len(answers)
        foreign = IdSource(b"x" * 16).make(now)
        assert own.get(f"/v1/tasks/{foreign}").code == "task_not_found"
    finally:
        own.stop()
