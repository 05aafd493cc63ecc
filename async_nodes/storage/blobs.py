"""Step 4, store: named bytes that a tenant's nodes keep from one task to the next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redis.exceptions import OutOfMemoryError

from async_nodes.core.errors import TerminalError
from async_nodes.storage.redis_errors import StoreFull

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

MAX_BLOB = 16 << 20
MAX_TTL = 30 * 86_400.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
SECONDS = 10.0


class Blobs:
    """Keep one tenant's blobs in Redis.

    Args:
        store: where.
        tenant: whose.

    """

    def __init__(self, store: RedisStore, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def put(self, name: str, data: bytes, *, seconds: float) -> None:
        """Keep bytes under a name, in place of what was there.

        Args:
            name: 1 to 100 letters, digits, ``.``, ``_`` and ``-``; begins with no sign.
            data: at most `MAX_BLOB` bytes.
            seconds: how long; at most `MAX_TTL`.

        Raises:
            TerminalError: ``invalid_inputs`` or ``output_too_large``.
            StoreUnavailable: the server has no room or did not answer; putting again is harmless.

        """
        key = self._key(name)
        if not 0 < seconds <= MAX_TTL:
            raise TerminalError(
                f"a blob is kept for at most {MAX_TTL:g} seconds", code="invalid_inputs"
            )
        if len(data) > MAX_BLOB:
            message = f"the blob {name!r} has {len(data):,} bytes; {MAX_BLOB:,} are allowed"
            raise TerminalError(message, code="output_too_large")
        try:
            self._store.link.call("SET", key, data, "PX", int(seconds * 1000), timeout=SECONDS)
        except OutOfMemoryError as error:
            raise StoreFull(f"the store has no room for {name!r}") from error

    def get(self, name: str, *, start: int = 0, end: int = -1) -> bytes:
        """Return the bytes from `start` to `end` (inclusive); empty where there are none."""
        key = self._key(name)
        found = self._store.link.call("GETRANGE", key, start, end, timeout=SECONDS)
        return found if isinstance(found, bytes) else b""

    def _key(self, name: str) -> str:
        if not NAME.fullmatch(name):
            message = f"{name[:100]!r} is no name: letters, digits, '.', '_' and '-', at most 100"
            raise TerminalError(message, code="invalid_inputs")
        return self._store.keys.blob(self._tenant, name)
