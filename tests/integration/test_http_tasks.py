"""The routes of tasks over real HTTP: submit, read, wait, cancel."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from async_nodes.core.ids import IdSource, well_formed
from async_nodes.core.states import EventType
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, wait_until, web

__all__ = ["_web_log", "_web_process", "hand", "web"]

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
MISSING = "t_00000000000000000000000000"


def later(seconds: float, act: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_submit_is_accepted_at_once(web: Web) -> None:
    """202 with the id, where to look, when, and the trace that was sent."""
    answer = web.submit(
        {"node": "echo", "inputs": {"é": [1.50]}, "tags": ["a"], "metadata": {"k": 1}},
        traceparent=TRACEPARENT, x_request_id="req-1",
    )  # fmt: skip
    assert answer.status == 202
    body = answer.json
    assert well_formed(body["task_id"])
    link = f"/v1/tasks/{body['task_id']}"
    assert body == {
        "task_id": body["task_id"],
        "state": "Pending",
        "version": 1,
        "created_at": body["created_at"],
        "links": {
            "self": link,
            **{name: f"{link}/{name}" for name in ("events", "result", "logs", "cancel")},
        },
    }
    assert answer.headers["location"] == link
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.headers["traceparent"] == TRACEPARENT
    assert answer.headers["x-request-id"] == "req-1"
    assert answer.headers["cache-control"] == "no-store"
    record = web.get(link).json
    assert (record["inputs"], record["tags"], record["metadata"]) == ({"é": [1.5]}, ["a"], {"k": 1})
    assert record["trace_id"] == TRACEPARENT[3:35]
    assert record["created_at"] == body["created_at"]


def test_a_record_has_every_member_from_the_start(web: Web, hand: Hand) -> None:
    """The members are the documented ones, before, during and after the run."""
    wanted = set(web.get("/openapi.json").json["components"]["schemas"]["Task"]["required"])
    task_id = web.task(ttl=60)
    assert set(web.get(f"/v1/tasks/{task_id}").json) == wanted
    claim = hand.claim(task_id)
    running = web.get(f"/v1/tasks/{task_id}").json
    assert set(running) == wanted
    assert (running["state"], running["attempt"], running["version"]) == ("Running", 1, 2)
    hand.finish(claim, output=b'{"n":1.0}')
    ended = web.get(f"/v1/tasks/{task_id}").json
    assert set(ended) == wanted
    assert (ended["state"], ended["output"], ended["output_bytes"]) == ("Succeeded", {"n": 1.0}, 9)
    assert ended["attempts"][0]["outcome"] == "succeeded"


def test_a_failed_task_is_read_like_any_other(web: Web, hand: Hand) -> None:
    """Reading went well: 200, with the error in the record."""
    task_id = web.task()
    hand.finish(hand.claim(task_id), EventType.ERROR)
    answer = web.get(f"/v1/tasks/{task_id}")
    assert answer.status == 200
    assert (answer.json["state"], answer.json["error"]["code"]) == ("Failed", "node_failed")


def test_an_unchanged_record_is_not_sent_again(web: Web, hand: Hand) -> None:
    """The ETag is the version; with it the answer is 304 until something changes."""
    task_id = web.task()
    first = web.get(f"/v1/tasks/{task_id}")
    assert first.headers["etag"] == '"1"'
    same = web.get(f"/v1/tasks/{task_id}", if_none_match='W/"9", "1"')
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", '"1"')
    hand.done(task_id)
    changed = web.get(f"/v1/tasks/{task_id}", if_none_match='"1"')
    assert (changed.status, changed.headers["etag"]) == (200, '"3"')


def test_a_poll_can_wait_for_the_end(web: Web, hand: Hand) -> None:
    """With a wait the answer comes when the task has ended, not before and not much later."""
    task_id = web.task()
    claim = hand.claim(task_id)
    timer = later(0.4, lambda: hand.finish(claim))
    started = time.monotonic()
    answer = web.get(f"/v1/tasks/{task_id}", prefer="respond-async, wait=600")
    assert answer.json["state"] == "Succeeded"
    assert answer.headers["preference-applied"] == "wait=30"
    assert 0.35 < time.monotonic() - started < 2
    timer.join()


def test_a_poll_can_wait_for_a_change(web: Web, hand: Hand) -> None:
    """With the ETag of what is known, a wait ends with the next change; else it is 304."""
    task_id = web.task()
    timer = later(0.3, lambda: hand.claim(task_id))
    answer = web.get(f"/v1/tasks/{task_id}?wait=10", if_none_match='"1"')
    assert (answer.status, answer.json["state"]) == (200, "Running")
    timer.join()
    started = time.monotonic()
    assert web.get(f"/v1/tasks/{task_id}?wait=0.3", if_none_match='"2"').status == 304
    assert time.monotonic() - started >= 0.3
    assert web.get(f"/v1/tasks/{task_id}?wait=10", if_none_match='"1"').status == 200


def test_a_wait_that_runs_out_shows_what_there_is(web: Web) -> None:
    """The record as it is, 200."""
    task_id = web.task()
    started = time.monotonic()
    answer = web.get(f"/v1/tasks/{task_id}?wait=0.3")
    assert (answer.status, answer.json["state"]) == (200, "Pending")
    assert 0.3 <= time.monotonic() - started < 1.5


def test_a_submit_can_wait_for_the_end(web: Web, hand: Hand) -> None:
    """200 with the record when the task ends in time, 202 when it does not."""

    def work() -> None:
        index = hand.store.keys.index("default")
        wait_until(lambda: hand.store.link.call("ZCARD", index))
        (task_id,) = hand.store.link.call("ZRANGE", index, 0, -1)
        hand.done(task_id.decode())

    worker = threading.Thread(target=work)
    worker.start()
    answer = web.submit(prefer="wait=10")
    worker.join()
    assert (answer.status, answer.json["state"]) == (200, "Succeeded")
    assert answer.headers["preference-applied"] == "wait=10"
    assert answer.headers["location"] == answer.json["links"]["self"]
    late = web.submit(query="?wait=0.2")
    assert (late.status, late.json["state"]) == (202, "Pending")
    assert late.headers["preference-applied"] == "wait=0.2"


def test_the_state_object_of_the_specification(web: Web, hand: Hand) -> None:
    """``format=node_state`` gives id, status and the time of the last change."""
    task_id = web.task()
    path = f"/v1/tasks/{task_id}?format=node_state"
    record = web.get(f"/v1/tasks/{task_id}").json
    shown = web.get(path)
    assert shown.json == {"id": task_id, "status": "Pending", "timestamp": record["created_at"]}
    assert shown.headers["etag"] == '"1"'
    hand.done(task_id)
    ended = web.get(f"/v1/tasks/{task_id}").json
    assert web.get(path).json["timestamp"] == ended["finished_at"]
    assert web.get(f"/v1/tasks/{task_id}?format=xml").code == "bad_request"


def test_the_events_of_a_task(web: Web, hand: Hand) -> None:
    """Both addresses stream the same events, up to the record, and end by themselves."""
    task_id = web.task()
    hand.done(task_id)
    streams = [
        web.get(f"/v1/tasks/{task_id}/events"),
        web.get(f"/v1/tasks/{task_id}", accept="text/event-stream"),
    ]
    assert streams[0].body == streams[1].body
    text = streams[0].body.decode()
    assert [line for line in text.splitlines() if line.startswith("event:")] == [
        "event: state", "event: state", "event: done",
    ]  # fmt: skip
    done = json.loads(text.rpartition("data: ")[2])
    assert done == web.get(f"/v1/tasks/{task_id}").json
    assert streams[0].headers["content-type"] == "text/event-stream; charset=utf-8"
    assert web.get(f"/v1/tasks/{task_id}/events?after=3-0").status == 204
    assert web.get(f"/v1/tasks/{task_id}/events?after=x").code == "bad_request"


def test_inputs_with_line_breaks_stay_one_event(web: Web, hand: Hand) -> None:
    """However the client laid out its JSON, the record is one line of data."""
    raw = b'{"node":\n"echo",\r\n"inputs": {\n  "a":\r 1\n}}'
    task_id = web.ask("POST", "/v1/tasks", raw, content_type="application/json").json["task_id"]
    hand.done(task_id)
    text = web.get(f"/v1/tasks/{task_id}/events").body.decode()
    assert json.loads(text.rpartition("data: ")[2])["inputs"] == {"a": 1}


# -- Idempotency-Key -------------------------------------------------------------------------------


def test_one_key_makes_one_task(web: Web, hand: Hand) -> None:
    """Twenty requests at once with one key: one id twenty times, nineteen marked as replayed."""
    with ThreadPoolExecutor(20) as pool:
        answers = list(
            pool.map(lambda _: web.submit({"node": "echo"}, idempotency_key="k-1"), range(20))
        )
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["task_id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 19
    assert hand.store.depths()["io.default"] == 1
    quoted = web.submit({"priority": "default", "node": "echo"}, idempotency_key='"k-1"')
    assert quoted.json["task_id"] == answers[0].json["task_id"]


def test_a_key_with_another_body_is_refused(web: Web) -> None:
    """422 that names the first task; another key is another task."""
    first = web.submit({"node": "echo"}, idempotency_key="k").json["task_id"]
    other = web.submit({"node": "echo", "inputs": {"x": 1}}, idempotency_key="k")
    assert (other.status, other.code) == (422, "idempotency_mismatch")
    assert other.json["task_id"] == first
    assert web.submit({"node": "echo"}, idempotency_key="k2").json["task_id"] != first


def test_a_replay_shows_the_task_as_it_is_now(web: Web, hand: Hand) -> None:
    """The state and version of the first task, and its record when the client waits."""
    task_id = web.submit(idempotency_key="k").json["task_id"]
    hand.done(task_id)
    again = web.submit(idempotency_key="k")
    assert (again.status, again.json["state"], again.json["version"]) == (202, "Succeeded", 3)
    waited = web.submit(query="?wait=5", idempotency_key="k")
    assert (waited.status, waited.json["task_id"]) == (200, task_id)
    assert waited.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("key", ["", '"open', "a b", "x" * 256])
def test_a_malformed_key_makes_no_task(web: Web, hand: Hand, key: str) -> None:
    """400, and nothing in the list."""
    answer = web.submit(idempotency_key=key)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert hand.store.depths()["io.default"] == 0


# -- cancel ----------------------------------------------------------------------------------------


def test_a_waiting_task_is_cancelled_at_once(web: Web) -> None:
    """200, and a second cancel finds it ended: 409 with its state."""
    task_id = web.task()
    answer = web.cancel(task_id)
    assert answer.status == 200
    assert answer.json == {
        "task_id": task_id, "state": "Cancelled", "version": 2, "stopped": True,
    }  # fmt: skip
    again = web.cancel(task_id)
    assert (again.status, again.code) == (409, "task_finished")
    assert (again.json["state"], again.json["version"]) == ("Cancelled", 2)


def test_a_running_task_is_asked_to_stop(web: Web, hand: Hand) -> None:
    """202 at once; with a wait 200 as soon as the worker has stopped."""
    task_id = web.task()
    claim = hand.claim(task_id)
    asked = web.cancel(task_id)
    assert (asked.status, asked.json["state"], asked.json["stopped"]) == (202, "Running", False)
    assert web.get(f"/v1/tasks/{task_id}").json["reason"] == "cancelling"
    timer = later(0.3, lambda: hand.finish(claim, EventType.CANCEL))
    answer = web.cancel(task_id, "?wait=10")
    assert (answer.status, answer.json["state"], answer.json["stopped"]) == (200, "Cancelled", True)
    timer.join()


def test_a_cancel_may_come_too_late(web: Web, hand: Hand) -> None:
    """A task that succeeds in spite of it is reported as ended."""
    task_id = web.task()
    claim = hand.claim(task_id)
    timer = later(0.3, lambda: hand.finish(claim))
    answer = web.cancel(task_id, prefer="wait=10")
    assert (answer.status, answer.code, answer.json["state"]) == (409, "task_finished", "Succeeded")
    timer.join()


def test_a_cancel_takes_no_fields(web: Web) -> None:
    """No body or an empty object; anything else is refused and nothing is cancelled."""
    task_id = web.task()
    path = f"/v1/tasks/{task_id}/cancel"
    assert web.ask("POST", path, b"{}").code == "not_acceptable_type"
    refused = web.ask("POST", path, b'{"a":1}', content_type="application/json")
    assert refused.code == "invalid_request"
    assert web.ask("POST", path, b"{", content_type="application/json").code == "not_json"
    assert web.ask("POST", path, b"{}", content_type="application/json").status == 200


# -- ids -------------------------------------------------------------------------------------------


def paths(task_id: str) -> list[tuple[str, str]]:
    base = f"/v1/tasks/{task_id}"
    return [
        ("GET", base),
        ("GET", f"{base}?wait=5"),
        ("GET", f"{base}/events"),
        ("POST", f"{base}/cancel"),
    ]


def test_an_id_that_was_never_issued_is_not_found(web: Web) -> None:
    """404 from every route, at once, as a problem; never an endless stream."""
    for method, path in paths(MISSING):
        started = time.monotonic()
        answer = web.ask(method, path)
        assert (answer.status, answer.code) == (404, "task_not_found"), path
        assert time.monotonic() - started < 1


def test_an_id_of_ours_without_a_record_is_gone(web: Web, hand: Hand) -> None:
    """410 from every route: the id carries our mark."""
    gone = web.task()
    hand.store.link.call("DEL", hand.store.keys.task(gone))
    for method, path in paths(gone):
        answer = web.ask(method, path)
        assert (answer.status, answer.code) == (410, "task_gone"), path
        assert answer.json["task_id"] == gone
    forged = IdSource(b"another secret..").make(int(time.time() * 1000))
    assert web.get(f"/v1/tasks/{forged}").code == "task_not_found"


def test_another_tenants_task_is_not_found(web: Web, hand: Hand) -> None:
    """A record of another tenant is as unknown as one that is not there."""
    task_id = web.task()
    key = hand.store.keys.task(task_id)
    raw = hand.store.link.call("GET", key)
    hand.store.link.call("SET", key, raw.replace(b"default".ljust(32), b"another".ljust(32), 1))
    for method, path in paths(task_id):
        assert web.ask(method, path).code == "task_not_found", path


@pytest.mark.parametrize(
    "path",
    [
        "/v1/tasks/../x",
        "/v1/tasks/%00",
        "/v1/tasks/t_%0D%0AX-Evil:%201",
        "/v1/tasks/%1b[31mred",
        "/v1/tasks/" + "x" * 7_000,
        "/v1/tasks/" + "x" * 100_000,
        "/v1/tasks/t_0000000000000000000000000%0A",
        "/v1/tasks/%ff%fe",
        "/v1/tasks//",
        "/v1/tasks/" + MISSING.lower(),
        "/v1/tasks/" + MISSING + "/nothing",
    ],
)
def test_a_malformed_id_is_refused_without_echo(web: Web, path: str) -> None:
    """404 or 400 as a problem, one plain line in the log, nothing reflected raw."""
    before = len(web.log)
    answer = web.get(path)
    assert answer.status in (404, 400)
    assert answer.code in ("task_not_found", "not_found", "bad_request")
    assert answer.body.decode().isprintable()
    assert len(answer.body) < 2_000
    assert "x-evil" not in answer.headers
    wait_until(lambda: len(web.log) > before)
    lines = web.log[before:].splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert len(lines[0]) < 600
