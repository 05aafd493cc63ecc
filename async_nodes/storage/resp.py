"""RESP2, Redis' wire format: commands to bytes, bytes to replies (part of the step *store*).

hiredis does both in C. This module knows nothing of sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import hiredis

from async_nodes.storage.redis_errors import reply_error

if TYPE_CHECKING:
    from collections.abc import Sequence

Argument: TypeAlias = bytes | str | int | float
# bytes, int, None, ResponseError, or a list of these to any depth.
Reply: TypeAlias = Any

# What `Reader.gets` answers when the bytes so far end inside a reply; None and False are replies.
INCOMPLETE = object()


def pack(args: Sequence[Argument]) -> bytes:
    """Encode one command.

    Args:
        args: the command's name and its arguments, one item per word (`"CLIENT", "ID"`). Text is
            sent as UTF-8.

    Raises:
        TypeError: an argument is not bytes, str, int or float.
        ValueError: there is no command, or text that has no UTF-8 form.

    """
    if not args:
        msg = "a Redis command needs a name"
        raise ValueError(msg)
    try:
        packed: bytes = hiredis.pack_command(tuple(args))  # type: ignore[arg-type] # any length
    except TypeError:
        raise TypeError(_wrong_argument(args)) from None
    return packed


def _wrong_argument(args: Sequence[object]) -> str:
    for position, value in enumerate(args):
        if not isinstance(value, bytes | str | int | float):
            kind = type(value).__name__
            return f"item {position} of {args[0]!r} is a {kind}; bytes, str, int or float wanted"
    return f"an argument of {args[0]!r} cannot be sent"


def new_reader() -> hiredis.Reader:
    """Return a parser: `INCOMPLETE` when bytes are missing, error replies as exceptions."""
    return hiredis.Reader(replyError=reply_error, notEnoughData=INCOMPLETE)
