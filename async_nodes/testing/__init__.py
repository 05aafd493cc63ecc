"""Outermost: what tests of this product and of programs built on it can use.

`run_node` runs one node without a worker, `ModelServer` is a simulated model, and the module
``async_nodes.testing.nodes`` holds nodes that fail on request.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from async_nodes.testing.harness import MemoryFiles, Outcome, run_node
    from async_nodes.testing.model_script import ModelConfig
    from async_nodes.testing.model_server import ModelServer

__all__ = ["MemoryFiles", "ModelConfig", "ModelServer", "Outcome", "run_node"]

# Loaded when first used: a worker that wants only the test nodes has no use for a server.
_HOMES = {
    "MemoryFiles": "harness",
    "ModelConfig": "model_script",
    "ModelServer": "model_server",
    "Outcome": "harness",
    "run_node": "harness",
}


def __getattr__(name: str) -> Any:
    """Return a public name from the module that holds it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
