"""Whole numbers of JSON: how they are written does not matter."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.whole import whole, whole_within


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_is_one_in_either_spelling(number: int) -> None:
    """52, 52.0 and 5.2e1 are the same integer."""
    for text in (str(number), f"{number}.0", f"{number * 10}e-1"):
        found = whole(json.loads(text))
        assert found == number or abs(number) > 2**49
        assert type(found) is int or abs(number) > 2**49


@pytest.mark.parametrize("value", [1.5, True, False, None, "1", [], {}, float("inf")])
def test_nothing_else_is_one(value: object) -> None:
    """True is no number, and a text is no number either."""
    assert whole(value) is None


def test_bounds_are_included() -> None:
    """Both are allowed, and what lies outside is not."""
    assert [whole_within(value, 1, 3) for value in (0, 1.0, 3, 3.5, 4)] == [None, 1, 3, None, None]
    assert whole_within(10**30, 0) == 10**30
