"""Beside the providers: the parts of a conversation, as OpenAI writes them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from async_nodes.nodes.providers.answer import parsed_arguments
from async_nodes.nodes.providers.tools import refuse

_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Image:
    """Hold a picture of a message: its address, or its type and base64 text."""

    url: str
    media_type: str = ""
    data: str = ""


def parts_of(message: dict[str, Any]) -> list[str | Image | dict[str, Any]]:
    """Return a message's content as texts, pictures and whatever the provider alone may know."""
    content = message.get("content")
    if content is None:
        return []
    if isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        refuse("a message's content must be text or a list of parts")
    return [_part(part) for part in content]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message's content."""
    return "".join(part for part in parts_of(message) if isinstance(part, str))


def calls_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of an assistant's message, ``{id, name, arguments: object}`` each."""
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        refuse("a message's tool_calls must be a list of objects")
    return [_call(call) for call in calls]


def openai_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose tool calls are in OpenAI's form, whichever of the two they had."""
    if not message.get("tool_calls"):
        return message
    calls = [
        call if "function" in call else _openai_call(_call(call))
        for call in message["tool_calls"]
        if isinstance(call, dict)
    ]
    return {**message, "tool_calls": calls}


def _part(part: dict[str, Any]) -> str | Image | dict[str, Any]:
    text = part.get("text")
    if part.get("type") == "text" and isinstance(text, str):
        return text
    if part.get("type") == "image_url":
        given = part.get("image_url")
        url = given.get("url") if isinstance(given, dict) else given
        if not isinstance(url, str):
            refuse("an image_url part needs a url")
        match = _DATA_URL.fullmatch(url)
        return Image(url, match["type"], match["data"]) if match else Image(url)
    return part


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function", call)
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        refuse("a tool call of a message needs a name")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = parsed_arguments(arguments)
    if arguments is not None and not isinstance(arguments, dict):
        refuse(f"the arguments of the tool call {name!r} must be a JSON object")
    return {"id": str(call.get("id") or ""), "name": name, "arguments": arguments or {}}


def _openai_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(call["arguments"], ensure_ascii=False)
    function = {"name": call["name"], "arguments": arguments}
    return {"id": call["id"], "type": "function", "function": function}
