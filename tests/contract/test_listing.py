"""Finding many tasks in a real store: order, filters, cursors, bounds, what is shown."""

from __future__ import annotations

import contextlib
import json
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import IdSource
from async_nodes.core.ports import Ending
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage.layout import SCHEMAS
from async_nodes.storage.listing import Filters, Listing, Place
from tests.contract.real_store import IDS, KEYS, WORKER, RealStore, open_store, submission, tail_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import RedisServer


@pytest.fixture
def real(redis_server: RedisServer) -> Iterator[RealStore]:
    opened = open_store(redis_server)
    opened.register(WORKER)
    yield opened
    opened.link.close()


@pytest.fixture
def listing(real: RealStore) -> Listing:
    return Listing(real.store)


def put(
    real: RealStore,
    made_ms: int = 0,
    *,
    tenant: str = "default",
    ids: IdSource = IDS,
    **shown: Any,
) -> str:
    """Submit a task and let the index say that it was made at some time."""
    list_name = shown.pop("list_name", "io.default")
    tail, inputs_at = tail_of(b'{"x":1}', **shown)
    task_id = ids.make(made_ms or 1)
    real.store.submit(
        submission(task_id, tail=tail, inputs_at=inputs_at, tenant=tenant, list_name=list_name)
    )
    if made_ms:
        real.link.call("ZADD", KEYS.index(tenant), made_ms, task_id)
    return task_id


def end(
    real: RealStore, task_id: str, event: EventType = EventType.COMPLETE, **ending: Any
) -> None:
    claim = real.start(task_id)
    assert real.finish(task_id, claim.fence, Ending(event=event, **ending)).applied


def walked(listing: Listing, filters: Filters | None = None, **bounds: int) -> list[str]:
    """Return everything that passes, page by page."""
    found: list[str] = []
    page = listing.find("default", filters, **bounds)
    for _ in range(1000):
        found += page.ids
        if page.next is None:
            return found
        page = listing.find("default", filters, page.next, **bounds)
    raise AssertionError("the walk does not end")


def test_the_newest_come_first(real: RealStore, listing: Listing) -> None:
    """By time of creation, downwards, and only the tenant's own."""
    ids = [put(real, at) for at in (300, 100, 200)]
    put(real, 400, tenant="other")

    assert walked(listing) == [ids[0], ids[2], ids[1]]
    assert listing.find("nobody").ids == ()
    assert listing.find("default").next is None


def test_a_page_ends_where_it_was_told(real: RealStore, listing: Listing) -> None:
    """`most` bounds what is found; the last page has no next."""
    ids = [put(real, at) for at in range(100, 105)][::-1]

    first = listing.find("default", most=2)
    second = listing.find("default", None, str(first.next), most=2)
    third = listing.find("default", None, str(second.next), most=2)
    assert [list(page.ids) for page in (first, second, third)] == [ids[:2], ids[2:4], ids[4:]]
    assert third.next is None
    assert listing.find("default", most=5).next is None


def test_every_filter_filters(real: RealStore, listing: Listing) -> None:
    """State, list and node: any of those named; tags: all of them; times: strictly between."""
    a = put(real, 100, node="a", tags=["x", "日本"], list_name="cpu.low")
    b = put(real, 200, node="b", tags=["x", 'q"],"metadata":{'])
    c = put(real, 300, node="ab")
    end(real, b)
    end(real, c, EventType.ERROR)
    cases: list[tuple[Filters, list[str]]] = [
        (Filters(states=(NodeState.PENDING,)), [a]),
        (Filters(states=(NodeState.SUCCEEDED, NodeState.FAILED)), [c, b]),
        (Filters(states=(NodeState.RUNNING,)), []),
        (Filters(lists=("cpu.low", "io.high")), [a]),
        (Filters(nodes=("a",)), [a]),
        (Filters(nodes=("ab", "b")), [c, b]),
        (Filters(tags=("x",)), [b, a]),
        (Filters(tags=("日本", "x")), [a]),
        (Filters(tags=('q"],"metadata":{',)), [b]),
        (Filters(tags=("x", "y")), []),
        (Filters(after_ms=100), [c, b]),
        (Filters(before_ms=300), [b, a]),
        (Filters(after_ms=100, before_ms=300), [b]),
        (Filters(after_ms=100, before_ms=300, nodes=("a",)), []),
        (Filters(states=(NodeState.SUCCEEDED,), nodes=("b",), tags=("x",)), [b]),
    ]

    for filters, expected in cases:
        assert walked(listing, filters) == expected, filters


def test_looking_is_bounded(real: RealStore, listing: Listing) -> None:
    """A filter that fits little gives short pages with a next, and finds all the same."""
    ids = [put(real, at, node="rare" if at % 7 == 0 else "echo") for at in range(1, 40)]
    rare = [task_id for at, task_id in enumerate(ids, 1) if at % 7 == 0][::-1]

    page = listing.find("default", Filters(nodes=("rare",)), look=3)
    assert page.ids == ()
    assert page.next is not None
    assert walked(listing, Filters(nodes=("rare",)), look=3) == rare


def test_more_tasks_of_one_millisecond_than_a_call_looks_at(
    real: RealStore, listing: Listing
) -> None:
    """A batch gives many tasks one time of creation; none of them is left out or told twice."""
    for number in range(650):
        real.link.call("ZADD", KEYS.index("default"), 500, IDS.make(number))
    ids = [put(real, 500) for _ in range(5)] + [put(real, 499), put(real, 501)]

    found = walked(listing, most=2, look=100)
    assert sorted(found) == sorted(ids)
    assert (found[0], found[-1]) == (ids[6], ids[5])


def test_what_has_expired_is_passed_over(real: RealStore, listing: Listing) -> None:
    """The index may know ids whose record is gone."""
    ids = [put(real, at) for at in (1, 2, 3)]
    real.link.call("DEL", KEYS.task(ids[1]))

    assert walked(listing) == [ids[2], ids[0]]
    shown = listing.summaries("default", ids)
    assert [one["task_id"] for one in shown] == [ids[0], ids[2]]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    scores=st.lists(st.integers(1, 6), min_size=1, max_size=25),
    most=st.integers(1, 6),
    data=st.data(),
)
def test_a_cursor_is_good_whatever_happens_meanwhile(
    one_server: RedisServer, scores: list[int], most: int, data: st.DataObject
) -> None:
    """Tasks that are there all the time are told exactly once, in order."""
    one_server.empty()
    real = open_store(one_server)
    with contextlib.closing(real.link):
        listing = Listing(real.store)
        # The same in every run of an example, and in no order.
        numbers = count(1)
        ids = IdSource(b"a secret of the tests", lambda bits: next(numbers) * 7_919**3 % 2**bits)
        stay, found = {put(real, score, ids=ids): score for score in scores}, []
        page = listing.find("default", most=most)
        while True:
            found += page.places
            if page.next is None:
                break
            for place in data.draw(st.lists(st.sampled_from(found), max_size=3)):
                real.link.call("ZREM", KEYS.index("default"), place.task_id)
            for score in data.draw(st.lists(st.integers(1, 7), max_size=3)):
                real.link.call("ZADD", KEYS.index("default"), score, ids.make(score))
            page = listing.find("default", None, page.next, most=most)

    assert [(place.score, place.task_id) for place in found] == sorted(
        ((score, task_id) for task_id, score in stay.items()), reverse=True
    )


@pytest.mark.parametrize("cursor", ["x", "é", "=", "MQ", "LTEudA", "a" * 5000, "MS50Xzw"])
def test_a_cursor_that_is_none_is_refused(listing: Listing, cursor: str) -> None:
    """Whatever it is, it does not reach the store."""
    with pytest.raises(AsyncNodesError) as caught:
        listing.find("default", None, cursor)
    assert caught.value.code == "bad_request"


def test_a_cursor_is_a_place() -> None:
    """It can be put into an address as it is, and gives back what it was made from."""
    place = Place(1_796_072_400_123, IDS.make(1))

    assert Place.of(place.cursor) == place
    assert place.cursor.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_task_in_brief(redis_server: RedisServer, schema: int) -> None:
    """All of the record but inputs, output, attempts and metadata, however large those are."""
    real = open_store(redis_server, schema=schema)
    real.register(WORKER)
    listing = Listing(real.store)
    ids = [put(real, at, metadata={"links": {"self": '],"metadata":'}}) for at in (1, 2, 3, 4)]
    end(real, ids[0], output=b'"%s"' % (b"x" * 100_000), usage=b'{"output":1,"error":2}')
    end(real, ids[1], output=b'{"output":"%s"}' % ("é" * 3000).encode(), usage=b'{"output":7}')
    end(
        real, ids[2], EventType.ERROR,
        error=b'{"code":"node_failed","type":"E","message":",\\"output\\":","retryable":true}',
        progress=b'{"fraction":0.5,"text":",\\"error\\":null"}',
    )  # fmt: skip

    for task_id, shown in zip(ids, listing.summaries("default", ids), strict=True):
        whole = json.loads(real.store.read(task_id).json)
        for name in ("inputs", "output", "attempts", "metadata"):
            del whole[name]
        assert shown == whole
    assert listing.summaries("other", ids) == []
    real.link.close()


def test_what_has_changed_since_it_was_found_is_left_out(real: RealStore, listing: Listing) -> None:
    """Whoever asks for a state is shown tasks in that state alone, in brief and whole."""
    ids = [put(real, at) for at in range(1, 4)]
    waiting = (NodeState.PENDING,)
    found = listing.find("default", Filters(states=waiting)).ids
    assert set(found) == set(ids)
    end(real, ids[1])

    left = [task_id for task_id in found if task_id != ids[1]]
    assert [one["task_id"] for one in listing.summaries("default", found, states=waiting)] == left
    whole, looked = listing.documents("default", found, states=waiting)
    assert [json.loads(one)["task_id"] for one in whole] == left
    assert looked == 3
    assert len(listing.summaries("default", found)) == 3


def test_whole_documents_stop_at_their_bytes(real: RealStore, listing: Listing) -> None:
    """One more than the bytes allow, then no more; foreign and missing ones are left out."""
    ids = [put(real, at) for at in range(1, 31)]
    stranger = put(real, 50, tenant="other")
    missing = IDS.make(5)

    found, looked = listing.documents("default", [stranger, missing, *ids], most_bytes=2_000)
    assert looked == 2 + len(found)
    assert 1 < len(found) < 10
    assert [json.loads(one)["task_id"] for one in found] == ids[: len(found)]
    assert len(listing.documents("default", ids)[0]) == 30
