"""POST /v1/tasks/batch over real HTTP: every item by itself, limits, keys, languages."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from async_nodes.core.ids import well_formed
from tests.integration.web import Answer, Hand, Web, _web_log, _web_process, ask, hand, web

__all__ = ["_web_log", "_web_process", "hand", "web"]

LARGEST = 16 << 20


def send(web: Web, raw: bytes, **headers: str) -> Answer:
    return web.ask(
        "POST", "/v1/tasks/batch", raw, **{"content_type": "application/json", **headers}
    )


def batch(web: Web, *items: Any, **headers: str) -> Answer:
    return send(web, json.dumps({"tasks": items}).encode(), **headers)


def test_every_item_is_answered_by_itself(web: Web) -> None:
    """What is wrong with one is told in its place and harms no other."""
    echo = {"node": "echo", "inputs": {"n": 1.50}}
    raw = b'{"tasks": [%s, {"node": "ecoh"}, {"node": "echo", "node": "echo"}, 7, %s]}' % (
        json.dumps(echo).encode(), json.dumps({**echo, "priority": 11, "ttl": 0}).encode(),
    )  # fmt: skip
    answer = send(web, raw)

    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.json["accepted"], answer.json["refused"]) == (1, 4)
    first, *refused = answer.json["results"]
    link = f"/v1/tasks/{first['task_id']}"
    assert first == {
        "index": 0,
        "status": 202,
        "task_id": first["task_id"],
        "state": "Pending",
        "version": 1,
        "created_at": first["created_at"],
        "links": {
            "self": link,
            **{name: f"{link}/{name}" for name in ("events", "result", "logs", "cancel")},
        },
        "replayed": False,
    }
    assert web.get(link).json["inputs"] == {"n": 1.5}
    assert [(one["index"], one["status"], one["error"]["code"]) for one in refused] == [
        (1, 422, "unknown_node"),
        (2, 400, "not_json"),
        (3, 422, "invalid_request"),
        (4, 422, "invalid_request"),
    ]
    assert all(one["error"]["status"] == one["status"] for one in refused)
    assert [one["error"]["pointer"] for one in refused] == [
        "/tasks/1/node", "/tasks/2/node", "/tasks/3", "/tasks/4/priority",
    ]  # fmt: skip
    places = [fault["pointer"] for fault in refused[3]["error"]["errors"]]
    assert places == ["/tasks/4/priority", "/tasks/4/ttl"]


def test_a_thousand_at_once(web: Web) -> None:
    """The most that a batch may have, all accepted, in their order, no id twice."""
    answer = batch(web, *({"node": "echo", "inputs": {"n": n}} for n in range(1000)))

    assert (answer.json["accepted"], answer.json["refused"]) == (1000, 0)
    ids = [one["task_id"] for one in answer.json["results"]]
    assert len(set(filter(well_formed, ids))) == 1000
    assert [one["index"] for one in answer.json["results"]] == list(range(1000))
    assert web.get(f"/v1/tasks/{ids[617]}").json["inputs"] == {"n": 617}


def test_a_batch_sent_again_makes_no_second_task(web: Web, hand: Hand) -> None:
    """With a key for the whole, or keys of the items, also within one batch."""
    items = [{"node": "echo"}, {"node": "echo", "idempotency_key": "mine"}, {"node": "echo"}]
    first = batch(web, *items, idempotency_key="whole").json
    hand.done(first["results"][0]["task_id"])
    second = batch(web, *items, idempotency_key="whole").json

    ids = [one["task_id"] for one in first["results"]]
    assert [one["task_id"] for one in second["results"]] == ids
    assert [one["replayed"] for one in second["results"]] == [True] * 3
    assert [one["state"] for one in second["results"]] == ["Succeeded", "Pending", "Pending"]
    assert [one["version"] for one in second["results"]] == [3, 1, 1]
    one = batch(web, items[1], items[1], {**items[1], "inputs": {"x": 1}}).json
    assert [result["status"] for result in one["results"]] == [202, 202, 422]
    assert one["results"][2]["error"]["code"] == "idempotency_mismatch"
    assert {result["task_id"] for result in one["results"][:2]} == {ids[1]}


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"", 400, "not_json"),
        (b'{"tasks": [{"node": "echo"}', 400, "not_json"),
        (b'{"tasks": [{"node": "echo", "inputs": {"x": NaN}}]}', 400, "not_json"),
        (b'{"tasks": [{"node": "echo"}], "tasks": []}', 400, "not_json"),
        (b'{"tasks": [' + b"[" * 100_000 + b"]}", 400, "not_json"),
        (b'{"tasks": [' + b"0," * 1_100_000 + b"0]}", 400, "not_json"),
        (b"[]", 422, "invalid_request"),
        (b'{"tasks": {}}', 422, "invalid_request"),
        (b'{"tasks": []}', 422, "invalid_request"),
        (b'{"taks": []}', 422, "invalid_request"),
        (b'{"tasks": [' + b"{}," * 1000 + b"{}]}", 422, "invalid_request"),
    ],
    ids=[
        "empty",
        "cut",
        "NaN",
        "twice",
        "deep",
        "wide",
        "list",
        "object",
        "none",
        "typo",
        "crowd",
    ],
)
def test_what_is_no_batch_is_refused_as_a_whole(
    web: Web, raw: bytes, status: int, code: str
) -> None:
    """Nothing of it is accepted."""
    answer = send(web, raw)
    assert (answer.status, answer.code) == (status, code)


def test_a_typo_is_told(web: Web) -> None:
    """The member that may have been meant is named."""
    assert "did you mean 'tasks'?" in send(web, b'{"taks": []}').json["detail"]


def test_large_batches(web: Web) -> None:
    """16 MiB are taken, with content-length and chunked, in items of at most 1 MiB; no more."""
    item = {"node": "echo", "inputs": {"text": "x" * (950 << 10)}}
    raw = json.dumps({"tasks": [item] * 17}).encode()
    padded = raw + b" " * (LARGEST - len(raw))
    for body in (padded, [padded]):  # http.client sends a list chunked
        answer = send(web, body)  # type: ignore[arg-type]
        assert answer.status == 200, answer
        assert answer.json["accepted"] == 17
        with_more = body + b" " if isinstance(body, bytes) else [*body, b" "]
        answer = send(web, with_more)  # type: ignore[arg-type]
        assert (answer.status, answer.code) == (413, "body_too_large")
    big = {"node": "echo", "inputs": {"text": "x" * (1 << 20)}}
    one, other = batch(web, big, {"node": "echo"}).json["results"]
    assert (one["status"], one["error"]["code"], other["status"]) == (413, "body_too_large", 202)
    # The limit is raised for this address alone.
    single = web.ask("POST", "/v1/tasks", raw[: 3 << 19], content_type="application/json")
    assert (single.status, single.code) == (413, "body_too_large")


def test_a_batch_is_json_and_a_post(web: Web) -> None:
    """As every other submit: by its type, its method and its key."""
    assert send(web, b"{}", content_type="text/plain").status == 415
    assert web.get("/v1/tasks/batch").status == 405
    assert batch(web, {"node": "echo"}, idempotency_key="é").status == 400


def test_problems_of_items_speak_the_client_s_language(web: Web) -> None:
    """Title and hint, as in problems of their own."""
    found = batch(web, {"node": "ecoh"}, accept_language="zh").json["results"][0]["error"]
    assert found["title"] != batch(web, {"node": "ecoh"}).json["results"][0]["error"]["title"]


def test_others_are_answered_while_a_batch_is_read(web: Web) -> None:
    """However much there is to read in each of its items."""
    task_id = web.task()
    costly = b'{"node":"echo","inputs":{"n":[%s1]}}' % (b"1," * 10_000)
    body = b'{"tasks":[%s]}' % b",".join([costly] * 60)
    took: list[float] = []

    def submit() -> None:
        began = time.monotonic()
        assert send(web, body).json["refused"] == 60
        took.append(time.monotonic() - began)

    sender = threading.Thread(target=submit)
    sender.start()
    slowest = 0.0
    while sender.is_alive():
        began = time.monotonic()
        assert web.get(f"/v1/tasks/{task_id}").status == 200
        slowest = max(slowest, time.monotonic() - began)
    sender.join()
    assert slowest < took[0] / 3


def test_a_connection_serves_on_after_a_batch(web: Web) -> None:
    """A refused batch is read to its end where that is short."""
    connection = web.connect()
    try:
        kind = {"content_type": "application/json"}
        assert ask(connection, "POST", "/v1/tasks/batch", b"[]", **kind).status == 422
        assert ask(connection, "GET", "/healthz").status == 200
    finally:
        connection.close()
