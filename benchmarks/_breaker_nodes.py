"""The two nodes of the breaker's gate: one protected, one not, else the same."""

from __future__ import annotations

import os
from typing import Any, Final

from async_nodes import Breaker, NodeContext, node

TIMEOUT_MS: Final = 800
BUSY: Final = "busy"


def _ask(ctx: NodeContext, base_url: str, model: str) -> str:
    from async_nodes.nodes.llm_call import chat
    from async_nodes.nodes.providers.exchange import Ask, Server

    ask = Ask(model=model, messages=[{"role": "user", "content": "hello"}])
    server = Server(base_url=base_url)
    text = ""
    for piece in chat(ctx, ask, server, timeout=TIMEOUT_MS / 1000):
        text += piece if isinstance(piece, str) else ""
    return text


@node("gate.unprotected")
def unprotected(ctx: NodeContext, base_url: str, model: str) -> Any:
    """Ask the model."""
    return _ask(ctx, base_url, model)


@node(
    "gate.protected",
    breaker=Breaker(
        window=float(os.environ.get("GATE_WINDOW", "10")),
        open_seconds=float(os.environ.get("GATE_OPEN", "30")),
    ),
    fallback=BUSY,
)
def protected(ctx: NodeContext, base_url: str, model: str) -> Any:
    """Ask the model while it answers."""
    return _ask(ctx, base_url, model)
