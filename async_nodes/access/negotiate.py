"""Step 5, expose: what a request's headers ask for, read once and answered in plain values.

Pure functions over header texts; knows neither Flask nor tasks.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.telemetry.tracing import flags_of

MAX_WAIT: Final = 30.0
MAX_KEY: Final = 255
EVENT_STREAM: Final = "text/event-stream"

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?",
    re.ASCII,
)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_BARE_KEY = re.compile(r"[!-~]{1,255}", re.ASCII)
_QUOTED_KEY = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"', re.ASCII)
_WAIT = re.compile(
    r"(?:^|,)\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?=$|[,;])", re.ASCII | re.IGNORECASE
)
_WEIGHT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,400}(\.[0-9]{1,400})?(e[+-]?[0-9]{1,4})?", re.ASCII | re.IGNORECASE)
"""A number as JSON writes it, and so the programs that write a float into a query."""


def wait_seconds(prefer: str | None, query: str | None) -> float:
    """Return how many seconds the client wants its answer held, 0 to 30.

    Args:
        prefer: the header ``Prefer`` (RFC 7240); what it says wrongly is ignored, as asked there.
        query: the parameter ``wait``, which goes before the header.

    Raises:
        AsyncNodesError: ``bad_request``: the parameter is no number.

    """
    if query is not None:
        if not _SECONDS.fullmatch(query):
            raise AsyncNodesError("bad_request", "wait must be a number of seconds, 0 to 30")
        return min(float(query), MAX_WAIT)
    found = _WAIT.search(prefer) if prefer else None
    return min(float(found[1]), MAX_WAIT) if found else 0.0


def idempotency_key(header: str | None) -> str:
    """Return the key in ``Idempotency-Key``, empty without one.

    Both spellings are taken: the structured-field string ``"key"`` and the bare ``key``.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    if header is None:
        return ""
    quoted = _QUOTED_KEY.fullmatch(header)
    key = re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else header
    good = bool(quoted) or (_BARE_KEY.fullmatch(header) and not header.startswith('"'))
    if not good or not key.strip() or len(key) > MAX_KEY:
        raise AsyncNodesError(
            "bad_request", f"Idempotency-Key must be 1 to {MAX_KEY} visible ASCII characters"
        )
    return key


def matches(if_none_match: str | None, etag: str) -> bool:
    """Tell whether ``If-None-Match`` names this version, by weak comparison (RFC 9110, 13.1.2)."""
    if not if_none_match:
        return False
    named = (item.strip().removeprefix("W/") for item in if_none_match.split(","))
    return any(item in (etag, "*") for item in named)


def wants_events(accept: str | None) -> bool:
    """Tell whether ``Accept`` asks for an event stream before it asks for JSON by name."""
    return bool(accept) and _better(accept or "", EVENT_STREAM, "application/json")


def wants_page(accept: str | None) -> bool:
    """Tell whether ``Accept`` asks for a page before it asks for JSON by name: a browser."""
    return bool(accept) and _better(accept or "", "text/html", "application/json")


def language(accept_language: str | None) -> str:
    """Return ``zh`` or ``en``, whichever ``Accept-Language`` prefers; English when it is even."""
    weights = {"zh": 0.0, "en": 0.0}
    for name, weight in _weighted(accept_language or ""):
        base = name.partition("-")[0]
        if base in weights:
            weights[base] = max(weights[base], weight)
    return "zh" if weights["zh"] > weights["en"] else "en"


def traceparent(header: str | None) -> str:
    """Return the caller's trace (W3C Trace Context), or a new one when it has none that is valid.

    A later version of the format is passed on as the first one, which is all we know of it.
    """
    text = (header or "").strip()
    if len(text) <= MAX_KEY and _TRACEPARENT.fullmatch(text):
        if text[:2] == "00" and len(text) > _VERSION_0:
            return new_traceparent()
        return f"00{text[2:_VERSION_0]}"
    return new_traceparent()


_VERSION_0: Final = 55  # characters of a traceparent of version 00


def new_traceparent() -> str:
    """Return the start of a trace of our own, sampled where this process samples it."""
    trace_id = secrets.token_hex(16)
    return f"00-{trace_id}-{secrets.token_hex(8)}-{flags_of(trace_id)}"


def request_id(header: str | None) -> str:
    """Return the client's ``X-Request-ID`` when it is harmless, or a new one."""
    if header and _REQUEST_ID.fullmatch(header):
        return header
    return secrets.token_hex(8)


def _better(accept: str, wanted: str, other: str) -> bool:
    weights = {wanted: 0.0, other: 0.0}
    for name, weight in _weighted(accept):
        if name in weights:
            weights[name] = max(weights[name], weight)
    return weights[wanted] > 0 and weights[wanted] >= weights[other]


def _weighted(header: str) -> Iterator[tuple[str, float]]:
    """Yield the items of a header such as ``a;q=0.5, b`` in lower case with their weights."""
    for item in header.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                good = _WEIGHT.fullmatch(value.strip())
                weight = min(float(value), 1.0) if good else 0.0
        yield name, weight
