"""Priorities: what is taken for one, and the lists they lead to."""

from __future__ import annotations

import pytest

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.priority import LISTS, list_of, parse


@pytest.mark.parametrize(
    ("value", "expected"),
    [*((n, n) for n in range(10)), ("high", 0), ("default", 5), ("low", 9)],
)
def test_numbers_and_words_are_priorities(value: object, expected: int) -> None:
    """0 to 9 stand for themselves, the three words for a number."""
    assert parse(value) == expected


@pytest.mark.parametrize("value", [-1, 10, 5.5, 10.0, True, False, None, "5", "High", "", [], {}])
def test_anything_else_is_refused(value: object) -> None:
    """The error says what is allowed and shows what was sent."""
    with pytest.raises(AsyncNodesError, match="most urgent") as refused:
        parse(value)

    assert (refused.value.code, refused.value.pointer) == ("invalid_request", "/priority")
    assert repr(value) in refused.value.detail


def test_priorities_lead_to_three_lists_of_each_kind() -> None:
    """0-2 are high, 3-6 default, 7-9 low, and every list is reached."""
    names = [list_of("io", priority) for priority in range(10)]

    assert names == ["io.high"] * 3 + ["io.default"] * 4 + ["io.low"] * 3
    assert {list_of(kind, n) for kind in ("io", "cpu") for n in range(10)} == set(LISTS)
