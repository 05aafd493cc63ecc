"""Built-in node ``llm.chat``: a chat completion from any OpenAI-compatible server, streamed.

Tried again (not before the server's Retry-After): 429, 408, 409, 425, 5xx, a failing connection,
silence, a stream cut half-way, a malformed chunk. Final: every other refusal, with the server's
own message. When the body is closed, killed or cancelled, the model's socket closes at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes.llm_stream import ChatStream, error_message, token_counts, whole
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from async_nodes.egress.response import Response
    from async_nodes.nodes.context import NodeContext

OK = 200
TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
EXCERPT = 500

_RETRYABLE = frozenset({408, 409, 425, TOO_MANY_REQUESTS})
# A 429 that no waiting heals.
_FINAL_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})

Output = dict[str, Any] | str | None


@node("llm.chat", redact=("api_key",), coalesce=0.02)
def llm_chat(  # noqa: PLR0913 - the inputs of a chat completion
    ctx: NodeContext,
    base_url: str,
    model: str,
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)],
    *,
    api_key: str = "",
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None,
    stop: list[str] | str | None = None,
    seed: int | None = None,
    stream: bool = True,
    include_usage: bool = True,
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 60_000,
    extra: dict[str, Any] | None = None,
) -> Generator[str, None, Output]:
    """Ask a language model and stream its answer.

    Args:
        ctx: the attempt's context.
        base_url: the server's root, ``https://host/v1``; ``/chat/completions`` is added.
        model: the model's name.
        messages: the conversation, ``{role, content}`` each.
        api_key: sent as a Bearer token, never shown in the record.
        temperature: passed on when given, like the next four.
        top_p: share of the probability to draw from.
        max_tokens: most tokens of the answer.
        stop: where the answer ends.
        seed: for servers that can repeat an answer.
        stream: ask the server to stream; otherwise the text comes as one chunk.
        include_usage: ask for token counts in a stream; for servers that refuse the option.
        timeout_ms: longest silence, the wait for the first token included. The task's own
            time-out bounds the whole.
        extra: further members of the request body, for example tools.

    Returns:
        The answer's text; with tool calls ``{text, tool_calls, finish_reason}``.

    """
    from async_nodes.egress.client import Timeouts

    options = {
        "temperature": temperature,
        "top_p": top_p,
        "max_tokens": max_tokens,
        "stop": stop,
        "seed": seed,
        "stream_options": {"include_usage": True} if stream and include_usage else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    seconds = timeout_ms / 1000
    response = ctx.http.request(
        "POST",
        base_url.rstrip("/") + "/chat/completions",
        headers=_headers(api_key, stream=stream, idempotency_key=ctx.idempotency_key),
        json={"model": model, "messages": messages, "stream": stream, **given, **(extra or {})},
        timeout=Timeouts(connect=min(10.0, seconds), read=seconds),
        stream=True,
    )
    try:
        _raise_for_status(response, api_key)
        if "event-stream" in response.headers.get("Content-Type", "").lower():
            return (yield from _streamed(ctx, response))
        return (yield from _at_once(ctx, response))
    finally:
        response.close()


def _headers(api_key: str, *, stream: bool, idempotency_key: str) -> dict[str, str]:
    headers = {
        "Accept": "text/event-stream" if stream else "application/json",
        "Idempotency-Key": idempotency_key,
    }
    return {**headers, "Authorization": f"Bearer {api_key}"} if api_key else headers


def _streamed(ctx: NodeContext, response: Response) -> Generator[str, None, Output]:
    chat, pieces = ChatStream(), []
    for line in _lines(response):
        if piece := chat.feed(line):
            pieces.append(piece)
            yield piece
        if chat.ended:
            break
    if rest := chat.finish():
        pieces.append(rest)
        yield rest
    ctx.usage(**chat.usage)
    return _output("".join(pieces), chat.tool_calls, chat.finish_reason)


def _lines(response: Response) -> Iterator[bytes]:
    try:
        yield from response.iter_lines()
    except AsyncNodesError as error:
        if error.code != "egress_failed":
            raise
        message = f"the model's stream ended half-way: {error.detail}"
        raise RetryableError(message, code="model_stream_cut") from error


def _at_once(ctx: NodeContext, response: Response) -> Generator[str, None, Output]:
    try:
        document = response.json()
        choice = document["choices"][0]
        message = choice["message"]
        text = whole(message.get("content") or "")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        kind = response.headers.get("Content-Type") or "no content type"
        said = f"the model server's answer ({kind}) is not a chat completion; check base_url"
        raise TerminalError(said, code="model_refused") from error
    if text:
        yield text
    ctx.usage(**token_counts(document))
    return _output(text, message.get("tool_calls") or [], choice.get("finish_reason"))


def _output(text: str, tool_calls: list[dict[str, Any]], finish_reason: str | None) -> Output:
    if not tool_calls:
        return text
    return {"text": text, "tool_calls": tool_calls, "finish_reason": finish_reason}


def _raise_for_status(response: Response, api_key: str) -> None:
    status = response.status
    if status == OK:
        return
    raw = response.read().decode("utf-8", "replace")
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = raw
    message = f"the model server answered {status}: {error_message(document)[:EXCERPT]}"
    if api_key:
        message = message.replace(api_key, "***")
    if (status not in _RETRYABLE and status < SERVER_ERROR) or _is_final(document):
        raise TerminalError(message, code="model_refused")
    from async_nodes.egress.retry_after import retry_after

    code = "model_rate_limited" if status == TOO_MANY_REQUESTS else "model_error"
    raise RetryableError(message, code=code, retry_after=retry_after(response.headers))


def _is_final(document: Any) -> bool:
    error = document.get("error") if isinstance(document, dict) else None
    return isinstance(error, dict) and error.get("code") in _FINAL_CODES
