"""A batch's body: split into its items without a change, or refused as a whole."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch import batch
from async_nodes.dispatch.batch import MAX_ITEMS, split


def outcome(raw: bytes) -> str:
    try:
        split(raw)
    except AsyncNodesError as error:
        return error.code
    return ""


values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
spaces = st.text(" \t\r\n", max_size=3)


@given(items=st.lists(values, min_size=1, max_size=6), space=spaces)
def test_items_are_their_own_bytes(items: list[Any], space: str) -> None:
    """Whatever they are and however they are laid out."""
    texts = [json.dumps(item, ensure_ascii=False) for item in items]
    listed = f"{space},{space}".join(texts)
    raw = f'{space}{{{space}"tasks"{space}:[{space}{listed}{space}]{space}}}{space}'.encode(
        "utf-8", "surrogatepass"
    )
    assert split(raw) == [text.encode("utf-8", "surrogatepass") for text in texts]


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_whatever_comes_is_split_or_refused(raw: bytes) -> None:
    """With an error of ours, whatever the bytes are."""
    assert outcome(raw) in ("not_json", "invalid_request") or split(raw)


@pytest.mark.parametrize(
    ("raw", "code", "pointer"),
    [
        (b'{"tasks": [1], "tasks": [1]}', "not_json", "/tasks"),
        (b'{"tasks": [1]} x', "not_json", ""),
        (b'\xef\xbb\xbf{"tasks": [1]}', "not_json", ""),
        (b'{"tasks": [1], "tusks": 2}', "invalid_request", "/tusks"),
        (b'{"tasks": null}', "invalid_request", "/tasks"),
        (b"null", "invalid_request", ""),
        (b'{"a/b": 1}', "invalid_request", "/a~1b"),
    ],
)
def test_what_is_wrong_has_its_place(raw: bytes, code: str, pointer: str) -> None:
    """As in every other problem."""
    with pytest.raises(AsyncNodesError) as caught:
        split(raw)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


def test_a_thousand_are_taken_and_no_more() -> None:
    """The bound is on items, however small they are."""
    assert len(split(b'{"tasks": [' + b"1," * (MAX_ITEMS - 1) + b"1]}")) == MAX_ITEMS
    with pytest.raises(AsyncNodesError, match="1 to 1000, not 1001"):
        split(b'{"tasks": [' + b"1," * MAX_ITEMS + b"1]}")


def test_commas_in_texts_are_no_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of text are taken; more elements than fit are not."""
    monkeypatch.setattr(batch, "MAX_MEMBERS", 1000)
    text = json.dumps({"csv": 'a,"b",\\' * 5000})
    assert split(f'{{"tasks": [{text}]}}'.encode()) == [text.encode()]
    with pytest.raises(AsyncNodesError, match="more than 1000 members"):
        split(b'{"tasks": [[' + b"1," * 1001 + b"1]]}")


def test_splitting_takes_no_time() -> None:
    """16 MiB of the worst there is are dealt with in a moment."""
    worst = [
        b'{"tasks": [' + b"[" * (16 << 20),
        b'{"tasks": ["' + b'\\"' * (8 << 20),
        b'{"tasks": [' + b'"' * (16 << 20),
        b'{"tasks": [' + b"0," * (8 << 20) + b"0]}",
        b'{"x":1,' * (2 << 20),
    ]
    began = time.process_time()
    for raw in worst:
        with pytest.raises(AsyncNodesError):
            split(raw)
    assert time.process_time() - began < 5
