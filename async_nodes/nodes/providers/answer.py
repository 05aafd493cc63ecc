"""Beside the providers: an answer, collected from its pieces, whichever wire they came over."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn

from async_nodes.core.errors import AsyncNodesError, RetryableError
from async_nodes.core.strict_json import loads

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.nodes.providers.exchange import Piece

LONE_SURROGATE = "\ufffd"


class Text:
    """Join pieces of a text in which some servers cut an escaped surrogate pair in two."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        """Return what is whole now."""
        text = self._half + piece
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return whole(text.removesuffix(self._half) if self._half else text)

    def rest(self) -> str:
        """Return what stands for a half that stayed alone."""
        rest, self._half = self._half, ""
        return LONE_SURROGATE if rest else ""


class _Tool:
    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.cut = Text()

    def delta(self, index: int, piece: str) -> Piece:
        self.arguments.append(piece)
        named = {"index": index, "id": self.id, "name": self.name}
        return {"tool_call": {**named, "arguments_delta": piece}}

    def to_json(self) -> dict[str, Any]:
        arguments = parsed_arguments("".join(self.arguments))
        return {"id": self.id, "name": self.name, "arguments": arguments}


class Answer:
    """Collect one answer.

    Args:
        hide: takes secrets out of a server's words.

    Attributes:
        finish_reason: why the model stopped, once it said so.
        usage: token counts, empty when the server sends none.
        refusal: the model's words when it would not answer.
        hide: the argument.

    """

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        self.hide = hide
        self.finish_reason: str | None = None
        self.usage: dict[str, int] = {}
        self.refusal = ""
        self._pieces: list[str] = []
        self._tools: list[_Tool] = []
        self._said, self._thought = Text(), Text()

    @property
    def text(self) -> str:
        """Return what was said so far."""
        return "".join(self._pieces)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Return the calls so far, ``{id, name, arguments}`` each."""
        return [tool.to_json() for tool in self._tools]

    def say(self, piece: str) -> list[Piece]:
        """Add text; return the pieces that this completes."""
        return self._text(self._said.feed(piece))

    def think(self, piece: str) -> list[Piece]:
        """Add reasoning, which is no part of the text."""
        text = self._thought.feed(piece)
        return [{"reasoning_delta": text}] if text else []

    def call(
        self, index: int | None, *, identity: str = "", name: str = "", arguments: str = ""
    ) -> list[Piece]:
        """Add to a tool call.

        Args:
            index: which call; None for a new one.
            identity: the call's id, whenever it comes.
            name: the next part of the tool's name.
            arguments: the next part of the arguments' JSON text.

        Raises:
            RetryableError: ``model_bad_chunk`` for an index out of order.

        """
        place = len(self._tools) if index is None else index
        if not 0 <= place <= len(self._tools):
            bad("a tool call's index is out of order")
        if place == len(self._tools):
            self._tools.append(_Tool())
        tool = self._tools[place]
        tool.id = identity or tool.id
        tool.name += name
        return [tool.delta(place, tool.cut.feed(arguments))]

    def rest(self) -> list[Piece]:
        """Return what is left when the stream has ended as it should."""
        pieces = self._text(self._said.rest())
        for index, tool in enumerate(self._tools):
            if rest := tool.cut.rest():
                pieces.append(tool.delta(index, rest))
        return pieces

    def _text(self, text: str) -> list[Piece]:
        if not text:
            return []
        self._pieces.append(text)
        return [text]


def parsed_arguments(text: str) -> dict[str, Any] | str:
    """Return a call's arguments as an object, or the text as it came when it is none.

    Models leave the text empty for a tool that takes nothing.
    """
    if not text.strip():
        return {}
    try:
        # Through Python's own reader first: it joins escaped pairs and leaves lone halves, which
        # no record may hold.
        clean = whole(json.dumps(json.loads(text), ensure_ascii=False))
        value = loads(clean.encode())
    except (ValueError, RecursionError, AsyncNodesError):
        return text
    return value if isinstance(value, dict) else text


def whole(text: str) -> str:
    """Return text without halves of surrogate pairs: pairs are joined, lone ones replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def bad(reason: str) -> NoReturn:
    """Refuse a piece of an answer.

    Raises:
        RetryableError: ``model_bad_chunk``.

    """
    raise RetryableError(f"the model sent a bad chunk: {reason}", code="model_bad_chunk")


def an_object(value: Any, what: str) -> dict[str, Any]:
    """Return a value that must be an object or absent."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        bad(f"{what} is not an object")
    return value


def some_text(value: Any, what: str) -> str:
    """Return a value that must be text or absent."""
    if value is None:
        return ""
    if not isinstance(value, str):
        bad(f"{what} is not text")
    return value


def a_list(value: Any, what: str) -> list[dict[str, Any]]:
    """Return a value that must be a list of objects or absent."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        bad(f"{what} is not a list of objects")
    return value
