"""Step 1, submit: what a node takes, read from its function's signature.

Turns a signature into a msgspec type, which gives the validation and the JSON schema. Knows
nothing about registration or running.
"""

from __future__ import annotations

import copy
import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from async_nodes.core.errors import AsyncNodesError
from async_nodes.nodes.files import File, reader, schema_of

CONTEXT_PARAMETER = "ctx"

_PATH = re.compile(r"^(?P<text>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")
_FIELD = re.compile(r"(missing required|unknown) field `(?P<name>.*)`")
Hook = Callable[[type, Any], Any] | None
_IMMUTABLE = (str, int, float, bool, type(None), tuple, frozenset)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Check the inputs of one node.

    Attributes:
        names: the declared inputs, in order.
        open: whether further names are taken (the function has ``**kwargs``).
        schema: the JSON schema of the inputs object.
        takes_files: whether any of them may be a file.

    """

    names: tuple[str, ...]
    open: bool
    schema: Mapping[str, Any]
    takes_files: bool
    _type: type[msgspec.Struct]
    _extra: Any

    def validate(
        self, inputs: bytes | Mapping[str, Any], found: list[File] | None = None
    ) -> dict[str, Any]:
        """Return keyword arguments with every default filled in.

        Args:
            inputs: a JSON object, encoded or not.
            found: takes the files among them; nobody has looked yet whether they are there.

        Raises:
            AsyncNodesError: ``not_json`` for bytes that are not JSON, ``invalid_inputs`` with a
                pointer below ``/inputs`` for everything that does not fit.

        """
        return self._validated(inputs, reader(found) if self.takes_files else None)

    def check_files(self, inputs: Mapping[str, Any], missing: frozenset[str]) -> None:
        """Refuse inputs that name files which are not there; raises as `validate` does.

        Args:
            inputs: good ones but for that.
            missing: ids of such files.

        """
        self._validated(inputs, reader(missing=missing))

    def _validated(self, inputs: bytes | Mapping[str, Any], hook: Hook) -> dict[str, Any]:
        try:
            value = msgspec.json.decode(inputs) if isinstance(inputs, bytes) else inputs
            if not isinstance(value, Mapping):
                _refuse("the inputs must be a JSON object", "")
            self._refuse_unknown(value)
            known = {name: value[name] for name in self.names if name in value}
            checked = msgspec.convert(known, self._type, dec_hook=hook)
            result = {name: getattr(checked, name) for name in self.names}
            for name in value.keys() - known.keys():
                result[name] = self._convert_extra(name, value[name], hook)
        except msgspec.ValidationError as error:
            _refuse_invalid(str(error))
        except msgspec.DecodeError as error:
            raise AsyncNodesError("not_json", f"the inputs: {error}", pointer="/inputs") from error
        return result

    def _refuse_unknown(self, value: Mapping[str, Any]) -> None:
        if self.open:
            return
        for name in value:
            if name not in self.names:
                close = difflib.get_close_matches(str(name), self.names, n=1)
                takes = ", ".join(self.names) or "none"
                hint = f"; did you mean {close[0]!r}?" if close else f"; it takes {takes}"
                _refuse(f"there is no input {name!r}{hint}", _pointer(str(name)))

    def _convert_extra(self, name: str, value: Any, hook: Hook) -> Any:
        if self._extra is Any:
            return value
        try:
            return msgspec.convert(value, self._extra, dec_hook=hook)
        except msgspec.ValidationError as error:
            _refuse_invalid(str(error), within=_pointer(name))


def inputs_of(function: Callable[..., Any]) -> Inputs:
    """Read a function's parameters, the context apart.

    Raises:
        AsyncNodesError: ``invalid_node`` for a signature that named JSON inputs cannot fill.

    """
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != CONTEXT_PARAMETER
    ]
    hints = _hints(function)
    fields: list[Any] = []
    extra: Any = None
    for parameter in parameters:
        annotation = hints.get(parameter.name, Any)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = annotation
        elif parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.POSITIONAL_ONLY,
        ):
            _refuse_node(function, f"{parameter} must be a parameter that takes a name")
        else:
            fields.append(_field(parameter, annotation))
    made, schema, takes_files = _build(function, fields, extra)
    names = tuple(name for name, *_ in fields)
    return Inputs(names, extra is not None, schema, takes_files, made, extra)


def takes_context(function: Callable[..., Any]) -> bool:
    """Tell whether a function wants the context."""
    return CONTEXT_PARAMETER in inspect.signature(function).parameters


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    # Only the inputs: a return type may name what is imported for the type checker alone.
    skipped = ("return", CONTEXT_PARAMETER)
    wanted = {k: v for k, v in function.__annotations__.items() if k not in skipped}
    holder = types.SimpleNamespace(__annotations__=wanted)
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, globalns=scope, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        _refuse_node(function, f"its annotations cannot be read at run time: {error}")


def _field(parameter: inspect.Parameter, annotation: Any) -> Any:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return (parameter.name, annotation)
    if isinstance(default, _IMMUTABLE):
        return (parameter.name, annotation, default)
    factory = msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return (parameter.name, annotation, factory)


def _build(
    function: Callable[..., Any], fields: list[Any], extra: Any
) -> tuple[type[msgspec.Struct], Mapping[str, Any], bool]:
    asked: list[type] = []

    def schema_hook(kind: type) -> dict[str, Any]:
        asked.append(kind)
        return schema_of(kind)

    try:
        made = msgspec.defstruct("Inputs", fields, kw_only=True)
        (schema,), shared = msgspec.json.schema_components(
            [made], schema_hook=schema_hook, ref_template="#/$defs/{name}"
        )
        schema = dict(shared.pop("Inputs"))
        further = _further(extra, schema_hook)
    except (TypeError, ValueError) as error:
        _refuse_node(function, f"an input's type cannot come from JSON: {error}")
    schema.pop("title", None)
    schema["additionalProperties"] = further
    if shared:
        schema["$defs"] = shared
    return made, schema, File in asked


def _further(extra: Any, schema_hook: Callable[[type], dict[str, Any]]) -> Any:
    if extra is None or extra is Any:
        return extra is Any
    return msgspec.json.schema(extra, schema_hook=schema_hook)


def _refuse_invalid(message: str, *, within: str = "") -> NoReturn:
    match = _PATH.match(message)
    text, path = (match["text"], match["path"] or "") if match else (message, "")
    pointer = within + "".join(
        _pointer(step["name"] or step["index"]) for step in _STEP.finditer(path)
    )
    if named := _FIELD.search(text):
        pointer += _pointer(named["name"])
        text = f"the input {named['name']!r} is missing" if "missing" in text else text
    _refuse(f"{text} (at /inputs{pointer})", pointer)


def _refuse(message: str, pointer: str) -> NoReturn:
    raise AsyncNodesError("invalid_inputs", message, pointer=f"/inputs{pointer}")


def _refuse_node(function: Callable[..., Any], message: str) -> NoReturn:
    place = f"{function.__module__}.{function.__qualname__}"
    raise AsyncNodesError("invalid_node", f"{place}: {message}")


def _pointer(step: str) -> str:
    return "/" + step.replace("~", "~0").replace("/", "~1")
