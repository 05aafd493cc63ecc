"""The Redis-compatible server that comes with the package, for machines that have none.

Outermost: it starts and ends a server process and hands out its URL. It knows nothing of tasks.
"""

from async_nodes.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
