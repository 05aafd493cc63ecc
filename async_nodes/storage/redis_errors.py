"""What can go wrong between this process and Redis (part of the step *store*).

    AsyncNodesError
    └── StoreUnavailable      the server did not answer; the base of all below
        ├── NotSent           the command certainly did not reach the server: safe to send again
        ├── StoreFull         the server is out of memory and takes no new data
        ├── StoreBusy         too many commands wait already; this one was not queued
        └── OutcomeUnknown    the command may or may not have run: send it again only if that is
                              harmless, or ask the server what happened

An answer that *is* an error (`NOSCRIPT …`, `READONLY …`) is no failure of the connection: it is
raised as redis-py's own `ResponseError` or the subclass for its prefix.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ExecAbortError,
    MasterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from async_nodes.core.errors import AsyncNodesError

READONLY, NOREPLICAS = "READONLY", "NOREPLICAS"
"""The first words of refusals to write: by a replica, and by a primary that is cut off from its."""

_PREFIXES: dict[str, type[ResponseError]] = {
    "ASK": AskError,
    "CLUSTERDOWN": ClusterDownError,
    "EXECABORT": ExecAbortError,
    "MASTERDOWN": MasterDownError,
    "MOVED": MovedError,
    "NOPERM": NoPermissionError,
    "NOSCRIPT": NoScriptError,
    "OOM": OutOfMemoryError,
    "READONLY": ReadOnlyError,
    "TRYAGAIN": TryAgainError,
}
# These read "slot host:port" from the message and do not take the prefix along.
_REDIRECTS = frozenset({"ASK", "MOVED"})


class StoreUnavailable(AsyncNodesError):
    """Report that Redis did not answer.

    Args:
        detail: what happened this time.
        retry_after: seconds after which a new try makes sense.

    """

    catalogue_code = "store_unavailable"

    def __init__(self, detail: str, *, retry_after: float = 1.0) -> None:
        super().__init__(self.catalogue_code, detail, retry_after=retry_after)


class NotSent(StoreUnavailable):
    """Report a command that certainly did not reach the server."""


class StoreBusy(StoreUnavailable):
    """Report a command that was not even queued, because too much waits already."""

    catalogue_code = "store_busy"


class StoreFull(StoreUnavailable):
    """Report data that the server did not take because its memory is used up."""


class OutcomeUnknown(StoreUnavailable):
    """Report a command that may have run although its answer will never be read."""

    catalogue_code = "outcome_unknown"


def reply_error(message: str) -> ResponseError:
    """Return the exception for an error reply, chosen by the reply's first word.

    The message keeps the prefix (redirections apart); `status_code` holds it too.
    """
    prefix, _, rest = message.partition(" ")
    code = prefix if prefix.isupper() else None
    kind = _PREFIXES.get(prefix, ResponseError)
    return kind(rest if prefix in _REDIRECTS else message, status_code=code)


def explained(error: BaseException) -> str:
    """Return why a server cannot be reached, in words that name what a person can change.

    Neither Python's nor redis-py's messages hold a password.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message or cause}"
        if isinstance(cause, ssl.SSLError) and cause.reason:
            return f"TLS failed: {cause.reason.lower().replace('_', ' ')}"
        if isinstance(cause, AuthenticationError):
            return f"it refuses the user or the password: {cause}"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def answered(reply: Any, doubt: Callable[[str], None]) -> Any:
    """Return a reply, or raise it if it is an error.

    Args:
        reply: to one command.
        doubt: told that the server may not be the primary any more, where the error says so.

    """
    if isinstance(reply, ResponseError):
        if isinstance(reply, ReadOnlyError):
            doubt(READONLY)
        raise reply
    return reply
