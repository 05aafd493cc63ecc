"""async_nodes: run the slow nodes of an LLM workflow outside the request that asked for them.

The way of a task through the package is: submit → dispatch → execute → store → expose.
"""

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.core.retry import RetryPolicy

__all__ = ["AsyncNodesError", "RetryPolicy", "RetryableError", "TerminalError"]
