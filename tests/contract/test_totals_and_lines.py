"""Usage counts once for every attempt; lines after the end; letters and the feed by time."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from async_nodes.core.ports import Claim, Ending
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage.dead_letters import DeadLetters
from async_nodes.storage.feed import Feed
from async_nodes.storage.listing import Place
from async_nodes.storage.usage import Usage
from tests.contract.real_store import IDS, KEYS, OTHER, WORKER, RealStore, open_store, submission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[RealStore]:
    made = open_store(redis_server)
    made.register(WORKER)
    made.register(OTHER)
    yield made
    made.link.close()


def started(store: RealStore, **fields: Any) -> Claim:
    task_id = str(store.submit(submission(IDS.make(store.now_ms()), **fields)).task_id)
    claim = store.start(task_id)
    assert isinstance(claim, Claim)
    return claim


def finish(store: RealStore, claim: Claim, event: EventType, usage: Any = None) -> bool:
    ending = Ending(
        event=event,
        delay_ms=1,
        output=b"1" if event is EventType.COMPLETE else b"null",
        error=b"null" if event is EventType.COMPLETE else b'{"code":"node_failed"}',
        usage=json.dumps(usage).encode(),
    )
    return bool(store.finish(claim.task_id, claim.fence, ending).applied)


def today(store: RealStore) -> dict[str, dict[str, int]]:
    """Return the totals around now: a test may run over midnight."""
    day = datetime.fromtimestamp(store.now_ms() / 1000, UTC).date()
    total: dict[str, dict[str, int]] = {}
    for by_node in Usage(store.store, "default").of([day - timedelta(days=1), day]):
        for node, counts in by_node.items():
            mine = total.setdefault(node, {})
            for name, count in counts.items():
                mine[name] = mine.get(name, 0) + count
    return total


# -- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", [EventType.COMPLETE, EventType.ERROR, EventType.TIMEOUT, EventType.RETRY,
              EventType.RELEASE, EventType.CANCEL]
)  # fmt: skip
def test_an_attempt_counts_once_however_it_ends(store: RealStore, event: EventType) -> None:
    """The end may be told again and again, before and after the next attempt began."""
    claim = started(store)
    for _ in range(3):
        assert finish(store, claim, event, {"tokens": 5})
    assert today(store) == {"echo": {"tokens": 5}}
    time.sleep(0.01)
    store.fire_timers()
    if event in (EventType.RETRY, EventType.RELEASE):
        second = store.start(claim.task_id)
        assert isinstance(second, Claim)
        assert not finish(store, claim, event, {"tokens": 5})
        assert today(store) == {"echo": {"tokens": 5}}
        assert finish(store, second, EventType.COMPLETE, {"tokens": 2})
        assert finish(store, second, EventType.COMPLETE, {"tokens": 2})
        assert today(store) == {"echo": {"tokens": 7}}


def test_who_has_lost_a_task_counts_nothing(store: RealStore) -> None:
    """A worker whose task runs elsewhere cannot add to the totals."""
    claim = started(store)
    store.lost(claim.task_id, worker=WORKER, dispatch=0, isolated=False)
    assert not finish(store, claim, EventType.COMPLETE, {"tokens": 5})
    assert today(store) == {}


@pytest.mark.parametrize(
    "usage",
    [None, [], "x", {"tokens": -1}, {"tokens": 0}, {"tokens": 2**53}, {"tokens": 10**300},
     {"tokens": "5"}, {"tokens": True}, {"tokens": None}, {"tokens": {"a": 1}}],
)  # fmt: skip
def test_what_is_no_count_is_not_added_up(store: RealStore, usage: Any) -> None:
    """Odd usage ends the attempt all the same and leaves the totals alone."""
    assert finish(store, started(store), EventType.COMPLETE, usage)
    assert today(store) == {}


def test_a_total_that_is_full_loses_neither_the_end_nor_the_others(store: RealStore) -> None:
    """A count that would overflow is left out; all else is as ever."""
    finish(store, started(store), EventType.COMPLETE, {"full": 1, "a": 1, "z": 1})
    (key,) = store.link.call("KEYS", KEYS.base + "u:*")
    store.link.call("HSET", key, "echo/full", 2**63 - 2)
    claim = started(store)

    assert finish(store, claim, EventType.COMPLETE, {"a": 5, "full": 5, "z": 5})
    assert store.read(claim.task_id).state is NodeState.SUCCEEDED
    assert today(store) == {"echo": {"full": 2**63 - 2, "a": 6, "z": 6}}


def test_names_may_be_anything(store: RealStore) -> None:
    """A slash, a space, another script: the node is what stands before the first slash."""
    assert finish(store, started(store), EventType.COMPLETE, {"a/b c": 1, "令牌": 2, "": 3})
    assert today(store) == {"echo": {"a/b c": 1, "令牌": 2, "": 3}}


def test_totals_are_kept_for_four_hundred_days(store: RealStore) -> None:
    """Each day for itself."""
    finish(store, started(store), EventType.COMPLETE, {"tokens": 1})
    (key,) = store.link.call("KEYS", KEYS.base + "u:*")
    assert 399 * 86_400_000 < store.link.call("PTTL", key) <= 400 * 86_400_000


# -- log lines after the end -----------------------------------------------------------------------


def test_a_clean_up_adds_lines_under_the_fence_of_the_end(store: RealStore) -> None:
    """They are numbered on, live as long as the record, and no other fence may write them."""
    claim = started(store, ttl_ms=60_000)
    assert store.log(claim.task_id, claim.fence, b'{"text":"body"}', number=1).applied
    finish(store, claim, EventType.ERROR)
    document = store.read(claim.task_id)
    fence = document.fence.decode()
    for _ in range(2):
        assert store.log(claim.task_id, fence, b'{"text":"clean"}', number=2).applied
    assert not store.log(claim.task_id, "x" * 16, b"{}", number=3).applied

    entries = store.log_entries(claim.task_id)
    assert [json.loads(entry.json)["text"] for entry in entries] == ["body", "clean"]
    assert 0 < store.link.call("PTTL", KEYS.log(claim.task_id)) <= 60_000


def test_a_clean_up_may_be_the_first_to_log(store: RealStore) -> None:
    """A log that begins after the end goes with the record as well."""
    claim = started(store, ttl_ms=60_000)
    finish(store, claim, EventType.ERROR)
    fence = store.read(claim.task_id).fence.decode()
    assert store.log(claim.task_id, fence, b"{}", number=1).applied
    assert 0 < store.link.call("PTTL", KEYS.log(claim.task_id)) <= 60_000


def test_a_task_that_waits_takes_no_line(store: RealStore) -> None:
    """Between two attempts nobody has the right to write."""
    claim = started(store)
    finish(store, claim, EventType.RETRY)
    assert not store.log(claim.task_id, claim.fence, b"{}", number=1).applied


# -- dead letters ----------------------------------------------------------------------------------


def test_letters_are_walked_in_both_directions(store: RealStore) -> None:
    """By time and, within a millisecond, by id; from any place on."""
    letters = DeadLetters(store.store, "default")
    places = [Place(1_000 + n // 3, IDS.make(1_700_000_000_000 + n)) for n in range(250)]
    for place in places:
        store.link.call("ZADD", KEYS.dead("default"), place.score, place.task_id)
    places.sort()
    assert letters.count() == 250
    assert letters.oldest(most=250) == places
    assert letters.newest(most=250) == places[::-1]
    for at in (0, 1, 2, 101, 249):
        assert letters.oldest(places[at], most=7) == places[at + 1 : at + 8]
        assert letters.newest(places[at], most=7) == places[max(at - 7, 0) : at][::-1]
    assert letters.find(places[5].task_id) == places[5]
    assert letters.drop(places[5].task_id, "none") == 1
    assert letters.find(places[5].task_id) is None


def test_many_letters_of_one_moment_are_walked(store: RealStore) -> None:
    """More than a page of one millisecond loses none."""
    letters = DeadLetters(store.store, "default")
    ids = sorted(IDS.make(1_700_000_000_000 + n) for n in range(230))
    store.link.call("ZADD", KEYS.dead("default"), *(x for one in ids for x in (1_000, one)))
    found: list[str] = []
    last = None
    while page := letters.oldest(last, most=40):
        found += [place.task_id for place in page]
        last = page[-1]
    assert found == ids


# -- the feed --------------------------------------------------------------------------------------


def test_changes_are_noted_from_the_first_word_on(store: RealStore) -> None:
    """Since the moment that the word tells, and for as long as it is renewed."""
    feed = Feed(store.store, "default")
    finish(store, started(store), EventType.COMPLETE)
    first = feed.follow()
    assert (first.count, first.first, first.last) == (0, None, None)
    assert first.end == (first.now - 1, 0)
    assert first.since == first.now - 1
    assert first.has_all_after(first.end)
    claim = started(store)
    finish(store, claim, EventType.COMPLETE)
    second = feed.follow()
    assert (second.since, second.count) == (first.since, 3)
    changes = feed.changes(first.end)
    assert [json.loads(change.json)["state"] for change in changes] == [
        "Pending", "Running", "Succeeded",
    ]  # fmt: skip
    assert second.end == changes[-1].place
    assert feed.changes(changes[0].place) == changes[1:]
    assert feed.changes(first.end, most=1) == changes[:1]


def test_a_word_that_ran_out_is_another_word(store: RealStore) -> None:
    """Whoever followed before cannot know what happened in between."""
    feed = Feed(store.store, "default")
    first = feed.follow()
    store.link.call("PEXPIRE", KEYS.feed, 1)
    time.sleep(0.01)
    second = feed.follow()
    assert second.since > first.since
    assert not second.has_all_after(first.end)
