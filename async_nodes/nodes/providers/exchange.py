"""Beside the providers: what is asked of a model and what it has said, the same for every wire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

AZURE_API_VERSION = "2024-10-21"

Provider = Literal[
    "openai",
    "azure",
    "anthropic",
    "ollama",
    "vllm",
    "deepseek",
    "qwen",
    "dashscope",
    "moonshot",
    "zhipu",
    "siliconflow",
    "mistral",
    "groq",
    "openrouter",
    "xai",
]

Piece = str | dict[str, Any]
"""Text, ``{"tool_call": {index, id, name, arguments_delta}}`` or ``{"reasoning_delta": text}``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Say where a model is.

    Attributes:
        provider: a name of `presets.PRESETS`.
        base_url: the root of its API; empty for the preset's own.
        api_key: sent in the header that the provider wants, never shown.
        deployment: Azure's name for the model; the model's own when empty.
        api_version: Azure's only.

    """

    provider: Provider = "openai"
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    deployment: str = ""
    api_version: str = AZURE_API_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Say what a model is asked; each wire writes it in its own way.

    Attributes:
        model: the model's name.
        messages: the conversation as OpenAI writes it; ``tool_calls`` as `Reply` has them work too.
        stream: ask for a stream.
        include_usage: ask an OpenAI-compatible server for token counts in a stream.
        temperature, top_p, max_tokens, stop, seed: passed on when given.
        tools: what the model may call, as OpenAI writes it or ``{name, description, parameters}``.
        tool_choice: ``auto``, ``none``, ``required``, a tool's name, or OpenAI's object.
        schema: JSON schema of the answer, an object's.
        response_format: OpenAI's; says how a schema is sent, or asks for any object.
        extra: further members of the body, in the provider's own words.

    """

    model: str
    messages: list[dict[str, Any]]
    stream: bool = True
    include_usage: bool = True
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: list[str] | str | None = None
    seed: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    schema: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    extra: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Hold one HTTP request to a provider: a POST with a JSON body."""

    url: str
    headers: dict[str, str] = field(repr=False)
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Hold a whole answer.

    Attributes:
        text: what the model said, reasoning apart.
        tool_calls: ``{id, name, arguments}`` each; the arguments are an object, or the text as it
            came when that is no JSON object.
        finish_reason: ``stop``, ``length``, ``tool_calls``, ``content_filter`` or the server's own.
        usage: ``prompt_tokens``, ``completion_tokens``, ``total_tokens`` and, where the server
            tells them, ``cached_tokens`` (part of the prompt's) and ``reasoning_tokens`` (part of
            the completion's).
        value: the object, when a schema or a JSON object was asked for and no tool was called.

    """

    text: str
    tool_calls: list[dict[str, Any]]
    finish_reason: str | None
    usage: dict[str, int]
    value: dict[str, Any] | None = None
