"""Beside the providers: the tools a model may call, read from a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from async_nodes.core.errors import TerminalError

if TYPE_CHECKING:
    from async_nodes.nodes.providers.exchange import Ask

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}

_MODES: tuple[Literal["auto", "none", "required"], ...] = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class Tool:
    """Describe one tool: a name, a sentence for the model, the JSON schema of its arguments."""

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Say whether the model must call: one of the modes, or the tool of a name."""

    mode: Literal["auto", "none", "required", "named"]
    name: str = ""


def tools_of(ask: Ask) -> list[Tool]:
    """Return the tools of a request.

    Raises:
        TerminalError: ``invalid_inputs`` for a tool without a name or of another kind.

    """
    return [_tool(number, tool) for number, tool in enumerate(ask.tools or ())]


def choice_of(ask: Ask, tools: list[Tool]) -> Choice | None:
    """Return what a request says about calling, or None when it says nothing.

    Raises:
        TerminalError: ``invalid_inputs`` for a choice that is none of the forms, or names no tool.

    """
    given = ask.tool_choice
    if given is None:
        return None
    if not tools:
        refuse("tool_choice needs tools")
    for mode in _MODES:
        if given == mode:
            return Choice(mode)
    name = given if isinstance(given, str) else _within(given, "name")
    if name not in [tool.name for tool in tools]:
        refuse(
            f"tool_choice is auto, none, required or the name of one of the tools, not {given!r}"
        )
    return Choice("named", name)


def refuse(message: str) -> NoReturn:
    """Refuse an input.

    Raises:
        TerminalError: ``invalid_inputs``.

    """
    raise TerminalError(message, code="invalid_inputs")


def _tool(number: int, given: dict[str, Any]) -> Tool:
    function = given.get("function", given)
    if given.get("type", "function") != "function" or not isinstance(function, dict):
        refuse(f"tools[{number}] must be of type function")
    name, parameters = function.get("name"), function.get("parameters")
    if not isinstance(name, str) or not name:
        refuse(f"tools[{number}] needs a name")
    if parameters is None:
        parameters = function.get("input_schema") or NO_PARAMETERS
    if not isinstance(parameters, dict):
        refuse(f"tools[{number}].parameters must be a JSON schema")
    strict = function.get("strict")
    return Tool(
        name,
        str(function.get("description") or ""),
        parameters,
        strict if isinstance(strict, bool) else None,
    )


def _within(given: dict[str, Any], name: str) -> Any:
    inner = given.get("function", given)
    return inner.get(name) if isinstance(inner, dict) else None
