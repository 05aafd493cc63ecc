"""Gathered reads over few connections (part of the step *store*).

As many commands are under way as there are connections; what is asked for meanwhile goes out
together with the next. Who would wait for longer than a connection may be waited for is refused.
"""

from __future__ import annotations

from typing import Any

from async_nodes.storage.gathered_reads import MAX_KEYS, GatheredReads
from async_nodes.storage.pooled import WAIT, PooledConnection
from async_nodes.storage.redis_errors import StoreBusy


class PacedReads(GatheredReads):
    """Read strings.

    Args:
        link: the process's connections.
        size: how many they are.

    """

    def __init__(self, link: PooledConnection, size: int) -> None:
        super().__init__(link)
        self._most = size
        self._under_way = 0
        self._patience: Any = None

    # -- in the hub: nothing below may block --------------------------------------------------

    def _send(self) -> None:
        if not self._asked:
            return
        if self._under_way >= self._most:
            if self._patience is None:
                self._patience = self._hub.loop.timer(WAIT)
                self._patience.start(self._refuse)
            return
        self._forget_patience()
        rest = dict(list(self._asked.items())[MAX_KEYS:])
        self._asked = dict(list(self._asked.items())[:MAX_KEYS])
        self._under_way += 1
        super()._send()
        if rest:
            self._asked = rest
            self._hub.loop.run_callback(self._send)

    def _answer(self, asked: list[tuple[str, list[Any]]], reply: Any) -> None:
        self._under_way -= 1
        super()._answer(asked, reply)
        if self._asked:
            self._send()

    def _forget_patience(self) -> None:
        if self._patience is not None:
            self._patience.stop()
            self._patience.close()
            self._patience = None

    def _refuse(self) -> None:
        self._forget_patience()
        asked, self._asked = list(self._asked.items()), {}
        self._under_way += 1  # which this answer takes off again
        self._answer(asked, StoreBusy(f"all {self._most} connections to Redis are in use"))
