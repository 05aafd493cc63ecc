"""Beside the providers: a server's error, in its own words and under our codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOO_MANY_REQUESTS = 429
SERVER_ERROR = 500
EXCERPT = 500

_RETRYABLE = frozenset({408, 409, 425, TOO_MANY_REQUESTS})
# A 429 that no waiting heals.
_FINAL = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "exceeded_current_quota_error"}
)
_RATE_LIMITS = frozenset({"rate_limit_error", "rate_limit_exceeded"})


def refusal(
    status: int, raw: bytes, headers: Mapping[str, str], *, hide: Callable[[str], str]
) -> AsyncNodesError:
    """Return the error for an answer that is not 200.

    Args:
        status: the HTTP status.
        raw: the body, whatever it is.
        headers: for Retry-After.
        hide: takes secrets out of the server's words.

    Returns:
        A RetryableError (``model_rate_limited``, ``model_error``) for 429, 408, 409, 425 and 5xx,
        a TerminalError (``model_refused``) for the rest and for a quota that is used up.

    """
    text = raw.decode("utf-8", "replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = text
    message = f"the model server answered {status}: {hide(error_message(document))[:EXCERPT]}"
    if (status not in _RETRYABLE and status < SERVER_ERROR) or _names(document) & _FINAL:
        return TerminalError(message, code="model_refused")
    from async_nodes.egress.retry_after import retry_after

    code = "model_rate_limited" if status == TOO_MANY_REQUESTS else "model_error"
    return RetryableError(message, code=code, retry_after=retry_after(headers))


def reported(document: dict[str, Any], *, hide: Callable[[str], str]) -> RetryableError:
    """Return the error for what a server reports after it had answered 200."""
    message = f"the model server reported: {hide(error_message(document))[:EXCERPT]}"
    limited = bool(_names(document) & _RATE_LIMITS)
    return RetryableError(message, code="model_rate_limited" if limited else "model_error")


def error_message(document: Any) -> str:
    """Return a server's own words for an error, whichever of the usual shapes they have."""
    if isinstance(document, dict):
        error = document.get("error") or document.get("detail") or document.get("message")
        if isinstance(error, dict):
            error = error.get("message") or error
        return str(error or document)
    return str(document)


def hider(secret: str) -> Callable[[str], str]:
    """Return a function that takes a secret out of a text."""
    return lambda text: text.replace(secret, "***") if secret else text


def _names(document: Any) -> set[str]:
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return set()
    return {name for name in (error.get("code"), error.get("type")) if isinstance(name, str)}
