"""Step 5, expose: a large body as it comes from the socket. In pieces, in time, with its digest.

Nothing here holds more than a piece. Knows HTTP, nothing of files or the store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, Final

import gevent
from gevent.monkey import is_module_patched
from werkzeug.wsgi import get_input_stream

from async_nodes.core.errors import AsyncNodesError

PIECE: Final = 256 << 10
PIECE_SECONDS: Final = 30.0
"""How long a client may take for a piece, or for the rest of its body."""

DIGESTS: Final = ("Content-Digest", "Repr-Digest", "Digest")
_ALGORITHMS: Final = {"sha-256": "sha256", "sha-512": "sha512"}
_MEMBER: Final = re.compile(r"([a-z0-9*_.-]+)\s*=\s*:([A-Za-z0-9+/=]*):", re.ASCII)
_LEGACY: Final = re.compile(r"([A-Za-z0-9-]+)=([A-Za-z0-9+/=]+)", re.ASCII)


class _LateError(Exception):
    """A piece did not arrive in time."""


def pieces(environ: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield a request's body.

    Raises:
        AsyncNodesError: ``bad_request`` when it ends early, ``upload_too_slow``.

    """
    stream = get_input_stream(dict(environ))
    while piece := _next(stream):
        yield piece


def _next(stream: Any) -> bytes:
    started = monotonic()
    try:
        with _limit():
            piece: bytes = stream.read(PIECE)
            return piece
    except _LateError:
        raise _too_slow() from None
    except (OSError, ValueError) as error:
        # A socket's own time-out comes as any other failure of it.
        if monotonic() - started >= PIECE_SECONDS - 1:
            raise _too_slow() from error
        raise AsyncNodesError("bad_request", "the body ended before its length") from error


def _limit() -> AbstractContextManager[object]:
    """Bound a read, where it waits in gevent's loop; elsewhere the server's own bound holds."""
    if not is_module_patched("socket"):
        return nullcontext()
    limit: AbstractContextManager[object] = gevent.Timeout(PIECE_SECONDS, _LateError())
    return limit


def _too_slow() -> AsyncNodesError:
    detail = f"{PIECE >> 10} KiB, or the rest of the body, did not arrive in {PIECE_SECONDS:g} s"
    return AsyncNodesError("upload_too_slow", detail)


class Digests:
    """Check a body against what its head says of it (RFC 9530, and the ``Digest`` before it).

    Args:
        headers: those of `DIGESTS` that there are. Algorithms other than SHA-256 and SHA-512 are
            passed over, as the standard asks.

    Raises:
        AsyncNodesError: ``bad_request``: a digest of a known algorithm cannot be read.

    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._wanted: list[tuple[Any, bytes]] = []
        for name in DIGESTS:
            pattern = _LEGACY if name == "Digest" else _MEMBER
            for algorithm, text in pattern.findall(headers.get(name, "")):
                known = _ALGORITHMS.get(algorithm.lower())
                if known:
                    self._wanted.append((hashlib.new(known), _decoded(name, known, text)))

    def passed(self, data: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what comes, and look at it.

        Raises:
            AsyncNodesError: ``digest_mismatch`` at the end.

        """
        for piece in data:
            for digest, _ in self._wanted:
                digest.update(piece)
            yield piece
        for digest, wanted in self._wanted:
            if not hmac.compare_digest(digest.digest(), wanted):
                raise AsyncNodesError(
                    "digest_mismatch", f"the body's {digest.name} is {digest.hexdigest()}"
                )


def _decoded(header: str, algorithm: str, text: str) -> bytes:
    try:
        value = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        value = b""
    if len(value) != hashlib.new(algorithm).digest_size:
        raise AsyncNodesError("bad_request", f"{header} holds no {algorithm} in base64")
    return value
