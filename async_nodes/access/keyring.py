"""Step 5, expose: the keys of the store as one web process knows them.

They are read at most once a second, by the request that finds them old, and believed in between:
a key costs a request one look-up, and a revoked one opens nothing after a second. While the store
is away, what was known counts.
"""

from __future__ import annotations

import hmac
import time
from typing import TYPE_CHECKING, Final

from async_nodes.core.api_keys import PREFIX, Caller, digest
from async_nodes.core.errors import AsyncNodesError
from async_nodes.storage.api_keys import ApiKeys, KeptKey
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.access.services import Provider

FRESH: Final = 1.0
"""Seconds for which the keys are believed."""

SOONER: Final = 0.05
"""Seconds after which they are read again for a key that is not among them: it may be new. Whoever
guesses waits for that, and costs the store no more."""

READ_TIMEOUT: Final = 0.3


class Keyring:
    """Know the keys.

    Args:
        provider: gives the services.
        clock: seconds that only rise.
        sleep: waits for so many seconds.

    Attributes:
        generation: another number whenever the keys have changed.

    """

    def __init__(
        self,
        provider: Provider,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._provider = provider
        self._clock = clock
        self._sleep = sleep
        self._known: dict[bytes, KeptKey] = {}
        self._read_at: float | None = None
        self.generation = 0

    def caller(self, key: str) -> Caller | None:
        """Return who sends a request with this key, None for nobody known.

        Raises:
            StoreUnavailable: the keys were never read.

        """
        self.refresh(FRESH)
        sought = digest(key)
        found = self._known.get(sought)
        if found is None and key.startswith(PREFIX):
            read_at = self._read_at or 0.0
            self._sleep(max(read_at + SOONER - self._clock(), 0.0))
            self.refresh(SOONER)
            found = self._known.get(sought)
        # The digest of a secret nobody can steer; compared once more in constant time all the same.
        if found is None or not hmac.compare_digest(found.sha256, sought):
            return None
        return found.caller

    def refresh(self, age: float = FRESH) -> None:
        """Read the keys again if they are so many seconds old."""
        now = self._clock()
        if self._read_at is not None and now < self._read_at + age:
            return
        before, self._read_at = self._read_at, now  # others need not ask at the same time
        try:
            kept = ApiKeys(self._provider().store).all(timeout=READ_TIMEOUT)
        except AsyncNodesError as error:
            if before is None:
                self._read_at = None
                raise StoreUnavailable("the API keys cannot be read yet") from error
            return
        known = {one.sha256: one for one in kept}
        if known != self._known:
            self._known = known
            self.generation += 1
