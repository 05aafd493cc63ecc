"""Beside the providers: embeddings, as OpenAI, Azure and Ollama speak of them."""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import TYPE_CHECKING, Any, Literal

from async_nodes.core.errors import RetryableError
from async_nodes.nodes.providers.exchange import Call, Server
from async_nodes.nodes.providers.ollama import root
from async_nodes.nodes.providers.openai import azure_key, azure_url, bearer
from async_nodes.nodes.providers.refusals import reported
from async_nodes.nodes.providers.usage import ollama_usage, openai_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Encoding = Literal["float", "base64"]
Vectors = list[list[float]]

EMBEDDINGS = "/embeddings"


def build_openai(
    texts: Sequence[str],
    server: Server,
    *,
    model: str,
    dimensions: int | None = None,
    encoding: Encoding = "float",
) -> Call:
    """Return the call for the vectors of some texts."""
    body = {"model": model, **_body(texts, dimensions), "encoding_format": encoding}
    return Call(server.base_url + EMBEDDINGS, bearer(server), body)


def build_azure(
    texts: Sequence[str],
    server: Server,
    *,
    model: str,
    dimensions: int | None = None,
    encoding: Encoding = "float",
) -> Call:
    """Return the call to an Azure deployment."""
    body = {"model": model, **_body(texts, dimensions), "encoding_format": encoding}
    return Call(azure_url(server, model, EMBEDDINGS), azure_key(server), body)


def build_ollama(
    texts: Sequence[str],
    server: Server,
    *,
    model: str,
    dimensions: int | None = None,
    encoding: Encoding = "float",
) -> Call:
    """Return the call to Ollama, which only writes numbers."""
    return Call(
        root(server) + "/api/embed", bearer(server), {"model": model, **_body(texts, dimensions)}
    )


def read_openai(
    document: dict[str, Any], hide: Callable[[str], str]
) -> tuple[Vectors, dict[str, int]]:
    """Return the vectors in the order of their texts, and the counts of tokens.

    Raises:
        RetryableError: ``model_error`` for an error that came as a 200.
        ValueError, LookupError, TypeError, AttributeError: for what is no list of vectors.

    """
    if document.get("error"):
        raise reported(document, hide=hide)
    data = document["data"]
    places = [item.get("index", number) for number, item in enumerate(data)]
    if sorted(places) != list(range(len(data))):
        raise ValueError("the indexes do not number the vectors")
    vectors: Vectors = [[] for _ in data]
    for place, item in zip(places, data, strict=True):
        vectors[place] = _vector(item["embedding"])
    return vectors, openai_usage(document.get("usage"))


def read_ollama(
    document: dict[str, Any], hide: Callable[[str], str]
) -> tuple[Vectors, dict[str, int]]:
    """Return the vectors and the counts; the errors are those of `read_openai`."""
    if document.get("error"):
        raise reported(document, hide=hide)
    return [_vector(item) for item in document["embeddings"]], ollama_usage(document)


def checked(vectors: Vectors, *, count: int) -> Vectors:
    """Return vectors once there are as many as texts, all of one length.

    Raises:
        RetryableError: ``model_bad_output``.

    """
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != count:
        message = f"the model server sent {len(vectors)} vectors for {count} texts"
    elif len(lengths) != 1 or 0 in lengths:
        message = f"the model server sent vectors of different lengths: {sorted(lengths)}"
    else:
        return vectors
    raise RetryableError(message, code="model_bad_output")


def normalised(vector: list[float]) -> list[float]:
    """Return a vector of length 1 in the same direction; a vector of zeros stays as it is."""
    length = math.hypot(*vector)
    return [number / length for number in vector] if length else vector


def _body(texts: Sequence[str], dimensions: int | None) -> dict[str, Any]:
    return {"input": list(texts), **({"dimensions": dimensions} if dimensions else {})}


def _vector(given: Any) -> list[float]:
    """Return numbers written as a list or as base64 of little-endian 32-bit floats."""
    if isinstance(given, str):
        try:
            raw = base64.b64decode(given, validate=True)
            numbers = list(struct.unpack(f"<{len(raw) // 4}f", raw))
        except (binascii.Error, struct.error) as error:
            raise ValueError(f"a vector's base64 is broken: {error}") from error
    else:
        numbers = [float(number) for number in given]
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a vector holds what is no number")
    return numbers
