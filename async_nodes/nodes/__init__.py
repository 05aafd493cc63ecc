"""Step 3, execute: what a node is, which nodes there are, and how a body is called.

Modules in here are cheap to import; what is heavy is imported inside the bodies. All nodes by
their names: ``async_nodes.nodes.registry.registry()``.
"""

from async_nodes.nodes.context import NodeContext
from async_nodes.nodes.invoke import invoke, invoke_async
from async_nodes.nodes.registry import Registry, UnknownNodeError
from async_nodes.nodes.spec import NodeSpec, node

__all__ = [
    "NodeContext",
    "NodeSpec",
    "Registry",
    "UnknownNodeError",
    "invoke",
    "invoke_async",
    "node",
]
