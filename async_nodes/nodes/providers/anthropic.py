"""Beside the providers: Anthropic's Messages API.

What differs: the system's words stand apart, a limit of tokens is a must, content is blocks, a
result of a tool is a user's block. An object is asked for as the call of a tool that must be
called; its arguments then are the answer's text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from async_nodes.nodes.providers.answer import Answer, a_list, an_object, bad, some_text
from async_nodes.nodes.providers.exchange import Ask, Call, Server
from async_nodes.nodes.providers.messages import Image, calls_of, parts_of, text_of
from async_nodes.nodes.providers.refusals import reported
from async_nodes.nodes.providers.structured import ANY_OBJECT, form_of
from async_nodes.nodes.providers.tools import Choice, choice_of, refuse, tools_of
from async_nodes.nodes.providers.usage import anthropic_usage

if TYPE_CHECKING:
    from async_nodes.nodes.providers.exchange import Piece

VERSION = "2023-06-01"
MAX_TOKENS = 4_096
OUTPUT_TOOL = "structured_output"

_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_MODES = {"auto": "auto", "none": "none", "required": "any"}


def build(ask: Ask, server: Server, *, knows_schema: bool = True) -> Call:
    """Return the call for a message; `seed` has no place in it."""
    system, messages = _conversation(ask.messages)
    stop = [ask.stop] if isinstance(ask.stop, str) else ask.stop
    options: dict[str, Any] = {
        "system": system or None,
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "stop_sequences": stop,
        **_tools(ask),
    }
    body = {
        "model": ask.model,
        "max_tokens": ask.max_tokens or MAX_TOKENS,
        "messages": messages,
        "stream": ask.stream,
        **{name: value for name, value in options.items() if value is not None},
        **(ask.extra or {}),
    }
    key = {"x-api-key": server.api_key} if server.api_key else {}
    url = server.base_url.removesuffix("/v1") + "/v1/messages"
    return Call(url, {"anthropic-version": VERSION, **key}, body)


class AnthropicReader:
    """Understand messages and the events of their streams; see `stream.Reader`."""

    def __init__(self, answer: Answer, ask: Ask) -> None:
        self.answer = answer
        self.complete = False
        self.ended = False
        self._wants_object = form_of(ask) is not None
        self._calls: dict[int, int] = {}
        self._output_blocks: set[int] = set()
        self._usage: dict[str, Any] = {}

    def read(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of an event; events of unknown types say nothing."""
        match document.get("type"):
            case "error":
                raise reported(document, hide=self.answer.hide)
            case "message_start":
                self._count(an_object(document.get("message"), "message"))
            case "content_block_start":
                block = an_object(document.get("content_block"), "content_block")
                return self._block(_index(document), block, streamed=True)
            case "content_block_delta":
                delta = an_object(document.get("delta"), "delta")
                return self._delta(_index(document), delta)
            case "message_delta":
                self._count(document)
                self._stop(an_object(document.get("delta"), "delta"))
            case "message_stop":
                self.complete = self.ended = True
        return []

    def read_whole(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of a message."""
        if document.get("error"):
            raise reported(document, hide=self.answer.hide)
        pieces: list[Piece] = []
        for index, block in enumerate(a_list(document["content"], "content")):
            pieces += self._block(index, block, streamed=False)
        self._count(document)
        self._stop(document)
        return pieces + self.answer.rest()

    def _block(self, index: int, block: dict[str, Any], *, streamed: bool) -> list[Piece]:
        match block.get("type"):
            case "text":
                return self.answer.say(some_text(block.get("text"), "text"))
            case "thinking":
                return self.answer.think(some_text(block.get("thinking"), "thinking"))
            case "tool_use":
                # In a stream the input is empty here and follows in pieces.
                arguments = "" if streamed else _json(block.get("input"))
                return self._tool(index, block, arguments)
        return []

    def _tool(self, index: int, block: dict[str, Any], arguments: str) -> list[Piece]:
        name = some_text(block.get("name"), "a tool's name")
        if self._wants_object and name == OUTPUT_TOOL:
            self._output_blocks.add(index)
            return self.answer.say(arguments)
        self._calls[index] = len(self._calls)
        identity = some_text(block.get("id"), "a tool call's id")
        return self.answer.call(None, identity=identity, name=name, arguments=arguments)

    def _delta(self, index: int, delta: dict[str, Any]) -> list[Piece]:
        match delta.get("type"):
            case "text_delta":
                return self.answer.say(some_text(delta.get("text"), "text"))
            case "thinking_delta":
                return self.answer.think(some_text(delta.get("thinking"), "thinking"))
            case "input_json_delta":
                piece = some_text(delta.get("partial_json"), "partial_json")
                if index in self._output_blocks:
                    return self.answer.say(piece)
                if index in self._calls:
                    return self.answer.call(self._calls[index], arguments=piece)
                bad("a piece of a tool's input belongs to no block")
        return []

    def _count(self, document: dict[str, Any]) -> None:
        self._usage.update(an_object(document.get("usage"), "usage"))
        self.answer.usage = anthropic_usage(self._usage)

    def _stop(self, document: dict[str, Any]) -> None:
        reason = some_text(document.get("stop_reason"), "stop_reason")
        if not reason:
            return
        self.complete = True
        self.answer.finish_reason = _REASONS.get(reason, reason)
        if reason == "tool_use" and self._output_blocks and not self._calls:
            self.answer.finish_reason = "stop"


def _tools(ask: Ask) -> dict[str, Any]:
    tools, form = tools_of(ask), form_of(ask)
    choice = choice_of(ask, tools)
    written: list[dict[str, Any]] = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": tool.parameters,
        }
        for tool in tools
    ]
    if form is None:
        return {"tools": written or None, "tool_choice": _choice(choice) if choice else None}
    if choice is not None and choice.mode != "auto":
        refuse("anthropic takes either an object as the answer or a tool_choice")
    output = {
        "name": OUTPUT_TOOL,
        "description": "Give the answer.",
        "input_schema": form.schema or ANY_OBJECT,
    }
    forced = {"type": "any"} if written else {"type": "tool", "name": OUTPUT_TOOL}
    return {"tools": [*written, output], "tool_choice": forced}


def _choice(choice: Choice) -> dict[str, str]:
    if choice.mode == "named":
        return {"type": "tool", "name": choice.name}
    return {"type": _MODES[choice.mode]}


def _conversation(messages: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
    system: list[str] = []
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role", "user")
        if role in ("system", "developer"):
            system.append(text_of(message))
            continue
        blocks = _blocks(message)
        speaker = "assistant" if role == "assistant" else "user"
        if turns and turns[-1]["role"] == speaker:
            turns[-1]["content"] += blocks  # results of several tools are one turn
        else:
            turns.append({"role": speaker, "content": blocks})
    return "\n\n".join(system), turns


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = [_part(part) for part in parts_of(message)]
    if message.get("role") == "tool":
        identity = str(message.get("tool_call_id") or "")
        return [{"type": "tool_result", "tool_use_id": identity, "content": content}]
    calls = [
        {"type": "tool_use", "id": call["id"], "name": call["name"], "input": call["arguments"]}
        for call in calls_of(message)
    ]
    return content + calls


def _part(part: str | Image | dict[str, Any]) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Image):
        return part
    if part.data:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    else:
        source = {"type": "url", "url": part.url}
    return {"type": "image", "source": source}


def _index(document: dict[str, Any]) -> int:
    index = document.get("index")
    if not isinstance(index, int):
        bad("a block's index is no number")
    return index


def _json(value: Any) -> str:
    return json.dumps(an_object(value, "a tool's input"), ensure_ascii=False)
