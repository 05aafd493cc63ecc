"""Step 5, expose: every error as a problem document (RFC 9457), from the one catalogue."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from werkzeug.exceptions import HTTPException

from async_nodes.core.errors import CATALOGUE, AsyncNodesError, ErrorKind
from async_nodes.core.strict_json import dumps

CONTENT_TYPE: Final = "application/problem+json"
MAX_DETAIL: Final = 1_000
MAX_INSTANCE: Final = 300
_CUT_ESCAPE: Final = re.compile("%[0-9A-F]?$")

_OWN_MEMBERS: Final = frozenset(
    {"type", "title", "status", "detail", "instance", "code", "retryable", "hint", "trace_id"}
)
_CODES: Final[Mapping[int, str]] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden_origin",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "not_acceptable_type",
    429: "queue_full",
    503: "store_unavailable",
}


def document(
    error: AsyncNodesError,
    *,
    language: str = "en",
    path: str = "",
    trace_id: str = "",
    base: str = "",
) -> dict[str, Any]:
    """Return the members of a problem.

    Args:
        error: what happened.
        language: ``en`` or ``zh``, of title and hint.
        path: of the request; shown percent-encoded, so that nothing of it is reflected raw.
        trace_id: by which the server's log knows the request.
        base: what our addresses begin with.

    """
    kind = error.kind
    title, hint = in_language(kind, language)
    members: dict[str, Any] = {
        "type": f"{base}/problems/{kind.code}",
        "title": title,
        "status": error.status,
        "detail": printable(error.detail),
        "code": kind.code,
        "retryable": error.retryable,
        "hint": hint,
    }
    if path:
        members["instance"] = _CUT_ESCAPE.sub("", quote(path)[:MAX_INSTANCE])
    if trace_id:
        members["trace_id"] = trace_id
    if error.pointer is not None:
        members["pointer"] = error.pointer
        members.setdefault("errors", [{"pointer": error.pointer, "detail": members["detail"]}])
    extra = {name: value for name, value in error.extra.items() if name not in _OWN_MEMBERS}
    return {**members, **extra}


def headers(error: AsyncNodesError, *, language: str = "en") -> dict[str, str]:
    """Return the headers that belong to a problem."""
    found = {"Cache-Control": "no-store", "Content-Language": language}
    if error.retry_after is not None:
        found["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if error.status == 401:  # noqa: PLR2004 - Unauthorized
        found["WWW-Authenticate"] = 'Bearer realm="async_nodes"'
    if error.code == "range_not_satisfiable":
        found["Content-Range"] = f"bytes */{error.extra['size']}"
    return found


def encode(members: Mapping[str, Any]) -> bytes:
    """Return a problem's bytes; text that cannot be UTF-8 is shown with question marks."""
    try:
        return dumps(members)
    except AsyncNodesError:
        harmless = {k: printable(str(v)) if isinstance(v, str) else v for k, v in members.items()}
        harmless.pop("errors", None)
        return dumps({k: v for k, v in harmless.items() if isinstance(v, str | int | bool)})


def from_http(error: HTTPException) -> AsyncNodesError:
    """Return what one of Werkzeug's errors is in our catalogue, with its own status."""
    status = error.code or 500
    code = _CODES.get(status, "bad_request" if status < 500 else "internal")  # noqa: PLR2004
    general = error.description == type(error).description  # says less than our own title
    found = AsyncNodesError(code, "" if general else str(error.description or ""))
    found.status = status
    return found


def in_language(kind: ErrorKind, language: str) -> tuple[str, str]:
    """Return the title and the hint of an entry of the catalogue."""
    if language == "zh":
        return kind.title_zh, kind.hint_zh
    return kind.title, kind.hint


def description(kind: ErrorKind) -> dict[str, Any]:
    """Return an entry of the catalogue as JSON members, in both languages."""
    return {
        "type": f"/problems/{kind.code}",
        "code": kind.code,
        "status": kind.status,
        "retryable": kind.retryable,
        "title": {"en": kind.title, "zh": kind.title_zh},
        "hint": {"en": kind.hint, "zh": kind.hint_zh},
    }


def known(code: str) -> ErrorKind | None:
    """Return the catalogue's entry of a code."""
    return CATALOGUE.get(code)


def printable(text: str) -> str:
    """Return a text without control characters and halves of surrogate pairs, shortened."""
    if len(text) > MAX_DETAIL:
        text = text[:MAX_DETAIL] + "…"
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)
