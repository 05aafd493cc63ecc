"""Task ids: their shape, order, and how ours are told from others."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.ids import ALPHABET, PATTERN, IdSource, made_at, well_formed

SOURCE = IdSource(b"a secret of 16 b", random.Random(5).getrandbits)
moments = st.integers(0, 2**48 - 1)


@given(moments, st.integers(0, 1023))
def test_an_id_is_ours_and_says_when_it_was_made(now_ms: int, shard: int) -> None:
    """It has the published shape, our MAC, and the time in it."""
    task_id = SOURCE.make(now_ms, shard=shard)

    assert PATTERN.fullmatch(task_id)
    assert len(task_id) == 28
    assert well_formed(task_id)
    assert SOURCE.issued(task_id)
    assert made_at(task_id) == now_ms


@given(moments, st.integers(2, 27), st.sampled_from(ALPHABET))
def test_a_changed_character_makes_it_somebody_else_s(
    now_ms: int, place: int, character: str
) -> None:
    """The MAC covers every character: a change is noticed but once in a million."""
    source = IdSource(b"another 16 bytes", lambda _bits: 77)
    task_id = source.make(now_ms)
    changed = task_id[:place] + character + task_id[place + 1 :]

    expected = changed == task_id or source._mac(body_of(changed)) == mac_of(changed)
    assert source.issued(changed) == expected


def body_of(task_id: str) -> int:
    return number_of(task_id) >> 20


def mac_of(task_id: str) -> int:
    return number_of(task_id) & 0xFFFFF


def number_of(task_id: str) -> int:
    number = 0
    for character in task_id[2:]:
        number = number * 32 + ALPHABET.index(character)
    return number


def test_the_mac_depends_on_the_secret() -> None:
    """Of a thousand ids of one secret another knows next to none."""
    other = IdSource(b"another secret!!")
    known = [other.issued(SOURCE.make(now_ms)) for now_ms in range(1000)]

    assert sum(known) <= 1


def test_ids_of_one_millisecond_differ() -> None:
    """52 random bits keep ten thousand apart."""
    source = IdSource(b"a secret of 16 b")

    assert len({source.make(1) for _ in range(10_000)}) == 10_000


@given(st.lists(moments, min_size=2, max_size=20))
def test_ids_sort_by_time(times: list[int]) -> None:
    """Later ids are greater as text."""
    ids = [SOURCE.make(now_ms) for now_ms in sorted(set(times))]

    assert ids == sorted(ids)


@given(st.text(max_size=40))
def test_any_text_can_be_asked_about(text: str) -> None:
    """Nothing that a client may send as an id raises, and nothing made up is ours."""
    assert well_formed(text) == bool(PATTERN.fullmatch(text))
    assert not SOURCE.issued(text)


def test_letters_that_look_like_others_are_no_part_of_an_id() -> None:
    """I, L, O and U are not in the alphabet; neither is lower case."""
    good = SOURCE.make(1)

    for bad in "ILOUa\u0661\n":
        assert not well_formed(good[:-1] + bad)
    assert not well_formed(good + "\n")
