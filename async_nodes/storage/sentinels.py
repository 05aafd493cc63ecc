"""Find the server that Sentinels name, through whoever can ask them (part of the step *store*).

It stands where redis-py's own connections under Sentinel expect their pool, so that they look up
the server anew at each connect. Asking is handed in, because greenlets and native threads have
different sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError, ResponseError

from async_nodes.storage.redis_errors import StoreUnavailable, explained

if TYPE_CHECKING:
    from async_nodes.core.sentinel_urls import SentinelAddress
    from async_nodes.storage.resp import Reply

Ask = Callable[[str, str], "Reply"]
"""Send ``SENTINEL MASTER name`` to the Sentinel at an address of redis-py's; return its reply."""

_DOWN: Final = frozenset({"s_down", "o_down", "disconnected"})


_knew: dict[str, str] = {}
"""The Sentinel that last named a primary, by the address it is part of."""


class Sentinels:
    """Name the server that is the primary now.

    Args:
        address: of the Sentinels.
        ask: asks one of them.

    """

    is_master = True
    check_connection = False

    def __init__(self, address: SentinelAddress, ask: Ask) -> None:
        self.address = address
        self.service_name = address.name
        self._key = address.url
        self._ask = ask

    def get_master_address(self) -> tuple[str, int]:
        """Return host and port; from now on everybody asks the Sentinel that knew them first.

        Raises:
            ConnectionError: none of them knows a primary that lives.

        """
        refusals: list[str] = []
        known = _knew.get(self._key)
        for url in sorted(self.address.sentinel_urls(), key=lambda one: one != known):
            place = url.rpartition("@")[2].removeprefix("redis://").removeprefix("rediss://")
            place = place.partition("/")[0]
            try:
                facts = facts_of(self._ask(url, self.address.name))
            except (OSError, RedisError, StoreUnavailable) as error:
                refusals.append(f"{place}: {explained(error)}")
                continue
            why_not = _why_not(facts, self.address.others)
            if why_not is None:
                _knew[self._key] = url
                return facts["ip"], int(facts["port"])
            refusals.append(f"{place}: {why_not}")
        message = f"no Sentinel names a primary for {self.address.name!r} ({'; '.join(refusals)})"
        raise ConnectionError(message)


def facts_of(reply: Reply) -> dict[str, str]:
    """Return a Sentinel's flat list of names and values as a mapping.

    Raises:
        ResponseError: the reply is something else.

    """
    if isinstance(reply, ResponseError):
        raise reply
    if isinstance(reply, Mapping):
        return {_text(name): _text(value) for name, value in reply.items()}
    if not isinstance(reply, list) or not {b"ip", b"port", b"flags"} <= set(reply[::2]):
        message = "this is no answer of a Sentinel"
        raise ResponseError(message)
    words = [_text(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _why_not(facts: Mapping[str, str], others: int) -> str | None:
    """Return why what a Sentinel says is of no use, None if it is."""
    flags = set(facts["flags"].split(","))
    if "master" not in flags:
        return "it watches no primary"
    if flags & _DOWN:
        return "the primary is down"
    if int(facts.get("num-other-sentinels", 0)) < others:
        return f"it knows of fewer than {others} other Sentinels"
    return None


def _text(word: Any) -> str:
    return word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word)
