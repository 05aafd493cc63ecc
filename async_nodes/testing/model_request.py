"""The simulated model, reading: what a request for a completion must hold. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from async_nodes.testing import model_wire as wire
from async_nodes.testing.model_script import Script, ScriptError, parse

if TYPE_CHECKING:
    from async_nodes.testing.model_http import Request

MODEL = "sim"

_TELLS_WHEN = (429, 503)


class RefusedError(Exception):
    """Answer a request with an error status."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def encode(self) -> bytes:
        """Return the whole answer."""
        told = self.retry_after is not None and self.status in _TELLS_WHEN
        headers = {"Retry-After": f"{self.retry_after:g}"} if told else {}
        return wire.plain(self.status, wire.error(self.status, str(self)), headers)


def checked_body(request: Request) -> dict[str, Any]:
    """Return the body of a request for a completion, once it holds what that needs."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "We could not parse the JSON body of your request") from None
    if not isinstance(body, dict) or not isinstance(body.get("model"), str):
        raise RefusedError(400, "you must provide a model parameter")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise RefusedError(400, "messages must be a list of objects")
    limit = body.get("max_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise RefusedError(400, "max_tokens must be a whole number from 1 up")
    if body["model"].partition(":")[0] != MODEL:
        raise RefusedError(404, f"The model {body['model']!r} does not exist; use {MODEL!r}")
    return body


def script_of(text: str) -> Script:
    """Return the script of a request."""
    try:
        return parse(text)
    except ScriptError as error:
        raise RefusedError(400, str(error)) from None


def key_of(request: Request, body: dict[str, Any]) -> str:
    """Return the name of the conversation that a request belongs to."""
    if given := request.headers.get("x-sim-key"):
        return given
    task = request.headers.get("idempotency-key", "")
    said = json.dumps([task, body["model"], body["messages"]], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    content = message.get("content")
    if isinstance(content, list):  # content parts: only text counts here
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""
