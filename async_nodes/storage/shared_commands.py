"""Which commands may travel on a connection that many callers share (part of the step *store*)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from async_nodes.storage.resp import Argument, pack

if TYPE_CHECKING:
    from collections.abc import Sequence


def _spellings(names: str) -> frozenset[object]:
    texts = [*names.split(), *names.lower().split()]
    return frozenset([*texts, *(text.encode() for text in texts)])


_BLOCKS_EVERYONE = _spellings(
    "BLPOP BRPOP BLMOVE BRPOPLPUSH BLMPOP BZPOPMIN BZPOPMAX BZMPOP WAIT WAITAOF MONITOR SYNC PSYNC"
)
_CHANGES_THE_CONNECTION = _spellings(
    "AUTH HELLO SELECT RESET QUIT MULTI EXEC DISCARD WATCH UNWATCH SUBSCRIBE PSUBSCRIBE SSUBSCRIBE "
    "UNSUBSCRIBE PUNSUBSCRIBE SUNSUBSCRIBE ASKING READONLY READWRITE"
)
_STREAM_READS, _BLOCK = _spellings("XREAD XREADGROUP"), _spellings("BLOCK")
_CLIENT, _CLIENT_REFUSED = _spellings("CLIENT"), _spellings("REPLY TRACKING SETNAME")
_SUSPECTS = _BLOCKS_EVERYONE | _CHANGES_THE_CONNECTION | _STREAM_READS | _CLIENT


def pack_shared(args: Sequence[Argument]) -> bytes:
    """Encode one command, refusing those that would block or change a shared connection.

    Raises:
        TypeError: an argument is not bytes, str, int or float.
        ValueError: there is no command, or it needs a connection of its own.

    """
    packed = pack(args)
    if args[0] in _SUSPECTS and not _may_be_shared(args):
        name = args[0].decode() if isinstance(args[0], bytes) else args[0]
        raise ValueError(f"{name} needs a connection of its own: this one is shared by all callers")
    return packed


def _may_be_shared(args: Sequence[Argument]) -> bool:
    name = args[0]
    if name in _STREAM_READS:
        return _BLOCK.isdisjoint(args)
    if name in _CLIENT:
        return _CLIENT_REFUSED.isdisjoint(args[1:2])
    return False
