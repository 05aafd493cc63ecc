"""Beside the providers: an answer that must be a JSON object, asked for and checked.

Checked by jsonschema-rs (MIT, one wheel without dependencies): its regular expressions take
linear time, so that no schema of a request can hold up a worker, and it fetches nothing here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.core.strict_json import loads, pointer_to
from async_nodes.nodes.providers.answer import whole
from async_nodes.nodes.providers.tools import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.nodes.providers.answer import Answer
    from async_nodes.nodes.providers.exchange import Ask

EXCERPT = 300
ANY_OBJECT: dict[str, Any] = {"type": "object"}

_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(?P<body>.*?)\n?[ \t]*```\s*", re.DOTALL)
_REFUSALS = frozenset({"content_filter"})


@dataclass(frozen=True, slots=True)
class Form:
    """Say which object is wanted.

    Attributes:
        schema: its JSON schema, or None for any object.
        name: the schema's name.
        given: OpenAI's ``response_format`` as the request had it, or None.

    """

    schema: dict[str, Any] | None
    name: str = "output"
    given: dict[str, Any] | None = None

    @property
    def instruction(self) -> str:
        """Return what tells a model of the schema that its server cannot be told of."""
        schema = json.dumps(self.schema or ANY_OBJECT, ensure_ascii=False)
        return f"Answer with one JSON object that fits this JSON schema, and nothing else: {schema}"


def form_of(ask: Ask) -> Form | None:
    """Return what a request says about the form of the answer, or None when it says nothing.

    Raises:
        TerminalError: ``invalid_inputs`` for a response_format of another kind.

    """
    given = ask.response_format
    kind = given.get("type") if given else None
    if given is None or kind == "text":
        return Form(ask.schema) if ask.schema is not None else None
    if kind == "json_object":
        return Form(ask.schema, given=given)
    inner = given.get("json_schema")
    if kind != "json_schema" or not isinstance(inner, dict):
        refuse("response_format.type is text, json_object or json_schema (with its json_schema)")
    schema = inner.get("schema") if ask.schema is None else ask.schema
    if not isinstance(schema, dict):
        refuse("response_format.json_schema needs a schema")
    return Form(schema, str(inner.get("name") or "output"), given)


def checker(form: Form) -> Callable[[Any], str]:
    """Return a function that tells what is wrong with a value: nothing when it fits.

    Raises:
        TerminalError: ``invalid_inputs`` for a schema that is none, refers to another document, or
            is not an object's.

    """
    import jsonschema_rs

    schema = form.schema or ANY_OBJECT
    if schema.get("type") != "object":
        refuse('the schema must be that of an object: "type": "object" at its root')
    try:
        validator = jsonschema_rs.validator_for(
            schema, pattern_options=jsonschema_rs.RegexOptions(), retriever=_fetch_nothing
        )
    except ValueError as error:
        message = str(getattr(error, "message", error))
        refuse(f"the schema cannot be used: {message[:EXCERPT]}")

    def wrong(value: Any) -> str:
        for error in validator.iter_errors(value):
            where = pointer_to(error.instance_path) or "its root"
            return f"{error.message[:EXCERPT]} (at {where})"
        return ""

    return wrong


def structured(answer: Answer, wrong: Callable[[Any], str]) -> dict[str, Any]:
    """Return the object that an answer's text holds; a fence around it is no part of it.

    Raises:
        TerminalError: ``model_refused`` when the model would not answer.
        RetryableError: ``model_bad_output`` for a text that is no JSON or does not fit.

    """
    text = answer.text
    if answer.refusal or answer.finish_reason in _REFUSALS:
        said = answer.hide(answer.refusal or text)[:EXCERPT]
        raise TerminalError(f"the model would not answer: {said}", code="model_refused")
    fenced = _FENCED.fullmatch(text)
    try:
        # Python's reader joins escaped surrogate pairs; lone halves, which no record may hold,
        # are replaced before the strict reader looks.
        raw = whole(json.dumps(json.loads(fenced["body"] if fenced else text), ensure_ascii=False))
        value = loads(raw.encode())
    except AsyncNodesError as error:
        _bad(answer, f"is not strict JSON: {error.detail}")
    except (ValueError, RecursionError) as error:
        _bad(answer, f"is not JSON ({error})")
    if reason := wrong(value):
        _bad(answer, f"does not fit the schema: {reason}")
    return dict(value)


def _bad(answer: Answer, reason: str) -> NoReturn:
    cut = "; it was cut at max_tokens" if answer.finish_reason == "length" else ""
    message = f"the model's answer {reason}{cut}"
    raise RetryableError(message, code="model_bad_output")


def _fetch_nothing(uri: str) -> NoReturn:
    raise ValueError(f"the schema refers to {uri}, which is not part of it")
