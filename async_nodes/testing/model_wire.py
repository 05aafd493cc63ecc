"""The simulated model, written: OpenAI's documents and HTTP's frames. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """Name one answer of the model, the same in all of its chunks."""

    id: str
    model: str
    created: int

    def chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        """Return one chunk of a stream."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the last chunk, which ``stream_options.include_usage`` asks for."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def completion(self, text: str, finish_reason: str, usage: Mapping[str, int]) -> dict[str, Any]:
        """Return the whole answer at once."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Return the token counts of an answer."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def error(status: int, message: str, *, code: str | None = None) -> dict[str, Any]:
    """Return an error document."""
    kind = "server_error" if status >= _SERVER_ERROR else "invalid_request_error"
    return {
        "error": {
            "message": message,
            "type": _ERROR_TYPES.get(status, kind),
            "param": None,
            "code": code,
        }
    }


def event(document: Mapping[str, Any]) -> bytes:
    """Return a document as one server-sent event, characters unescaped as real servers do."""
    return b"data: " + json.dumps(document, ensure_ascii=False).encode() + b"\n\n"


def frame(data: bytes) -> bytes:
    """Return bytes as one HTTP chunk; the empty chunk ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def head(status: int, headers: Mapping[str, str]) -> bytes:
    """Return the status line and the headers of an answer."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def plain(status: int, document: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """Return a complete answer with a JSON body."""
    body = json.dumps(document, ensure_ascii=False).encode()
    fixed = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return head(status, {**fixed, **(headers or {})}) + body


def inside_character(data: bytes) -> int:
    """Return a position within a character of several bytes, or 0 when there is none."""
    return next((n for n, byte in enumerate(data) if byte & 0xC0 == 0x80), 0)  # noqa: PLR2004
