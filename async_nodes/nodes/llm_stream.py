"""Built-in node ``llm.chat``, the wire: what an OpenAI-compatible server streams.

Pure: bytes of lines go in, pieces of text come out. Decides what is malformed and whether the
stream has come to its end.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from async_nodes.core.errors import RetryableError

DONE = b"[DONE]"
LONE_SURROGATE = "\ufffd"


class ChatStream:
    """Collect one streamed chat completion.

    Attributes:
        finish_reason: why the model stopped, once it said so.
        usage: the server's token counts, empty when it sends none.
        tool_calls: the calls the model asks for, joined from their pieces.
        complete: whether the stream has ended as it should.

    """

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.usage: dict[str, int] = {}
        self.tool_calls: list[dict[str, Any]] = []
        self.complete = False
        self.ended = False
        self._data: list[bytes] = []
        self._half = ""

    def feed(self, line: bytes) -> str:
        """Return the text that a line of the event stream completes, mostly empty.

        Raises:
            RetryableError: ``model_bad_chunk`` for data that is not a chunk in UTF-8 JSON,
                ``model_error`` for an error that the server reports half-way.

        """
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            return ""
        if line or not self._data:
            return ""  # a comment, another field, or a blank line between events
        data, self._data = b"\n".join(self._data), []
        if data.strip() == DONE:
            self.complete = self.ended = True
            return ""
        return self._chunk(data)

    def finish(self) -> str:
        """Return the text that is left when the stream has ended.

        Raises:
            RetryableError: ``model_stream_cut`` when the model had not stopped yet.

        """
        text = self.feed(b"")  # an event whose blank line was lost with the connection
        if not self.complete:
            raise RetryableError("the model's stream ended half-way", code="model_stream_cut")
        rest, self._half = self._half, ""
        return text + (LONE_SURROGATE if rest else "")

    def _chunk(self, data: bytes) -> str:
        try:
            chunk = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            _bad(f"not JSON in UTF-8 ({error})")
        if not isinstance(chunk, dict):
            _bad("not an object")
        if chunk.get("error"):
            message = f"the model server reported: {error_message(chunk)}"
            raise RetryableError(message, code="model_error")
        self.usage = token_counts(chunk) or self.usage
        choices = chunk.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(item, dict) for item in choices):
            _bad("choices is not a list of objects")
        if not choices:
            return ""
        if choices[0].get("finish_reason"):
            self.finish_reason, self.complete = str(choices[0]["finish_reason"]), True
        delta = choices[0].get("delta") or {}
        if not isinstance(delta, dict):
            _bad("delta is not an object")
        join_tool_calls(self.tool_calls, delta.get("tool_calls"))
        return self._text(delta.get("content"))

    def _text(self, content: Any) -> str:
        if content is not None and not isinstance(content, str):
            _bad("content is not text")
        # Some servers cut an escaped surrogate pair between two chunks: hold the first half.
        text = self._half + (content or "")
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole(text.removesuffix(self._half) if self._half else text)


def whole(text: str) -> str:
    """Return text without halves of surrogate pairs: pairs are joined, lone ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def token_counts(document: dict[str, Any]) -> dict[str, int]:
    """Return the token counts of a chunk or completion, only those that are whole numbers."""
    usage = document.get("usage")
    names = ("prompt_tokens", "completion_tokens", "total_tokens")
    if not isinstance(usage, dict):
        return {}
    return {name: usage[name] for name in names if _count(usage.get(name))}


def error_message(document: Any) -> str:
    """Return a server's own words for an error, whichever of the usual shapes they have."""
    if isinstance(document, dict):
        error = document.get("error") or document.get("detail") or document.get("message")
        if isinstance(error, dict):
            error = error.get("message") or error
        return str(error or document)
    return str(document)


def join_tool_calls(calls: list[dict[str, Any]], pieces: Any) -> None:
    """Add streamed pieces of tool calls to the calls they belong to."""
    for piece in pieces if isinstance(pieces, list) else []:
        if not isinstance(piece, dict):
            _bad("a tool call is not an object")
        index = piece.get("index", len(calls))
        if not isinstance(index, int) or not 0 <= index <= len(calls):
            _bad("a tool call's index is out of order")
        if index == len(calls):
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bad(reason: str) -> NoReturn:
    raise RetryableError(f"the model sent a bad chunk: {reason}", code="model_bad_chunk")
