"""Step 5, expose: the socket that connections arrive at. Bound once, by whoever is started first.

Knows sockets only, and works in plain processes and in those patched by gevent.
"""

from __future__ import annotations

import errno
import socket
import sys
from typing import Final

from async_nodes.core.errors import AsyncNodesError

BACKLOG: Final = 1024


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket that does not block.

    Args:
        host: name or address, an IPv6 one with or without brackets.
        port: 0 for any free one.
        shared: whether other sockets may listen there, too.

    Raises:
        AsyncNodesError: ``port_busy``, or ``invalid_setting`` for a host that is not ours.

    """
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of a server that has just stopped do not count.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Most systems hand it on to the connections.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            taken = "is in use" if error.errno == errno.EADDRINUSE else "may not be used"
            raise AsyncNodesError("port_busy", f"{host}:{port} {taken}") from error
        raise AsyncNodesError(
            "invalid_setting", f"ASYNC_NODES_HOST: cannot listen on {host}: {error}"
        ) from error
    listener.setblocking(False)
    return listener


def bind_many(host: str, port: int, count: int) -> list[socket.socket]:
    """Return listening sockets among which the system spreads the connections.

    Only Linux does that evenly; elsewhere there is one, which all processes have to share.

    Raises:
        AsyncNodesError: as `bind`.

    """
    first = bind(host, port)
    if sys.platform != "linux" or count == 1:
        return [first]
    # That one was refused where anybody else listens; those that share would not be.
    port = first.getsockname()[1]
    first.close()
    return [bind(host, port, shared=True) for _ in range(count)]


def shown(address: tuple[str, int] | tuple[str, int, int, int]) -> str:
    """Return an address of a socket as it stands in a URL."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
