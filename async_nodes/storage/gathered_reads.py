"""Many greenlets' reads of keys as one command (part of the step *store*).

What is asked for in one turn of the loop goes out together, and a key that several ask for goes
out once. Each read is still made after it was asked for: nothing is remembered.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Protocol

from gevent.exceptions import InvalidSwitchError
from gevent.hub import get_hub
from greenlet import getcurrent

from async_nodes.storage.pipeline import Then

MAX_KEYS: Final = 64
"""Of one command: more would keep the server's other clients waiting."""


class _Link(Protocol):
    def ask(self, *args: str, then: Then) -> None: ...


class GatheredReads:
    """Read strings.

    Args:
        link: the process's shared connection.

    """

    def __init__(self, link: _Link) -> None:
        self._link = link
        self._hub: Any = get_hub()
        self._asked: dict[str, list[Any]] = {}

    def get(self, key: str) -> bytes | None:
        """Return what a key holds now, None for nothing; only the calling greenlet waits.

        Raises:
            StoreUnavailable, ResponseError: as `PipelinedConnection.call` does.

        """
        if not self._asked:
            self._hub.loop.run_callback(self._send)
        waiting, me = self._asked.setdefault(key, []), getcurrent()
        waiting.append(me)
        try:
            said = self._hub.switch()
        except BaseException:  # a kill or a gevent.Timeout: the answer finds nobody
            if me in waiting:
                waiting.remove(me)
            raise
        if not isinstance(said, tuple) or said[0] is not waiting:
            message = f"a greenlet waiting for a read was switched to with {said!r}"
            raise InvalidSwitchError(message)
        answer: bytes | Exception | None = said[1]
        if isinstance(answer, Exception):
            raise answer.with_traceback(None)  # others are told the same
        return answer

    # -- in the hub: nothing below may block --------------------------------------------------

    def _send(self) -> None:
        asked, self._asked = list(self._asked.items()), {}
        for start in range(0, len(asked), MAX_KEYS):
            some = asked[start : start + MAX_KEYS]
            try:
                self._link.ask("MGET", *(key for key, _ in some), then=partial(self._answer, some))
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked is told
                self._answer(some, error)

    def _answer(self, asked: list[tuple[str, list[Any]]], reply: Any) -> None:
        failed = isinstance(reply, Exception)
        for index, (_, waiting) in enumerate(asked):
            told = (waiting, reply if failed else reply[index])
            while waiting:
                waiting.pop(0).switch(told)
