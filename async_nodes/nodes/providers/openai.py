"""Beside the providers: chat completions as OpenAI speaks them, and Azure with other addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from async_nodes.nodes.providers.answer import Answer, a_list, an_object, bad, some_text
from async_nodes.nodes.providers.exchange import Ask, Call, Server
from async_nodes.nodes.providers.messages import openai_message
from async_nodes.nodes.providers.refusals import reported
from async_nodes.nodes.providers.structured import Form, form_of
from async_nodes.nodes.providers.tools import Choice, Tool, choice_of, tools_of
from async_nodes.nodes.providers.usage import openai_usage

if TYPE_CHECKING:
    from async_nodes.nodes.providers.exchange import Piece

CHAT = "/chat/completions"

_ANY_OBJECT = {"type": "json_object"}


def build(ask: Ask, server: Server, *, knows_schema: bool = True) -> Call:
    """Return the call for a completion.

    Args:
        ask: what is asked.
        server: where, its base_url filled in.
        knows_schema: whether the server takes a JSON schema; otherwise it is asked for any object
            and the model is told the schema in words.

    """
    body = {"model": ask.model, **_body(ask, knows_schema=knows_schema)}
    return Call(server.base_url + CHAT, bearer(server), {**body, **(ask.extra or {})})


def build_azure(ask: Ask, server: Server, *, knows_schema: bool = True) -> Call:
    """Return the call for a completion of an Azure deployment."""
    body = {"model": ask.model, **_body(ask, knows_schema=knows_schema)}
    url = azure_url(server, ask.model, CHAT)
    return Call(url, azure_key(server), {**body, **(ask.extra or {})})


def bearer(server: Server) -> dict[str, str]:
    """Return the headers that carry the key."""
    return {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}


def azure_key(server: Server) -> dict[str, str]:
    """Return the headers that carry a key of Azure."""
    return {"api-key": server.api_key} if server.api_key else {}


def azure_url(server: Server, model: str, path: str) -> str:
    """Return the address of a deployment; without a name it is the model's."""
    root = server.base_url.removesuffix("/openai")
    deployment = quote(server.deployment or model, safe="")
    version = quote(server.api_version, safe="")
    return f"{root}/openai/deployments/{deployment}{path}?api-version={version}"


class OpenAIReader:
    """Understand chat completions and their chunks; see `stream.Reader`."""

    def __init__(self, answer: Answer, ask: Ask) -> None:
        self.answer = answer
        self.complete = False
        self.ended = False

    def read(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of a chunk."""
        if document.get("error"):
            raise reported(document, hide=self.answer.hide)
        choices = a_list(document.get("choices"), "choices")
        first = next((choice for choice in choices if not choice.get("index")), {})
        self.answer.usage = (
            openai_usage(document.get("usage") or first.get("usage")) or self.answer.usage
        )
        if first.get("finish_reason"):
            self.answer.finish_reason, self.complete = str(first["finish_reason"]), True
        return self._message(an_object(first.get("delta"), "delta"))

    def read_whole(self, document: dict[str, Any]) -> list[Piece]:
        """Return the pieces of a completion."""
        if document.get("error"):
            raise reported(document, hide=self.answer.hide)
        choice = document["choices"][0]
        pieces = self._message(dict(choice["message"]))
        self.answer.finish_reason = choice.get("finish_reason")
        self.answer.usage = openai_usage(document.get("usage"))
        return pieces + self.answer.rest()

    def _message(self, message: dict[str, Any]) -> list[Piece]:
        thought = message.get("reasoning_content") or message.get("reasoning")
        pieces = self.answer.think(some_text(thought, "reasoning"))
        content = message.get("content")
        for part in content if isinstance(content, list) else [content]:
            pieces += self._content(part)
        if said := some_text(message.get("refusal"), "refusal"):
            self.answer.refusal += said
            pieces += self.answer.say(said)
        for call in a_list(message.get("tool_calls"), "tool_calls"):
            pieces += self._call(call)
        return pieces

    def _content(self, part: Any) -> list[Piece]:
        if not isinstance(part, dict):
            return self.answer.say(some_text(part, "content"))
        if part.get("type") == "thinking":  # Mistral's: a list of text parts
            inner = a_list(part.get("thinking"), "thinking")
            return self.answer.think("".join(some_text(p.get("text"), "thinking") for p in inner))
        return self.answer.say(some_text(part.get("text"), "content"))

    def _call(self, call: dict[str, Any]) -> list[Piece]:
        index, function = call.get("index"), an_object(call.get("function"), "function")
        if index is not None and (not isinstance(index, int) or isinstance(index, bool)):
            bad("a tool call's index is no number")
        arguments = function.get("arguments")
        return self.answer.call(
            index,
            identity=some_text(call.get("id"), "a tool call's id"),
            name=some_text(function.get("name"), "a tool's name"),
            arguments=some_text(arguments, "arguments"),
        )


def _body(ask: Ask, *, knows_schema: bool) -> dict[str, Any]:
    usage = {"include_usage": True} if ask.stream and ask.include_usage else None
    tools = tools_of(ask)
    choice = choice_of(ask, tools)
    form = form_of(ask)
    messages = [openai_message(message) for message in ask.messages]
    response_format = _response_format(form, knows_schema=knows_schema) if form else None
    if form and response_format == _ANY_OBJECT and form.schema is not None:
        messages = [{"role": "system", "content": form.instruction}, *messages]
    options: dict[str, Any] = {
        "temperature": ask.temperature,
        "top_p": ask.top_p,
        "max_tokens": ask.max_tokens,
        "stop": ask.stop,
        "seed": ask.seed,
        "stream_options": usage,
        "tools": [_tool(tool) for tool in tools] or None,
        "tool_choice": _choice(choice) if choice else None,
        "response_format": response_format,
    }
    given = {name: value for name, value in options.items() if value is not None}
    return {"messages": messages, "stream": ask.stream, **given}


def _response_format(form: Form, *, knows_schema: bool) -> dict[str, Any]:
    if form.given is not None:
        return form.given  # models of one server differ: who writes it out knows theirs
    if not knows_schema:
        return _ANY_OBJECT
    return {"type": "json_schema", "json_schema": {"name": form.name, "schema": form.schema}}


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.parameters}
    if tool.description:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _choice(choice: Choice) -> Any:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode
