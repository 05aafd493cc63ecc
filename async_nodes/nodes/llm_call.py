"""Step 3, execute: one conversation with a model of any provider, for nodes to use.

Tried again (not before the server's Retry-After): 429, 408, 409, 425, 5xx, a failing connection,
silence, a stream cut half-way, a malformed chunk, an object that does not fit. Final: every other
refusal, with the server's own words. When the generator is closed, killed or cancelled, the
model's socket closes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes.providers.answer import Answer
from async_nodes.nodes.providers.exchange import Ask, Piece, Reply, Server
from async_nodes.nodes.providers.presets import resolved
from async_nodes.nodes.providers.refusals import hider, refusal
from async_nodes.nodes.providers.stream import Reader, Stream
from async_nodes.nodes.providers.structured import checker, form_of, structured

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from async_nodes.egress.response import Response
    from async_nodes.nodes.context import NodeContext

OK = 200
TIMEOUT = 60.0

_STREAMS = ("event-stream", "ndjson")


def chat(
    ctx: NodeContext,
    ask: Ask,
    server: Server,
    *,
    timeout: float = TIMEOUT,
    show_reasoning: bool = False,
    hedge: float | None = None,
) -> Generator[Piece, None, Reply]:
    """Yield a model's answer as it comes and return the whole of it.

    Args:
        ctx: the attempt's context; nothing is reported to it, `Reply.usage` included.
        ask: what is asked.
        server: who is asked.
        timeout: seconds of the longest silence, the wait for the first token included.
        show_reasoning: yield ``{"reasoning_delta": text}`` too; left out otherwise.
        hedge: seconds after which a second request is sent beside one that is not answered yet; 0
            for the P95 of those before, None for never.

    Raises:
        TerminalError: ``invalid_inputs``, ``model_refused``, ``egress_refused``.
        RetryableError: ``model_rate_limited``, ``model_error``, ``model_stream_cut``,
            ``model_bad_chunk``, ``model_bad_output``, ``egress_failed``.
        AsyncNodesError: ``breaker_open``: the server is not asked for now.

    """
    from async_nodes.egress.client import Timeouts

    preset, server = resolved(server)
    form = form_of(ask)
    wrong = checker(form) if form is not None else None
    call = preset.build(ask, server, knows_schema=preset.knows_schema)
    answer = Answer(hider(server.api_key))
    reader = preset.reader(answer, ask)
    accept = "text/event-stream" if ask.stream else "application/json"

    def send(is_second: bool) -> Response:  # noqa: FBT001
        # A server that knows the key would wait for the first one, or refuse.
        key = f"{ctx.idempotency_key}-2" if is_second else ctx.idempotency_key
        return ctx.http.request(
            "POST",
            call.url,
            headers={"Accept": accept, "Idempotency-Key": key, **call.headers},
            json=call.body,
            timeout=Timeouts(connect=min(10.0, timeout), read=timeout),
            stream=True,
        )

    with ctx.call_to(call.url):
        response = send(False) if hedge is None else ctx.hedge(call.url, send, hedge or None)
        try:
            if response.status != OK:
                raise refusal(response.status, response.read(), response.headers, hide=answer.hide)
            pieces = _streamed(response, reader) if _streams(response) else _whole(response, reader)
            for piece in pieces:
                if show_reasoning or not (isinstance(piece, dict) and "reasoning_delta" in piece):
                    yield piece
        finally:
            response.close()
    calls = answer.tool_calls
    return Reply(
        text=answer.text,
        tool_calls=calls,
        finish_reason=answer.finish_reason,
        usage=answer.usage,
        value=structured(answer, wrong) if wrong is not None and not calls else None,
    )


def _streams(response: Response) -> bool:
    kind = response.headers.get("Content-Type", "").lower()
    return any(name in kind for name in _STREAMS)


def _streamed(response: Response, reader: Reader) -> Iterator[Piece]:
    stream = Stream(reader)
    for line in _lines(response):
        yield from stream.feed(line)
        if stream.ended:
            break
    yield from stream.finish()


def _lines(response: Response) -> Iterator[bytes]:
    try:
        yield from response.iter_lines()
    except AsyncNodesError as error:
        if error.code != "egress_failed":
            raise
        message = f"the model's stream ended half-way: {error.detail}"
        raise RetryableError(message, code="model_stream_cut") from error


def _whole(response: Response, reader: Reader) -> list[Piece]:
    try:
        return reader.read_whole(document_of(response))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        kind = response.headers.get("Content-Type") or "no content type"
        said = f"the model server's answer ({kind}) is not a chat completion; check base_url"
        raise TerminalError(said, code="model_refused") from error


def document_of(response: Response) -> dict[str, object]:
    """Return the JSON object that an answer holds.

    Raises:
        RetryableError: ``model_bad_chunk`` for a body that calls itself JSON and is none.
        ValueError: for any other body that is no JSON object.

    """
    try:
        document = response.json()
    except (ValueError, RecursionError) as error:
        if "json" not in response.headers.get("Content-Type", "").lower():
            raise ValueError("not JSON") from error
        message = f"the model sent a bad answer: not JSON in UTF-8 ({error})"
        raise RetryableError(message, code="model_bad_chunk") from error
    if not isinstance(document, dict):
        raise ValueError("not an object")  # noqa: TRY004 - what the bytes hold, not a caller's type
    return document
