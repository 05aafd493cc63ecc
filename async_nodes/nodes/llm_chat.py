"""Built-in node ``llm.chat``: ask a language model of any provider, streamed.

What is tried again and what is final is said in `llm_call`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.nodes.providers.exchange import AZURE_API_VERSION, Ask, Provider, Server
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Generator

    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.providers.exchange import Piece


@node("llm.chat", redact=("api_key",), coalesce=0.02)
def llm_chat(  # noqa: PLR0913 - the inputs of a chat completion
    ctx: NodeContext,
    model: str,
    messages: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)],
    *,
    provider: Provider = "openai",
    base_url: str = "",
    api_key: str = "",
    deployment: str = "",
    api_version: str = AZURE_API_VERSION,
    temperature: float | None = None,
    top_p: float | None = None,
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None,
    stop: list[str] | str | None = None,
    seed: int | None = None,
    tools: list[dict[str, Any]] | None = None,
    tool_choice: str | dict[str, Any] | None = None,
    schema: dict[str, Any] | None = None,
    response_format: dict[str, Any] | None = None,
    stream: bool = True,
    include_usage: bool = True,
    show_reasoning: bool = False,
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] = 60_000,
    hedge_ms: Annotated[int, msgspec.Meta(ge=0, le=3_600_000)] | None = None,
    extra: dict[str, Any] | None = None,
) -> Generator[Piece, None, dict[str, Any] | str]:
    """Ask a language model and stream its answer.

    Args:
        ctx: the attempt's context.
        model: the model's name.
        messages: the conversation, ``{role, content}`` each, as OpenAI writes it.
        provider: whose API the server speaks.
        base_url: the server's root, ``https://host/v1``; the provider's own when empty.
        api_key: sent in the header the provider wants, never shown in the record.
        deployment: Azure's name for the model; the model's own when empty.
        api_version: Azure's only.
        temperature: passed on when given, like the next four.
        top_p: share of the probability to draw from.
        max_tokens: most tokens of the answer; 4,096 where the provider must be told.
        stop: where the answer ends.
        seed: for servers that can repeat an answer.
        tools: what the model may call: ``{name, description, parameters}``, or as OpenAI has it.
        tool_choice: ``auto``, ``none``, ``required`` or the name of a tool.
        schema: JSON schema; the output is then an object that fits it.
        response_format: OpenAI's, for how a schema is sent or for an object without a schema.
        stream: ask the server to stream; otherwise the text comes as one chunk.
        include_usage: ask for token counts in a stream; for servers that refuse the option.
        show_reasoning: stream what a model thinks as data chunks ``{"reasoning_delta": text}``.
        timeout_ms: longest silence, the wait for the first token included. The task's own
            time-out bounds the whole.
        hedge_ms: after so long without an answer's beginning a second request is sent beside the
            first, and the first answer wins; 0: after the P95 of those before. At most one request
            in ten has a second one.
        extra: further members of the request body, in the provider's own words.

    Returns:
        The answer's text; with a schema the object; with tools, or when a tool is called,
        ``{text, tool_calls: [{id, name, arguments}], finish_reason}``.

    """
    from async_nodes.nodes.llm_call import chat

    server = Server(
        provider=provider,
        base_url=base_url,
        api_key=api_key,
        deployment=deployment,
        api_version=api_version,
    )
    ask = Ask(
        model=model,
        messages=messages,
        stream=stream,
        include_usage=include_usage,
        temperature=temperature,
        top_p=top_p,
        max_tokens=max_tokens,
        stop=stop,
        seed=seed,
        tools=tools,
        tool_choice=tool_choice,
        schema=schema,
        response_format=response_format,
        extra=extra,
    )
    reply = yield from chat(
        ctx,
        ask,
        server,
        timeout=timeout_ms / 1000,
        show_reasoning=show_reasoning,
        hedge=None if hedge_ms is None else hedge_ms / 1000,
    )
    ctx.usage(**reply.usage)
    if reply.value is not None:
        return reply.value
    if not tools and not reply.tool_calls:
        return reply.text
    return {
        "text": reply.text,
        "tool_calls": reply.tool_calls,
        "finish_reason": reply.finish_reason,
    }
