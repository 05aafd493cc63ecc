"""Built-in nodes ``rag.index`` and ``rag.answer``: answer a question from a few documents.

For collections that fit into memory; a large one belongs into a database of its own, reached with
``http.request`` or a node of yours. What is tried again is what `llm_call` and `embedding` try.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from async_nodes.core.errors import TerminalError
from async_nodes.nodes.providers.exchange import AZURE_API_VERSION, Ask, Provider, Server
from async_nodes.nodes.rag_documents import Documents, cut
from async_nodes.nodes.rag_kept import Name, keep_index, kept_index
from async_nodes.nodes.rag_prompt import messages, within
from async_nodes.nodes.rag_vectors import Embedder
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Generator

    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.rag_index import Found, Index

MAX_INDEXED = 1_000_000
MAX_INLINE = 200_000
"""Characters of all documents: what comes with a question is read while neighbours wait."""

MAX_QUESTION = 4_000
EXCERPT = 300
WEEK = 7 * 86_400

Size = Annotated[int, msgspec.Meta(ge=50, le=20_000)]
Overlap = Annotated[int, msgspec.Meta(ge=0)]
Dimensions = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Silence = Annotated[int, msgspec.Meta(ge=1, le=3_600_000)]
Retrieval = Literal["bm25", "embedding", "hybrid"]


@node("rag.index", kind="cpu", timeout=600.0, redact=("api_key",))
def rag_index(  # noqa: PLR0913 - the inputs of an index
    ctx: NodeContext,
    name: Name,
    documents: Documents,
    *,
    size: Size = 800,
    overlap: Overlap = 100,
    model: str = "",
    provider: Provider = "openai",
    base_url: str = "",
    api_key: str = "",
    deployment: str = "",
    api_version: str = AZURE_API_VERSION,
    dimensions: Dimensions | None = None,
    timeout_ms: Silence = 60_000,
    ttl: Annotated[int, msgspec.Meta(ge=1, le=30 * 86_400)] = WEEK,
) -> dict[str, Any]:
    """Cut documents into pieces, index them and keep the index for ``rag.answer``.

    Args:
        ctx: the attempt's context.
        name: what the index is called, within the tenant; one that is there is replaced.
        documents: texts or ids of files, or ``{text or file, id, metadata}`` each.
        size: most characters of a piece.
        overlap: most characters that a piece repeats of the one before; at most half of `size`.
        model: makes vectors of the pieces; without one there are words only.
        provider: whose API the model's server speaks.
        base_url: the server's root; the provider's own when empty.
        api_key: never shown in the record.
        deployment: Azure's name for the model.
        api_version: Azure's only.
        dimensions: length of the vectors, for models that can shorten theirs.
        timeout_ms: longest silence of the server.
        ttl: seconds to keep the index.

    Returns:
        ``{name, documents, pieces, dimensions, bytes}``.

    """
    index = cut(ctx, documents, size=size, overlap=overlap, most=MAX_INDEXED)
    if model:
        server = Server(
            provider=provider,
            base_url=base_url,
            api_key=api_key,
            deployment=deployment,
            api_version=api_version,
        )
        embedder = Embedder(
            ctx=ctx, server=server, model=model, dimensions=dimensions, timeout=timeout_ms / 1000
        )
        texts = [piece.text for piece in index.pieces]

        def done(count: int) -> None:
            ctx.progress(count / len(texts), f"{count} of {len(texts)} pieces")

        vectors = embedder.vectors(texts, on_done=done)
        index.take_vectors(vectors, model=model, asked=dimensions)
        ctx.usage(**embedder.usage)
    size_kept = keep_index(ctx, name, index, seconds=ttl)
    ctx.progress(1.0)
    return {
        "name": name,
        "documents": len(index.documents),
        "pieces": len(index.pieces),
        "dimensions": index.width,
        "bytes": size_kept,
    }


@node("rag.answer", redact=("api_key", "embedding_api_key"), coalesce=0.02)
def rag_answer(  # noqa: PLR0913 - the inputs of a search and of a chat completion
    ctx: NodeContext,
    question: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_QUESTION)],
    model: str,
    *,
    documents: Documents | None = None,
    index: Name | None = None,
    retrieval: Retrieval = "bm25",
    top_k: Annotated[int, msgspec.Meta(ge=1, le=50)] = 4,
    context_chars: Annotated[int, msgspec.Meta(ge=100, le=400_000)] = 12_000,
    size: Size = 800,
    overlap: Overlap = 100,
    instructions: str = "",
    provider: Provider = "openai",
    base_url: str = "",
    api_key: str = "",
    deployment: str = "",
    api_version: str = AZURE_API_VERSION,
    temperature: float | None = None,
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None,
    embedding_model: str = "",
    embedding_provider: Provider | None = None,
    embedding_base_url: str = "",
    embedding_api_key: str = "",
    embedding_deployment: str = "",
    embedding_dimensions: Dimensions | None = None,
    timeout_ms: Silence = 60_000,
    extra: dict[str, Any] | None = None,
) -> Generator[Any, None, dict[str, Any]]:
    """Find what documents say about a question, let a model answer from it, and stream that.

    Args:
        ctx: the attempt's context.
        question: in any language.
        model: the model that answers.
        documents: texts or ids of files, or ``{text or file, id, metadata}`` each; this or `index`.
        index: the name that ``rag.index`` was given.
        retrieval: by words (BM25), by vectors, or by both rankings together.
        top_k: most pieces to give to the model.
        context_chars: most characters of them together.
        size: most characters of a piece of `documents`.
        overlap: most characters that such a piece repeats of the one before.
        instructions: to the model, in place of the built-in ones.
        provider: whose API the model's server speaks.
        base_url: the server's root; the provider's own when empty.
        api_key: never shown in the record.
        deployment: Azure's name for the model.
        api_version: Azure's only.
        temperature: passed on when given, like the next.
        max_tokens: most tokens of the answer.
        embedding_model: makes vectors; an index knows the one that made its own.
        embedding_provider: where vectors come from, with the next; without both it is the
            answering model's server.
        embedding_base_url: its root; the provider's own when empty.
        embedding_api_key: its key; `api_key` goes to no server but the answering model's.
        embedding_deployment: Azure's name for the model.
        embedding_dimensions: length of the vectors, for models that can shorten theirs; an index
            knows its own.
        timeout_ms: longest silence of a server.
        extra: further members of the request to the answering model.

    Returns:
        ``{answer, sources, finish_reason}``; a source is
        ``{number, id, start, end, score, excerpt, metadata}``. The stream begins with
        ``{"sources": […]}``; the answer's text follows.

    """
    from async_nodes.nodes.llm_call import chat

    if (documents is None) == (index is None):
        raise TerminalError("give either documents or index", code="invalid_inputs")
    timeout = timeout_ms / 1000
    server = Server(
        provider=provider,
        base_url=base_url,
        api_key=api_key,
        deployment=deployment,
        api_version=api_version,
    )
    embedder = Embedder(
        ctx=ctx,
        server=_embedding_server(
            server,
            provider=embedding_provider,
            base_url=embedding_base_url,
            api_key=embedding_api_key,
            deployment=embedding_deployment,
        ),
        model=embedding_model,
        dimensions=embedding_dimensions,
        timeout=timeout,
    )
    if index is not None:
        searched = kept_index(ctx, index)
        found = _in_kept(searched, question, retrieval, top_k, embedder)
    else:
        searched = cut(ctx, documents or "", size=size, overlap=overlap, most=MAX_INLINE)
        found = _in_fresh(searched, question, retrieval, top_k, embedder)
    texts = within([searched.pieces[number].text for number, _ in found], context_chars)
    sources = _sources(searched, found, texts)
    yield {"sources": sources}
    ask = Ask(
        model=model,
        messages=messages(question, texts, instructions=instructions),
        temperature=temperature,
        max_tokens=max_tokens,
        extra=extra,
    )
    reply = yield from chat(ctx, ask, server, timeout=timeout)
    ctx.usage(**embedder.usage)
    ctx.usage(**reply.usage)
    return {"answer": reply.text, "sources": sources, "finish_reason": reply.finish_reason}


def _embedding_server(
    answering: Server, *, provider: Provider | None, base_url: str, api_key: str, deployment: str
) -> Server:
    """Return where vectors come from; a key goes to no server that it was not given for."""
    same = provider is None and not base_url
    return Server(
        provider=provider or answering.provider,
        base_url=answering.base_url if same else base_url,
        api_key=api_key or (answering.api_key if same else ""),
        deployment=deployment,
        api_version=answering.api_version,
    )


def _in_fresh(
    index: Index, question: str, retrieval: Retrieval, count: int, embedder: Embedder
) -> Found:
    """Search documents that came with the question: what nobody asks for is not made."""
    if retrieval != "embedding":
        index.read_words()
    if retrieval == "bm25":
        return index.by_words(question, count)
    if not embedder.model:
        message = f"retrieval {retrieval!r} needs an embedding_model"
        raise TerminalError(message, code="invalid_inputs")
    vectors = embedder.vectors([question, *(piece.text for piece in index.pieces)])
    vector = next(vectors)
    index.take_vectors(vectors, model=embedder.model, asked=embedder.dimensions)
    return _by(index, question, vector, retrieval, count)


def _in_kept(
    index: Index, question: str, retrieval: Retrieval, count: int, embedder: Embedder
) -> Found:
    """Search an index with the model that has made its vectors."""
    if retrieval == "bm25":
        return index.by_words(question, count)
    if not index.model:
        message = f"the index has words only; retrieval {retrieval!r} needs one with a model"
        raise TerminalError(message, code="invalid_inputs")
    if embedder.model not in ("", index.model):
        message = f"the index was made with {index.model!r}, not with {embedder.model[:100]!r}"
        raise TerminalError(message, code="invalid_inputs")
    embedder.model = index.model
    embedder.dimensions = embedder.dimensions or index.asked
    (vector,) = embedder.vectors([question])
    return _by(index, question, vector, retrieval, count)


def _by(index: Index, question: str, vector: Any, retrieval: Retrieval, count: int) -> Found:
    if not index.pieces:
        return []
    if retrieval == "embedding":
        return index.by_vector(vector, count)
    return index.by_both(question, vector, count)


def _sources(index: Index, found: Found, texts: list[str]) -> list[dict[str, Any]]:
    sources = []
    for number, ((place, score), text) in enumerate(zip(found, texts, strict=False), 1):
        piece = index.pieces[place]
        name, metadata = index.documents[piece.document]
        sources.append(
            {
                "number": number,
                "id": name,
                "start": piece.start,
                "end": piece.start + len(text),
                "score": round(score, 6),
                "excerpt": text[:EXCERPT],
                "metadata": metadata,
            }
        )
    return sources
