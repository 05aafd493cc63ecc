"""Step 5, expose: the answer to what is no request, or came to the wrong door.

It never reaches the app. Knows sockets and problems.
"""

from __future__ import annotations

import logging
import socket
from time import monotonic
from typing import Any, Final

from async_nodes.access import problems
from async_nodes.core.errors import AsyncNodesError

MAX_DRAINED: Final = 32 << 20
"""Bytes of a refused body that are read so that the client gets to see the refusal: most clients
send all of it before they look at the answer."""

DRAIN_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


def refuse(sock: Any, why: str) -> None:
    """Answer with a problem, and end the connection.

    Closing while the client still sends would take the answer away from it, so what it sends is
    read for a while.
    """
    until = monotonic() + DRAIN_SECONDS
    try:
        sock.sendall(_answer(why))
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(DRAIN_SECONDS)
        drained = 0
        while piece := sock.recv(64 << 10):
            drained += len(piece)
            if drained > MAX_DRAINED or monotonic() > until:
                return
    except OSError:
        log.debug("A refused client left", extra={"action": "client_left"})


def _answer(why: str) -> bytes:
    error = AsyncNodesError("bad_request", why)
    body = problems.encode(problems.document(error))
    head = (
        f"HTTP/1.1 {error.status} Bad Request\r\n"
        f"Content-Type: {problems.CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
