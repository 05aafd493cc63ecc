"""What a toxic decides about a piece, and how one is written."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.testing.faults import (
    Bandwidth,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Stall,
    Stream,
    Toxic,
    parse_toxic,
)
from async_nodes.testing.faults.toxics import Drawn

seconds = st.floats(0, 10, allow_nan=False)


@given(latency=seconds, jitter=seconds, seed=st.integers())
def test_a_delay_is_near_its_latency(latency: float, jitter: float, seed: int) -> None:
    """Never below zero, never further off than the jitter."""
    delay = Latency(latency=latency, jitter=jitter).delay(Random(seed))
    assert max(latency - jitter, 0) - 1e-9 <= delay <= latency + jitter + 1e-9


@given(
    data=st.binary(max_size=500),
    average=st.integers(1, 50),
    seed=st.integers(),
    share=st.floats(0, 0.99),
)
def test_slices_are_the_whole(data: bytes, average: int, seed: int, share: float) -> None:
    """In order and of about the size that was asked for; the same seed cuts the same."""
    slicer = Slicer(average_size=average, size_variation=int((average - 1) * share))
    pieces = list(slicer.pieces(data, Random(seed)))
    assert b"".join(pieces) == data
    assert all(1 <= len(piece) < 2 * average for piece in pieces)
    assert pieces == list(slicer.pieces(data, Random(seed)))


@given(seed=st.integers(), toxicity=st.floats(0, 1))
def test_a_connection_has_a_toxic_or_has_it_not(seed: int, toxicity: float) -> None:
    """What was drawn at first holds; everybody has what is certain, nobody what is not."""
    toxic, certain, never = (Stall(toxicity=share) for share in (toxicity, 1.0, 0.0))
    drawn = Drawn(Random(seed))
    first = drawn.those((toxic, certain, never))
    assert certain in first
    assert toxicity == 0.0 or never not in first
    assert drawn.those((toxic, certain, never)) == first


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("latency:latency=200,jitter=50", Latency(latency=0.2, jitter=0.05)),
        ("bandwidth:rate=8,stream=upstream", Bandwidth(rate=8_000, stream=Stream.UPSTREAM)),
        ("slow_close:delay=1500", SlowClose(delay=1.5)),
        ("timeout:timeout=0,toxicity=0.5", Stall(timeout=0, toxicity=0.5)),
        ("slicer:average_size=64,size_variation=32,delay=10", Slicer(
            average_size=64, size_variation=32, delay=0.00001)),
        ("limit_data:bytes=100", LimitData(bytes=100)),
        ("reset_peer:timeout=2000,name=mine", ResetPeer(timeout=2.0, name="mine")),
    ],
)  # fmt: skip
def test_toxiproxy_s_spelling_is_read(text: str, wanted: Toxic) -> None:
    """With its units."""
    assert parse_toxic(text) == wanted


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("lateness:latency=1", "lateness"),
        ("latency:lateness=1", "lateness"),
        ("latency:latency=slow", "slow"),
        ("latency:latency=-1", "-0.001"),
        ("latency:stream=sideways", "sideways"),
        ("latency:toxicity=2", "2.0"),
        ("slicer:average_size=4,size_variation=4", "size_variation"),
        ("limit_data:bytes=1.5", "1.5"),
    ],
)
def test_what_is_no_toxic_is_refused(text: str, word: str) -> None:
    """The sentence has the word that was wrong."""
    with pytest.raises(AsyncNodesError) as caught:
        parse_toxic(text)
    assert caught.value.code == "invalid_request"
    assert word in caught.value.detail


def test_a_name_is_made_of_kind_and_direction() -> None:
    """So that two of a kind in both directions can be told apart."""
    known: list[Any] = [Latency(), Latency(stream=Stream.UPSTREAM), Stall(name="cable")]
    assert [one.called for one in known] == ["latency_downstream", "latency_upstream", "cable"]
