"""What followers with one filter share: chosen once, joined once, bounded, nothing told twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.streams import feed_reel
from async_nodes.access.streams.feed_reel import Filter, Reel, Told
from async_nodes.storage.feed import KEPT_MOST, Kept

NODES, STATES, TAGS = ("a", "b", "c"), ("Pending", "Running", "Failed"), ("x", "y", "z")
some = st.frozensets


def told(number: int, node: str = "a", state: str = "Running", tags: tuple[str, ...] = ()) -> Told:
    shown = json.dumps({"task_id": "t", "node": node, "state": state, "tags": tags})
    return Told.of((1000, number), shown.encode())


@given(
    some(st.sampled_from(NODES)),
    some(st.sampled_from(STATES)),
    some(st.sampled_from(TAGS)),
    st.tuples(st.sampled_from(NODES), st.sampled_from(STATES), st.lists(st.sampled_from(TAGS))),
)
def test_a_filter_takes_any_node_any_state_and_all_tags(
    nodes: frozenset[str],
    states: frozenset[str],
    tags: frozenset[str],
    change: tuple[str, str, list[str]],
) -> None:
    """What is not asked for does not decide; a repeated node or state means any of them."""
    one = told(1, change[0], change[1], tuple(change[2]))
    wanted = (
        (not nodes or one.node in nodes)
        and (not states or one.state in states)
        and all(tag in one.tags for tag in tags)
    )
    assert Filter(nodes, states, tags).passing([one]) == ([one] if wanted else [])


@given(st.lists(st.integers(1, 4), max_size=20), st.integers(0, 80))
def test_a_reader_gets_what_follows_its_place(sizes: list[int], place: int) -> None:
    """From any place in a reel the rest comes once and in order."""
    reel = Reel(Filter(nodes=frozenset({"a"})), (1000, 0))
    number, passing = 0, []
    for size in sizes:
        several = [told(number + n, node="ab"[(number + n) % 2]) for n in range(1, size + 1)]
        number += size
        passing += [one for one in several if one.node == "a"]
        reel.tell(several, (1000, number))

    found = reel.after((1000, place))

    assert found is not None
    assert b"".join(found) == b"".join(p.frame for p in passing if p.place > (1000, place))
    assert reel.place == (1000, number)


def test_who_has_fallen_behind_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reel is bounded in bytes; a reader before its start must look into the store."""
    monkeypatch.setattr(feed_reel, "REEL_BYTES", 5 * len(told(1).frame))
    reel = Reel(Filter(), (1000, 0))
    for number in range(1, 10):
        reel.tell([told(number)], (1000, number))

    assert reel.after((1000, 3)) is None
    assert len(reel.after((1000, 4)) or []) == 5


def test_a_cut_leaves_nobody_with_half() -> None:
    """After a gap only readers past it are served from the reel."""
    reel = Reel(Filter(), (1000, 0))
    reel.tell([told(1)], (1000, 1))
    reel.cut((2000, 0))

    assert reel.after((1000, 1)) is None
    assert reel.after((2000, 0)) == []


def test_only_what_passes_wakes_the_readers() -> None:
    """A change that nobody of a reel asked for moves its place and nothing else."""
    reel = Reel(Filter(nodes=frozenset({"b"})), (1000, 0))
    fresh = reel.fresh
    reel.tell([told(1)], (1000, 1))
    assert (reel.place, fresh.is_set()) == ((1000, 1), False)
    reel.tell([told(2, node="b")], (1000, 2))
    assert fresh.is_set()
    assert not reel.fresh.is_set()


NOW = 10_000_000


@pytest.mark.parametrize("place", [(NOW, 0), (NOW - 1_000, 9), (NOW - 500_000, 0)])
def test_a_reader_who_was_away_for_a_moment_misses_nothing(place: tuple[int, int]) -> None:
    """What is young is kept, whether or not anything has happened since."""
    for first in (None, (NOW - 400_000, 0), (NOW, 0)):
        count = 0 if first is None else 10
        assert Kept(NOW - 900_000, NOW, count, first, first).has_all_after(place)


@pytest.mark.parametrize(
    "place",
    [
        (NOW - 900_001, 0),  # from before everything was noted
        (NOW - 600_000, 0),  # the stream may have gone meanwhile
        (NOW + 1, 0),  # from the future of another store
    ],
)
def test_a_reader_who_may_have_missed_something_is_told(place: tuple[int, int]) -> None:
    """Where it cannot be known that all is there, it does not count as all."""
    assert not Kept(NOW - 900_000, NOW, 10, (NOW - 500_000, 0), (NOW, 0)).has_all_after(place)


def test_a_full_stream_has_all_after_its_first() -> None:
    """At its bound the stream may have lost what came before its first change."""
    kept = Kept(NOW - 900_000, NOW, KEPT_MOST, (NOW - 600_000, 3), (NOW, 0))
    assert kept.has_all_after((NOW - 600_000, 3))
    assert not kept.has_all_after((NOW - 600_000, 2))
