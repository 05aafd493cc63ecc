"""The simulated model, written: HTTP's frames, errors, and an answer's parts. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_SERVER_ERROR = 500
_TELLS_WHEN = (429, 503)

Style = Literal["openai", "anthropic", "ollama"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Count an answer's tokens; `cached` of the prompt's and `reasoning` of the completion's."""

    prompt: int
    completion: int
    cached: int | None = None
    reasoning: int | None = None


def error(status: int, message: str, *, style: Style = "openai", code: str | None = None) -> Any:
    """Return an error document as an API writes it."""
    kind = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
    kind = _ERROR_TYPES.get(status, kind)
    if style == "ollama":
        return {"error": message}
    if style == "anthropic":
        kind = kind.replace("server_error", "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def refusal(
    status: int, message: str, *, retry_after: float | None = None, style: Style = "openai"
) -> bytes:
    """Return a whole answer that refuses; when to come back is told with 429 and 503."""
    told = retry_after is not None and status in _TELLS_WHEN
    headers = {"Retry-After": f"{retry_after:g}"} if told else {}
    return plain(status, error(status, message, style=style), headers)


def encode(document: Any) -> bytes:
    """Return a document's JSON, characters unescaped as real servers do."""
    return json.dumps(document, ensure_ascii=False).encode()


def event(document: Mapping[str, Any], name: str = "") -> bytes:
    """Return a document as one server-sent event."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + encode(document) + b"\n\n"


def frame(data: bytes) -> bytes:
    """Return bytes as one HTTP chunk; the empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers of an answer."""
    known = {int(known) for known in HTTPStatus}
    phrase = HTTPStatus(status).phrase if status in known else "Simulated"
    lines = [f"HTTP/1.1 {status} {phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def plain(status: int, document: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a complete answer with a JSON body."""
    return whole(status, encode(document), headers)


def whole(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a complete answer with a body that calls itself JSON."""
    fixed = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return head(status, {**fixed, **(headers or {})}) + body


def inside_character(data: bytes) -> int:
    """Return a position within a character of several bytes, or 0 when there is none."""
    return next((n for n, byte in enumerate(data) if byte & 0xC0 == 0x80), 0)  # noqa: PLR2004
