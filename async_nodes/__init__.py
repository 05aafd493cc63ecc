"""async_nodes: run the slow nodes of an LLM workflow outside the request that asked for them.

The way of a task through the package is: submit → dispatch → execute → store → expose.

    from async_nodes import node

    @node("text.shout")
    def shout(text: str) -> str:
        return text.upper()
"""

from typing import TYPE_CHECKING, Any

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.core.retry import RetryPolicy
from async_nodes.version import __version__

if TYPE_CHECKING:
    from async_nodes.access.mount import blueprint
    from async_nodes.core.breaker import Breaker, Degraded
    from async_nodes.core.context import ScopeContext
    from async_nodes.nodes.context import NodeContext
    from async_nodes.nodes.files import File
    from async_nodes.nodes.protection import Hedge, LastGood, OtherNode
    from async_nodes.nodes.spec import node

__all__ = [
    "AsyncNodesError",
    "Breaker",
    "Degraded",
    "File",
    "Hedge",
    "LastGood",
    "NodeContext",
    "OtherNode",
    "RetryPolicy",
    "RetryableError",
    "ScopeContext",
    "TerminalError",
    "__version__",
    "blueprint",
    "node",
]

_LAZY = {
    "Breaker": "async_nodes.core.breaker",
    "Degraded": "async_nodes.core.breaker",
    "Hedge": "async_nodes.nodes.protection",
    "LastGood": "async_nodes.nodes.protection",
    "OtherNode": "async_nodes.nodes.protection",
    "File": "async_nodes.nodes.files",
    "blueprint": "async_nodes.access.mount",
    "NodeContext": "async_nodes.nodes.context",
    "ScopeContext": "async_nodes.core.context",
    "node": "async_nodes.nodes.spec",
}


def __getattr__(name: str) -> Any:
    """Import the node kit when it is first asked for: a command that needs none starts faster."""
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
