"""The simulated model, reading: what a request must hold, whichever API it is of. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from async_nodes.testing.model_script import Script, ScriptError, parse

if TYPE_CHECKING:
    from async_nodes.testing.model_http import Request

MODEL = "sim"
MAX_INPUTS = 2_048

Tools = list[tuple[str, Any]]


class RefusedError(Exception):
    """Answer a request with an error status."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Hold a request for an answer, the same for every API.

    Attributes:
        model: the name with its script.
        messages: the conversation, for counting.
        prompt: the last thing a user said.
        stream, include_usage, max_tokens: as asked for.
        tools: name and schema of the arguments of each.
        choice: ``auto``, ``none``, ``required`` or a tool's name.
        schema: what the answer must fit, or None.
        answers_tool: whether the last message brings a tool's result.

    """

    model: str
    messages: list[dict[str, Any]]
    prompt: str
    stream: bool
    include_usage: bool = False
    max_tokens: int | None = None
    tools: Tools
    choice: str = "auto"
    schema: Any = None
    answers_tool: bool = False

    @property
    def called(self) -> tuple[str, Any] | None:
        """Return the tool that the model calls: one is called first, and its result answered."""
        named = [tool for tool in self.tools if tool[0] == self.choice]
        if named:
            return named[0]
        if not self.tools or self.choice == "none":
            return None
        if self.choice == "required":
            return self.tools[-1 if self.answers_tool else 0]
        return None if self.answers_tool else self.tools[0]


def body_of(request: Request) -> dict[str, Any]:
    """Return the body of a request, which must be an object."""
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError):
        raise RefusedError(400, "We could not parse the JSON body of your request") from None
    if not isinstance(body, dict):
        raise RefusedError(400, "the body must be an object")
    return body


def asked_openai(body: dict[str, Any], model: Any) -> Asked:
    """Return what a request for a chat completion asks."""
    response_format = body.get("response_format") or {}
    schema = (response_format.get("json_schema") or {}).get("schema")
    if response_format.get("type") == "json_object":
        schema = _told_schema(body.get("messages"))
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        choice = (choice.get("function") or {}).get("name")
    return Asked(
        model=_model(model),
        stream=body.get("stream") is True,
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        max_tokens=_limit(body.get("max_tokens"), "max_tokens"),
        tools=_functions(body.get("tools")),
        choice=str(choice),
        schema=schema,
        **_conversation(body),
    )


def asked_anthropic(body: dict[str, Any], model: Any) -> Asked:
    """Return what a request for a message asks."""
    if body.get("max_tokens") is None:
        raise RefusedError(400, "max_tokens: Field required")
    for item in body.get("messages") or ():
        if isinstance(item, dict) and item.get("role") not in ("user", "assistant"):
            raise RefusedError(400, "messages: role must be user or assistant")
    choice = body.get("tool_choice") or {"type": "auto"}
    kind = str(choice.get("type"))
    named = choice.get("name") or ("required" if kind == "any" else kind)
    return Asked(
        model=_model(model),
        stream=body.get("stream") is True,
        include_usage=True,
        max_tokens=_limit(body.get("max_tokens"), "max_tokens"),
        tools=[(str(t.get("name")), t.get("input_schema")) for t in body.get("tools") or ()],
        choice=str(named),
        **_conversation(body, system=body.get("system")),
    )


def asked_ollama(body: dict[str, Any], model: Any) -> Asked:
    """Return what a request for a chat asks."""
    wanted = body.get("format")
    options = body.get("options") or {}
    return Asked(
        model=_model(model),
        stream=body.get("stream", True) is True,
        include_usage=True,
        max_tokens=_limit(options.get("num_predict"), "num_predict"),
        tools=_functions(body.get("tools")),
        schema={"type": "object"} if wanted == "json" else wanted,
        **_conversation(body),
    )


def inputs_of(body: dict[str, Any]) -> list[str]:
    """Return the texts of a request for embeddings."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RefusedError(400, "input must be a string or a list of strings")
    if not texts or not all(texts):
        raise RefusedError(400, "input must not be empty")
    if len(texts) > MAX_INPUTS:
        raise RefusedError(400, f"input holds more than {MAX_INPUTS} texts")
    return texts


def script_of(request: Request, model: Any) -> Script:
    """Return the script of a request: that of its model's name and that of its header."""
    _, _, suffix = _model(model).partition(":")
    try:
        return parse(",".join((suffix, request.headers.get("x-sim", ""))))
    except ScriptError as error:
        raise RefusedError(400, str(error)) from None


def key_of(request: Request, said: list[Any]) -> str:
    """Return the name of the conversation that a request belongs to."""
    if given := request.headers.get("x-sim-key"):
        return given
    task = request.headers.get("idempotency-key", "")
    text = json.dumps([task, *said], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    content = message.get("content")
    if isinstance(content, list):  # content parts: only text counts here
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _model(model: Any) -> str:
    if not isinstance(model, str):
        raise RefusedError(400, "you must provide a model parameter")
    if model.partition(":")[0] != MODEL:
        raise RefusedError(404, f"The model {model!r} does not exist; use {MODEL!r}")
    return model


def _told_schema(messages: Any) -> Any:
    """Return the schema that a system message spells out, as a model would read it there."""
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") == "system":
            _, brace, rest = text_of(message).partition("{")
            try:
                return json.JSONDecoder().raw_decode(brace + rest)[0]
            except (ValueError, RecursionError):
                continue
    return {"type": "object"}


def _conversation(body: dict[str, Any], *, system: Any = None) -> dict[str, Any]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
        raise RefusedError(400, "messages must be a list of objects")
    said = [text_of(item) for item in messages if item.get("role") == "user"]
    spoken = [text for text in said if text]
    return {
        "messages": messages if system is None else [{"content": system}, *messages],
        "prompt": spoken[-1] if spoken else "",
        "answers_tool": bool(messages) and _is_result(messages[-1]),
    }


def _is_result(message: dict[str, Any]) -> bool:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return message.get("role") == "tool" or any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in blocks
    )


def _functions(tools: Any) -> Tools:
    if tools is None:
        return []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RefusedError(400, "tools must be a list of objects")
    functions = [tool.get("function") or {} for tool in tools]
    return [(str(function.get("name")), function.get("parameters")) for function in functions]


def _limit(limit: Any, name: str) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise RefusedError(400, f"{name} must be a whole number from 1 up")
    return limit
