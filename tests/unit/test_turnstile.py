"""How many streams a caller may have open."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.access.streams.turnstile import Turnstile
from async_nodes.core.errors import AsyncNodesError

WHO = ("default", "")


def test_one_more_than_allowed_is_refused() -> None:
    """With the time after which to come again; another caller is another matter."""
    turnstile = Turnstile(2)
    leave = [turnstile.enter(WHO) for _ in range(2)]
    with pytest.raises(AsyncNodesError) as caught:
        turnstile.enter(WHO)
    assert (caught.value.code, caught.value.status) == ("too_many_streams", 429)
    assert caught.value.retry_after
    turnstile.enter(("default", "another"))
    leave[0]()
    turnstile.enter(WHO)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), max_size=60))
def test_what_has_left_is_counted_no_more(steps: list[tuple[bool, int]]) -> None:
    """Whatever comes and goes, and however often an end is told."""
    turnstile, most = Turnstile(3), 3
    inside: list[tuple[int, object]] = []
    for enters, who in steps:
        if enters:
            here = sum(1 for other, _ in inside if other == who)
            try:
                inside.append((who, turnstile.enter(("t", str(who)))))
                assert here < most
            except AsyncNodesError:
                assert here == most
        elif inside:
            _, leave = inside.pop(0)
            leave()  # type: ignore[operator]
            leave()  # type: ignore[operator]
        assert turnstile.open_streams() == len(inside)
