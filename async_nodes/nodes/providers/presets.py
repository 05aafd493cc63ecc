"""Beside the providers: which of them speaks what, and where.

An address stands here only when the provider's own documentation names it as the base URL for
clients of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from async_nodes.nodes.providers import anthropic, ollama, openai, vectors
from async_nodes.nodes.providers.answer import Answer
from async_nodes.nodes.providers.exchange import Ask, Call, Provider, Server
from async_nodes.nodes.providers.stream import Reader
from async_nodes.nodes.providers.tools import refuse


class BuildChat(Protocol):
    """Write a chat's request."""

    def __call__(self, ask: Ask, server: Server, *, knows_schema: bool) -> Call:
        """Return the call."""


class BuildVectors(Protocol):
    """Write a request for embeddings."""

    def __call__(
        self,
        texts: list[str],
        server: Server,
        *,
        model: str,
        dimensions: int | None,
        encoding: vectors.Encoding,
    ) -> Call:
        """Return the call."""


ReadVectors = Callable[
    [dict[str, Any], Callable[[str], str]], tuple[vectors.Vectors, dict[str, int]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Say how a provider is spoken to.

    Attributes:
        build: writes a chat's request.
        reader: makes a reader of its answer.
        base_url: where the provider is, or empty when everybody has an address of their own.
        example: what an address looks like, for those.
        knows_schema: whether its server takes a JSON schema for the answer.
        build_vectors, read_vectors: the same for embeddings, or None without them.

    """

    build: BuildChat = openai.build
    reader: Callable[[Answer, Ask], Reader] = openai.OpenAIReader
    base_url: str = ""
    example: str = "https://host/v1"
    knows_schema: bool = True
    build_vectors: BuildVectors | None = vectors.build_openai
    read_vectors: ReadVectors = vectors.read_openai


_QWEN = Preset(
    base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
    knows_schema=False,
)

PRESETS: dict[Provider, Preset] = {
    "openai": Preset(base_url="https://api.openai.com/v1"),
    "azure": Preset(
        build=openai.build_azure,
        example="https://RESOURCE.openai.azure.com",
        build_vectors=vectors.build_azure,
    ),
    "anthropic": Preset(
        build=anthropic.build,
        reader=anthropic.AnthropicReader,
        base_url="https://api.anthropic.com",
        build_vectors=None,
    ),
    "ollama": Preset(
        build=ollama.build,
        reader=ollama.OllamaReader,
        base_url="http://127.0.0.1:11434",
        build_vectors=vectors.build_ollama,
        read_vectors=vectors.read_ollama,
    ),
    # Its own default, port 8000 of this machine, is ours as well: say where it is.
    "vllm": Preset(example="http://127.0.0.1:8010/v1"),
    "deepseek": Preset(base_url="https://api.deepseek.com/v1", knows_schema=False),
    "qwen": _QWEN,
    "dashscope": _QWEN,
    "moonshot": Preset(base_url="https://api.moonshot.cn/v1", knows_schema=False),
    "zhipu": Preset(base_url="https://open.bigmodel.cn/api/paas/v4", knows_schema=False),
    "siliconflow": Preset(base_url="https://api.siliconflow.cn/v1", knows_schema=False),
    "mistral": Preset(base_url="https://api.mistral.ai/v1"),
    "groq": Preset(base_url="https://api.groq.com/openai/v1", knows_schema=False),
    "openrouter": Preset(base_url="https://openrouter.ai/api/v1"),
    "xai": Preset(base_url="https://api.x.ai/v1"),
}

# What a header may hold: a line break at the end of a pasted key would else be shown in an error.
_KEY = re.compile(r"[\x21-\x7e]*")


def resolved(server: Server) -> tuple[Preset, Server]:
    """Return a provider's preset, and the server with its address filled in.

    Raises:
        TerminalError: ``invalid_inputs`` for an address that is missing or has a query, and for a
            key that no header may hold.

    """
    preset = PRESETS[server.provider]
    address = (server.base_url or preset.base_url).rstrip("/")
    if not address:
        refuse(f"{server.provider} needs a base_url, such as {preset.example}")
    if "?" in address or "#" in address:
        refuse("base_url must be an address without a query")
    if not _KEY.fullmatch(server.api_key):
        refuse("api_key holds a space, a line break or another character that no header may hold")
    return preset, replace(server, base_url=address)
