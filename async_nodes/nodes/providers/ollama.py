"""Beside the providers: Ollama's own chat API, one JSON document a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from async_nodes.nodes.providers.answer import Answer, a_list, an_object, some_text
from async_nodes.nodes.providers.exchange import Ask, Call, Server
from async_nodes.nodes.providers.messages import Image, calls_of, parts_of
from async_nodes.nodes.providers.openai import bearer
from async_nodes.nodes.providers.refusals import reported
from async_nodes.nodes.providers.structured import form_of
from async_nodes.nodes.providers.tools import choice_of, refuse, tools_of
from async_nodes.nodes.providers.usage import ollama_usage

if TYPE_CHECKING:
    from async_nodes.nodes.providers.exchange import Piece


def build(ask: Ask, server: Server, *, knows_schema: bool = True) -> Call:
    """Return the call for a chat; the root may be written with ``/api`` or without.

    Raises:
        TerminalError: ``invalid_inputs`` for what Ollama cannot do: be made to call a tool, fetch a
            picture.

    """
    tools, form = tools_of(ask), form_of(ask)
    choice = choice_of(ask, tools)
    if choice is not None and choice.mode in ("required", "named"):
        refuse("ollama cannot be made to call a tool; tool_choice is auto or none")
    if choice is not None and choice.mode == "none":
        tools = []
    options = {
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "num_predict": ask.max_tokens,
        "stop": [ask.stop] if isinstance(ask.stop, str) else ask.stop,
        "seed": ask.seed,
    }
    members: dict[str, Any] = {
        "options": {name: value for name, value in options.items() if value is not None} or None,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                },
            }
            for tool in tools
        ]
        or None,
        "format": (form.schema or "json") if form is not None else None,
    }
    body = {
        "model": ask.model,
        "messages": _conversation(ask.messages),
        "stream": ask.stream,
        **{name: value for name, value in members.items() if value is not None},
        **(ask.extra or {}),
    }
    return Call(root(server) + "/api/chat", bearer(server), body)


def root(server: Server) -> str:
    """Return the address below which ``/api`` is."""
    return server.base_url.removesuffix("/api")


class OllamaReader:
    """Understand Ollama's documents, which are the same in a stream and at once."""

    def __init__(self, answer: Answer, ask: Ask) -> None:
        self.answer = answer
        self.complete = False
        self.ended = False
        self._calls = 0

    def read(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of a line."""
        if document.get("error"):
            raise reported(document, hide=self.answer.hide)
        message = an_object(document.get("message"), "message")
        pieces = self.answer.think(some_text(message.get("thinking"), "thinking"))
        pieces += self.answer.say(some_text(message.get("content"), "content"))
        for call in a_list(message.get("tool_calls"), "tool_calls"):
            pieces += self._call(call)
        if document.get("done") is True:
            self.complete = self.ended = True
            reason = str(document.get("done_reason") or "stop")
            self.answer.finish_reason = "tool_calls" if self._calls else reason
            self.answer.usage = ollama_usage(document)
        return pieces

    def read_whole(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of an answer that came at once."""
        pieces = self.read(document)
        if not self.complete or "message" not in document:
            raise ValueError("no answer of a chat")
        return pieces + self.answer.rest()

    def _call(self, call: dict[str, Any]) -> list[Piece]:
        function = an_object(call.get("function"), "function")
        arguments = json.dumps(an_object(function.get("arguments"), "arguments"))
        identity = some_text(call.get("id"), "a tool call's id") or f"call_{self._calls}"
        self._calls += 1
        name = some_text(function.get("name"), "a tool's name")
        return self.answer.call(None, identity=identity, name=name, arguments=arguments)


def _conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names: dict[str, str] = {}
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role", "user")
        parts = parts_of(message)
        turn: dict[str, Any] = {
            "role": "system" if role == "developer" else role,
            "content": "".join(part for part in parts if isinstance(part, str)),
        }
        if images := [_image(part) for part in parts if not isinstance(part, str)]:
            turn["images"] = images
        if calls := calls_of(message):
            names.update({call["id"]: call["name"] for call in calls})
            functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
            turn["tool_calls"] = [{"function": function} for function in functions]
        if role == "tool":
            given = str(message.get("tool_call_id") or "")
            turn["tool_name"] = names.get(given) or str(message.get("name") or "")
        turns.append(turn)
    return turns


def _image(part: Image | dict[str, Any]) -> str:
    if not isinstance(part, Image) or not part.data:
        refuse("ollama takes text and pictures as data: URLs in base64, nothing else")
    return part.data
