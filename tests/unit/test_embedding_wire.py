"""Embeddings, pure: what is sent, what is understood, and the simulated vectors."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import RetryableError
from async_nodes.nodes.providers import vectors
from async_nodes.nodes.providers.exchange import Provider, Server
from async_nodes.nodes.providers.presets import PRESETS, resolved
from async_nodes.testing import model_vectors


def dot(one: str, other: str) -> float:
    pairs = zip(model_vectors.vector(one), model_vectors.vector(other), strict=True)
    return sum(left * right for left, right in pairs)


def openai(*embeddings: Any, **more: Any) -> dict[str, Any]:
    data = [{"index": index, "embedding": one} for index, one in enumerate(embeddings)]
    return {"data": data, **more}


@pytest.mark.parametrize(
    ("provider", "url", "body"),
    [
        (
            "openai",
            "http://h/v1/embeddings",
            {"model": "m", "input": ["a"], "dimensions": 3, "encoding_format": "base64"},
        ),
        (
            "azure",
            "http://h/v1/openai/deployments/m/embeddings?api-version=2024-10-21",
            {"model": "m", "input": ["a"], "dimensions": 3, "encoding_format": "base64"},
        ),
        ("ollama", "http://h/v1/api/embed", {"model": "m", "input": ["a"], "dimensions": 3}),
    ],
)
def test_each_provider_is_asked_at_its_place(
    provider: Provider, url: str, body: dict[str, Any]
) -> None:
    """Addresses and bodies are those of the provider's own API."""
    preset, server = resolved(Server(provider=provider, base_url="http://h/v1/"))
    assert preset.build_vectors is not None
    call = preset.build_vectors(["a"], server, model="m", dimensions=3, encoding="base64")

    assert (call.url, call.body) == (url, body)


def test_anthropic_has_no_embeddings() -> None:
    """Its preset says so, and the node refuses."""
    assert PRESETS["anthropic"].build_vectors is None


def test_vectors_come_in_the_order_of_their_indexes() -> None:
    """A server may answer in any order, and in either encoding whatever was asked."""
    packed = model_vectors.as_base64([0.5, -1.0])
    document = openai([1, 0], packed, usage={"prompt_tokens": 2, "total_tokens": 2})
    document["data"].reverse()

    found, usage = vectors.read_openai(document, str)

    assert found == [[1.0, 0.0], [0.5, -1.0]]
    assert usage == {"prompt_tokens": 2, "total_tokens": 2}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"data": 1},
        {"data": [1]},
        {"data": [{"index": 1, "embedding": [1]}]},
        openai("no base64!"),
        openai("AAA="),
        openai(model_vectors.as_base64([math.nan])),
        openai([math.inf]),
        openai(["x"]),
        openai(None),
    ],
)
def test_what_holds_no_vectors_is_not_believed(document: dict[str, Any]) -> None:
    """Broken base64, numbers that are none and other documents are errors of the reading."""
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        vectors.read_openai(document, str)


def test_vectors_must_be_as_many_as_texts_and_alike() -> None:
    """Anything else is tried again."""
    assert vectors.checked([[1.0], [2.0]], count=2) == [[1.0], [2.0]]
    for found in ([[1.0]], [[1.0], [1.0, 2.0]], [[], []]):
        with pytest.raises(RetryableError) as caught:
            vectors.checked(found, count=2)
        assert caught.value.code == "model_bad_output"


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_a_normalised_vector_has_length_one(vector: list[float]) -> None:
    """Its direction stays; a vector of zeros stays too."""
    made = vectors.normalised(vector)

    assert math.hypot(*made) == pytest.approx(1.0) or made == vector


@given(st.text(max_size=60), st.integers(1, 300))
def test_a_simulated_vector_is_the_same_each_time(text: str, dimensions: int) -> None:
    """Any text has a vector of length 1 that both encodings write alike."""
    made = model_vectors.vector(text, dimensions)
    packed = struct.pack(f"<{dimensions}f", *made)

    assert (
        made
        == model_vectors.vector(text, dimensions)
        == vectors._vector(model_vectors.as_base64(made))
    )
    assert list(struct.unpack(f"<{dimensions}f", packed)) == made
    assert math.hypot(*made) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "like", "unlike"),
    [
        (
            "How do I reset my password?",
            "resetting a password",
            "The lease ends in fifteen seconds",
        ),
        ("工作进程的租约", "租约属于工作进程", "今天天气很好"),
        ("Ein kleiner Hund", "kleine Hunde", "tax law of 1980"),
    ],
)
def test_similar_texts_are_near(text: str, like: str, unlike: str) -> None:
    """Shared words and parts of words make near vectors, in scripts without spaces too."""
    assert dot(text, like) > dot(text, unlike) + 0.15
    assert dot(text, text) == pytest.approx(1.0, abs=1e-5)
