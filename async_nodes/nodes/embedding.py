"""Built-in node ``embedding``: the vectors of texts, and the function behind it for other nodes.

The texts go out in batches, some of them at once; their order is kept. What is tried again and
what is final is the same as for ``llm.chat``, and a batch that fails, fails the attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes.providers.exchange import AZURE_API_VERSION, Provider, Server
from async_nodes.nodes.providers.vectors import Encoding, Vectors
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.providers.exchange import Call
    from async_nodes.nodes.providers.presets import Preset

OK = 200
MAX_TEXTS = 2_048
BATCH_SIZE = 64
PARALLEL = 4
TIMEOUT = 60.0

Texts = Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_TEXTS)]


@node("embedding", redact=("api_key",))
def embedding(  # noqa: PLR0913 - the inputs of a request for embeddings
    ctx: NodeContext,
    model: str,
    input: str | Texts,  # noqa: A002 - the name that every provider gives it
    *,
    provider: Provider = "openai",
    base_url: str = "",
    api_key: str = "",
    deployment: str = "",
    api_version: str = AZURE_API_VERSION,
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=65_536)] | None = None,
    encoding: Encoding = "float",
    normalise: bool = False,
    batch_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_TEXTS)] = BATCH_SIZE,
    parallel: Annotated[int, msgspec.Meta(ge=1, le=16)] = PARALLEL,
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 60_000,
) -> dict[str, Any]:
    """Turn texts into vectors.

    Args:
        ctx: the attempt's context.
        model: the model's name.
        input: a text, or up to 2,048 of them.
        provider: whose API the server speaks.
        base_url: the server's root, ``https://host/v1``; the provider's own when empty.
        api_key: sent in the header the provider wants, never shown in the record.
        deployment: Azure's name for the model; the model's own when empty.
        api_version: Azure's only.
        dimensions: length of the vectors, for models that can shorten theirs.
        encoding: how the server writes numbers: base64 is a quarter of the bytes.
        normalise: bring every vector to length 1.
        batch_size: texts of one request.
        parallel: requests at once.
        timeout_ms: longest silence of one request.

    Returns:
        ``{model, dimensions, embeddings}``, one vector a text in their order.

    """
    texts = [input] if isinstance(input, str) else input

    def done(count: int) -> None:
        ctx.progress(count / len(texts), f"{count} of {len(texts)} texts")

    vectors, usage = embed(
        ctx,
        texts,
        provider=provider,
        base_url=base_url,
        model=model,
        api_key=api_key,
        deployment=deployment,
        api_version=api_version,
        dimensions=dimensions,
        encoding=encoding,
        normalise=normalise,
        batch_size=batch_size,
        parallel=parallel,
        timeout=timeout_ms / 1000,
        on_done=done,
    )
    ctx.usage(**usage)
    return {"model": model, "dimensions": len(vectors[0]), "embeddings": vectors}


def embed(  # noqa: PLR0913 - all that a request for embeddings may say
    ctx: NodeContext,
    texts: Sequence[str],
    *,
    model: str,
    base_url: str = "",
    api_key: str = "",
    provider: Provider = "openai",
    deployment: str = "",
    api_version: str = AZURE_API_VERSION,
    dimensions: int | None = None,
    encoding: Encoding = "float",
    normalise: bool = False,
    batch_size: int = BATCH_SIZE,
    parallel: int = PARALLEL,
    timeout: float = TIMEOUT,
    first: int = 0,
    on_done: Callable[[int], None] | None = None,
) -> tuple[Vectors, dict[str, int]]:
    """Return one vector a text, in their order, and the tokens that were used.

    Nothing is reported to the context: the caller decides what becomes of usage and progress.

    Args:
        ctx: the attempt's context, for its HTTP client.
        texts: what to embed; no texts make no request.
        model: the model's name.
        base_url: the server's root; the provider's own when empty.
        api_key: sent in the header the provider wants.
        provider: whose API the server speaks.
        deployment: Azure's name for the model; the model's own when empty.
        api_version: Azure's only.
        dimensions: length of the vectors, for models that can shorten theirs.
        encoding: how the server writes numbers.
        normalise: bring every vector to length 1.
        batch_size: texts of one request.
        parallel: requests at once.
        timeout: seconds of the longest silence of one request.
        first: the number of the first text, for a body that asks for its texts bit by bit: no
            two requests of an attempt may have the same idempotency key.
        on_done: told how many texts are done, after each batch.

    Raises:
        TerminalError: ``invalid_inputs``, ``model_refused``, ``egress_refused``.
        RetryableError: ``model_rate_limited``, ``model_error``, ``model_bad_chunk``,
            ``model_bad_output``, ``egress_failed``.

    """
    from async_nodes.nodes.providers.presets import resolved
    from async_nodes.nodes.providers.vectors import normalised

    preset, server = resolved(
        Server(
            provider=provider,
            base_url=base_url,
            api_key=api_key,
            deployment=deployment,
            api_version=api_version,
        )
    )
    build = preset.build_vectors
    if build is None:
        raise TerminalError(f"{provider} has no embeddings", code="invalid_inputs")

    def batch(start: int) -> tuple[Vectors, dict[str, int]]:
        part = list(texts[start : start + batch_size])
        call = build(part, server, model=model, dimensions=dimensions, encoding=encoding)
        # The same in every attempt, and another one for every batch.
        call.headers["Idempotency-Key"] = f"{ctx.idempotency_key}-{first + start}"
        found, usage = _ask(ctx, call, preset, count=len(part), secret=api_key, timeout=timeout)
        return [normalised(vector) for vector in found] if normalise else found, usage

    return _all(batch, range(0, len(texts), batch_size), parallel=parallel, on_done=on_done)


def _all(
    batch: Callable[[int], tuple[Vectors, dict[str, int]]],
    starts: Sequence[int],
    *,
    parallel: int,
    on_done: Callable[[int], None] | None,
) -> tuple[Vectors, dict[str, int]]:
    """Run the batches, some at once, and put their results in order."""
    from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed

    failed = False

    def unless_failed(start: int) -> tuple[Vectors, dict[str, int]]:
        nonlocal failed
        if failed:  # the pool takes the next one before anybody could take it back
            raise CancelledError
        try:
            return batch(start)
        except BaseException:
            failed = True
            raise

    found: dict[int, Vectors] = {}
    total: dict[str, int] = {}
    # In an I/O worker these threads are greenlets, as gevent has patched them.
    pool = ThreadPoolExecutor(max_workers=min(parallel, max(1, len(starts))))
    try:
        running = {pool.submit(unless_failed, start): start for start in starts}
        for future in as_completed(running):
            try:
                vectors, usage = future.result()
            except CancelledError:  # another batch has failed, and says so when its turn comes
                continue
            found[running[future]] = vectors
            for name, count in usage.items():
                total[name] = total.get(name, 0) + count
            if on_done is not None:
                on_done(sum(map(len, found.values())))
    finally:
        # After a failure or a cancel nothing is waited for: the attempt's end closes the sockets.
        pool.shutdown(wait=False, cancel_futures=True)
    vectors = [vector for start in starts for vector in found[start]]
    if len({len(vector) for vector in vectors}) > 1:
        message = "the model server sent vectors of different lengths in different batches"
        raise RetryableError(message, code="model_bad_output")
    return vectors, total


def _ask(
    ctx: NodeContext, call: Call, preset: Preset, *, count: int, secret: str, timeout: float
) -> tuple[Vectors, dict[str, int]]:
    from async_nodes.egress.client import Timeouts
    from async_nodes.nodes.llm_call import document_of
    from async_nodes.nodes.providers.refusals import hider, refusal
    from async_nodes.nodes.providers.vectors import checked

    with (
        ctx.call_to(call.url),
        ctx.http.request(
            "POST",
            call.url,
            headers={"Accept": "application/json", **call.headers},
            json=call.body,
            timeout=Timeouts(connect=min(10.0, timeout), read=timeout),
            stream=True,
        ) as response,
    ):
        hide = hider(secret)
        if response.status != OK:
            raise refusal(response.status, response.read(), response.headers, hide=hide)
        try:
            found, usage = preset.read_vectors(document_of(response), hide)
        except AsyncNodesError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            kind = response.headers.get("Content-Type") or "no content type"
            said = f"the model server's answer ({kind}) holds no embeddings; check base_url"
            raise TerminalError(said, code="model_refused") from error
    return checked(found, count=count), usage
