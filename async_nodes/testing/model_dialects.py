"""The simulated model, speaking: one class for each API, which writes an answer's parts. Pure.

A part of a stream is what arrives together. An object of these classes writes one answer and
knows how far it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from async_nodes.testing import model_wire as wire
from async_nodes.testing.model_wire import Usage


@dataclass(frozen=True, slots=True)
class Said:
    """Hold a whole answer.

    Attributes:
        thought: reasoning before it.
        text: what was said, or the arguments when a tool is called.
        tool: the tool that is called, or None.
        reason: ``stop`` or ``length``.
        usage: its tokens.

    """

    thought: str
    text: str
    tool: str | None
    reason: str
    usage: Usage


class Dialect(Protocol):
    """Write one answer."""

    style: wire.Style
    content_type: str
    broken: bytes

    def opening(self) -> bytes:
        """Return the first part of a stream."""

    def think(self, piece: str) -> bytes:
        """Return a part with reasoning."""

    def say(self, piece: str) -> bytes:
        """Return a part with text."""

    def call(self, tool: str) -> bytes:
        """Return the part that begins the call of a tool."""

    def argue(self, piece: str) -> bytes:
        """Return a part with a tool's arguments."""

    def ending(self, said: Said, *, include_usage: bool) -> bytes:
        """Return the last part of a stream."""

    def whole(self, said: Said) -> dict[str, Any]:
        """Return an answer that comes at once."""


@dataclass(slots=True)
class OpenAI:
    """Write chat completions."""

    serial: int
    model: str
    created: int
    style: wire.Style = "openai"
    content_type: str = "text/event-stream; charset=utf-8"
    broken: bytes = b'data: {"id": "chatcmpl-broken", "choices": [{"delta"\n\n'

    def opening(self) -> bytes:
        """Return the chunk with the role."""
        return self._chunk({"role": "assistant", "content": ""})

    def think(self, piece: str) -> bytes:
        """Return a chunk with reasoning, in the member that most servers have for it."""
        return self._chunk({"reasoning_content": piece})

    def say(self, piece: str) -> bytes:
        """Return a chunk with text."""
        return self._chunk({"content": piece})

    def call(self, tool: str) -> bytes:
        """Return a chunk that names a tool."""
        return self._chunk({"tool_calls": [{"index": 0, **self._call(tool, "")}]})

    def argue(self, piece: str) -> bytes:
        """Return a chunk with a tool's arguments."""
        return self._chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})

    def ending(self, said: Said, *, include_usage: bool) -> bytes:
        """Return the reason, the usage when it was asked for, and the mark of the end."""
        last = self._chunk({}, "tool_calls" if said.tool else said.reason)
        if include_usage:
            head = self._head("chat.completion.chunk")
            last += wire.event({**head, "choices": [], "usage": self._usage(said.usage)})
        return last + b"data: [DONE]\n\n"

    def whole(self, said: Said) -> dict[str, Any]:
        """Return a completion."""
        message: dict[str, Any] = {"role": "assistant", "content": said.text, "refusal": None}
        if said.tool:
            message |= {"content": None, "tool_calls": [self._call(said.tool, said.text)]}
        if said.thought:
            message["reasoning_content"] = said.thought
        reason = "tool_calls" if said.tool else said.reason
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        head = self._head("chat.completion")
        return {**head, "choices": [choice], "usage": self._usage(said.usage)}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return wire.event({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _call(self, tool: str, arguments: str) -> dict[str, Any]:
        function = {"name": tool, "arguments": arguments}
        return {"id": f"call_{self.serial:08d}", "type": "function", "function": function}

    def _head(self, kind: str) -> dict[str, Any]:
        identity = f"chatcmpl-{self.serial:08d}"
        return {"id": identity, "object": kind, "created": self.created, "model": self.model}

    def _usage(self, usage: Usage) -> dict[str, Any]:
        counts: dict[str, Any] = {
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.prompt + usage.completion,
        }
        if usage.cached is not None:
            counts["prompt_tokens_details"] = {"cached_tokens": usage.cached}
        if usage.reasoning is not None:
            counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
        return counts


@dataclass(slots=True)
class Anthropic:
    """Write messages."""

    serial: int
    model: str
    prompt_tokens: int
    cached: int | None
    style: wire.Style = "anthropic"
    content_type: str = "text/event-stream; charset=utf-8"
    broken: bytes = b'event: content_block_delta\ndata: {"type": "content_block_delta", "del\n\n'
    _open: str = ""
    _index: int = -1

    def opening(self) -> bytes:
        """Return the start of the message and a sign of life."""
        message = {**self._head(), "content": [], "stop_reason": None, "stop_sequence": None}
        message["usage"] = self._usage(completion=1)
        start = wire.event({"type": "message_start", "message": message}, "message_start")
        return start + wire.event({"type": "ping"}, "ping")

    def think(self, piece: str) -> bytes:
        """Return a piece of a thinking block."""
        begun = self._block("thinking", {"type": "thinking", "thinking": ""})
        return begun + self._delta({"type": "thinking_delta", "thinking": piece})

    def say(self, piece: str) -> bytes:
        """Return a piece of a text block."""
        begun = self._block("text", {"type": "text", "text": ""})
        return begun + self._delta({"type": "text_delta", "text": piece})

    def call(self, tool: str) -> bytes:
        """Return the start of a tool's block."""
        return self._block("tool", {**self._tool(tool), "input": {}})

    def argue(self, piece: str) -> bytes:
        """Return a piece of a tool's input."""
        return self._delta({"type": "input_json_delta", "partial_json": piece})

    def ending(self, said: Said, *, include_usage: bool) -> bytes:
        """Return the end of the block and of the message."""
        delta = {"stop_reason": self._reason(said), "stop_sequence": None}
        usage = {"output_tokens": said.usage.completion}
        last = {"type": "message_delta", "delta": delta, "usage": usage}
        stop = wire.event({"type": "message_stop"}, "message_stop")
        return self._close() + wire.event(last, "message_delta") + stop

    def whole(self, said: Said) -> dict[str, Any]:
        """Return a message."""
        content: list[dict[str, Any]] = []
        if said.thought:
            content.append({"type": "thinking", "thinking": said.thought, "signature": "c2lt"})
        if said.tool:
            content.append({**self._tool(said.tool), "input": _parsed(said.text)})
        else:
            content.append({"type": "text", "text": said.text})
        end = {"stop_reason": self._reason(said), "stop_sequence": None}
        return {
            **self._head(),
            "content": content,
            **end,
            "usage": self._usage(completion=said.usage.completion),
        }

    def _block(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        closed = self._close()
        self._open, self._index = kind, self._index + 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        return closed + wire.event(start, "content_block_start")

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = ""
        stop = {"type": "content_block_stop", "index": self._index}
        return wire.event(stop, "content_block_stop")

    def _delta(self, delta: dict[str, Any]) -> bytes:
        document = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return wire.event(document, "content_block_delta")

    def _tool(self, tool: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": f"toolu_{self.serial:08d}", "name": tool}

    def _reason(self, said: Said) -> str:
        if said.reason == "length":
            return "max_tokens"
        return "tool_use" if said.tool else "end_turn"

    def _head(self) -> dict[str, Any]:
        identity = f"msg_{self.serial:08d}"
        return {"id": identity, "type": "message", "role": "assistant", "model": self.model}

    def _usage(self, *, completion: int) -> dict[str, Any]:
        cached = self.cached or 0
        counts = {"input_tokens": self.prompt_tokens - cached, "output_tokens": completion}
        if self.cached is not None:
            counts |= {"cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}
        return counts


@dataclass(slots=True)
class Ollama:
    """Write Ollama's chats; a tool's call comes whole, as it does there."""

    model: str
    created_at: str
    style: wire.Style = "ollama"
    content_type: str = "application/x-ndjson"
    broken: bytes = b'{"model": "sim", "message": {"content"\n'
    _tool: str = ""
    _arguments: list[str] = field(default_factory=list)

    def opening(self) -> bytes:
        """Return nothing: the first line has text."""
        return b""

    def think(self, piece: str) -> bytes:
        """Return a line with reasoning."""
        return self._line({"content": "", "thinking": piece})

    def say(self, piece: str) -> bytes:
        """Return a line with text."""
        return self._line({"content": piece})

    def call(self, tool: str) -> bytes:
        """Return nothing yet."""
        self._tool = tool
        return b""

    def argue(self, piece: str) -> bytes:
        """Return nothing yet."""
        self._arguments.append(piece)
        return b""

    def ending(self, said: Said, *, include_usage: bool) -> bytes:
        """Return the call, if there is one, and the last line with the counts."""
        called = self._line(self._called("".join(self._arguments))) if self._tool else b""
        return called + wire.encode(self._last(said, {"role": "assistant", "content": ""})) + b"\n"

    def whole(self, said: Said) -> dict[str, Any]:
        """Return an answer that comes at once."""
        self._tool = said.tool or ""
        message = self._called(said.text) if said.tool else {"content": said.text}
        thought = {"thinking": said.thought} if said.thought else {}
        return self._last(said, {"role": "assistant", **message, **thought})

    def _line(self, message: dict[str, Any]) -> bytes:
        head = {"model": self.model, "created_at": self.created_at}
        message = {"role": "assistant", **message}
        return wire.encode({**head, "message": message, "done": False}) + b"\n"

    def _called(self, arguments: str) -> dict[str, Any]:
        function = {"name": self._tool, "arguments": _parsed(arguments)}
        return {"content": "", "tool_calls": [{"function": function}]}

    def _last(self, said: Said, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "model": self.model,
            "created_at": self.created_at,
            "message": message,
            "done_reason": said.reason,
            "done": True,
            "prompt_eval_count": said.usage.prompt,
            "eval_count": said.usage.completion,
        }


def _parsed(arguments: str) -> Any:
    import json

    try:
        return json.loads(arguments)
    except ValueError:
        return {"text": arguments}  # cut by max_tokens: these APIs have no place for half a text
