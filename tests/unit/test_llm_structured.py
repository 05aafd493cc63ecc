"""Answers that must be objects: how a schema is sent, and what passes for an answer."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import RetryableError, TerminalError
from async_nodes.nodes.providers.answer import Answer
from async_nodes.nodes.providers.exchange import Ask, Provider, Server
from async_nodes.nodes.providers.presets import resolved
from async_nodes.nodes.providers.structured import Form, checker, form_of, structured
from async_nodes.testing.model_sample import sample

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def body(provider: Provider, **given: Any) -> dict[str, Any]:
    preset, server = resolved(Server(provider=provider, base_url="http://h/v1"))
    messages = [{"role": "user", "content": "hi"}]
    asked = Ask(**{"model": "m", "messages": messages, **given})
    return preset.build(asked, server, knows_schema=preset.knows_schema).body


def answer(text: str, *, reason: str = "stop") -> Answer:
    made = Answer()
    made.say(text)
    made.finish_reason = reason
    return made


def value(text: str, schema: dict[str, Any] | None = SCHEMA, *, reason: str = "stop") -> Any:
    return structured(answer(text, reason=reason), checker(Form(schema)))


def test_each_provider_is_told_the_schema_in_its_way() -> None:
    """OpenAI by response_format, Anthropic by a tool that must be called, Ollama by format."""
    wanted = {"type": "json_schema", "json_schema": {"name": "output", "schema": SCHEMA}}

    assert body("openai", schema=SCHEMA)["response_format"] == wanted
    assert body("ollama", schema=SCHEMA)["format"] == SCHEMA
    asked = body("anthropic", schema=SCHEMA)
    assert asked["tool_choice"] == {"type": "tool", "name": "structured_output"}
    assert asked["tools"][0]["input_schema"] == SCHEMA


def test_a_server_without_schemas_is_told_in_words() -> None:
    """It is asked for any object, and a first message holds the schema."""
    asked = body("deepseek", schema=SCHEMA)

    assert asked["response_format"] == {"type": "json_object"}
    assert json.dumps(SCHEMA) in asked["messages"][0]["content"]
    given = {"type": "json_object"}
    assert len(body("openai", response_format=given, schema=SCHEMA)["messages"]) == 2
    assert len(body("openai", response_format=given)["messages"]) == 1


def test_a_response_format_is_sent_as_it_is_or_translated() -> None:
    """OpenAI's own form, strictness included, works with the other providers too."""
    inner = {"name": "sum", "strict": True, "schema": SCHEMA}
    given = {"type": "json_schema", "json_schema": inner}

    assert body("openai", response_format=given)["response_format"] == given
    assert body("qwen", response_format=given)["response_format"] == given
    assert body("ollama", response_format=given)["format"] == SCHEMA
    assert body("ollama", response_format={"type": "json_object"})["format"] == "json"
    assert "response_format" not in body("openai", response_format={"type": "text"})
    assert form_of(Ask(model="m", messages=[], response_format=given)) == Form(SCHEMA, "sum", given)


def test_anthropic_may_call_a_tool_instead_of_answering() -> None:
    """With tools of the request's own, any of them or the answer's must be called."""
    asked = body("anthropic", schema=SCHEMA, tools=[{"name": "add"}])

    assert asked["tool_choice"] == {"type": "any"}
    assert [tool["name"] for tool in asked["tools"]] == ["add", "structured_output"]


@pytest.mark.parametrize(
    "text", ['{"n": 1}', ' {"n": 1}\n', '```json\n{"n": 1}\n```', '```\n{"n": 1}\n```\n']
)
def test_an_object_is_found_with_and_without_a_fence(text: str) -> None:
    """Models like to write Markdown around JSON."""
    assert value(text) == {"n": 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sorry", "not JSON"),
        ('{"n": ', "not JSON"),
        ('{"n": NaN}', "strict JSON"),
        ('{"n": "1"}', "integer.*/n"),
        ("{}", "required.*root"),
        ("[1]", "object.*root"),
        ("", "not JSON"),
        ("[" * 5_000, "not JSON"),
    ],
)
def test_an_answer_that_does_not_fit_is_tried_again(text: str, words: str) -> None:
    """The error says what is wrong and where."""
    with pytest.raises(RetryableError, match=words) as caught:
        value(text)

    assert caught.value.code == "model_bad_output"


def test_an_answer_cut_by_its_limit_says_so() -> None:
    """The reason of half an object is known."""
    with pytest.raises(RetryableError, match="cut at max_tokens"):
        value('{"n"', reason="length")


def test_a_model_that_refuses_is_not_asked_again() -> None:
    """A filter or a refusal is no bad output."""
    refused = answer("I cannot help.")
    refused.refusal = "I cannot help."

    for one in (refused, answer("half", reason="content_filter")):
        with pytest.raises(TerminalError, match="would not answer") as caught:
            structured(one, checker(Form(SCHEMA)))
        assert caught.value.code == "model_refused"


def test_half_a_character_in_an_object_can_be_stored() -> None:
    """An escape that stands alone becomes U+FFFD, as it does in text."""
    assert value('{"a": "\\ud83d"}', None) == {"a": "\ufffd"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "that of an object"),
        ({}, "that of an object"),
        ({"type": "object", "properties": {"a": {"type": 3}}}, "cannot be used"),
        ({"type": "object", "properties": {"a": {"pattern": "("}}}, "cannot be used"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}, "cannot be used"),
        ({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/"}}}, "not part of"),
        ({"type": "object", "properties": {"a": {"$ref": "file:///etc/hosts"}}}, "not part of"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], words: str) -> None:
    """It is named before a model is paid for, and nothing is fetched for it."""
    if schema == {}:
        schema = {"$comment": "anything"}
    with pytest.raises(TerminalError, match=words) as caught:
        checker(Form(schema))

    assert caught.value.code == "invalid_inputs"


def test_no_pattern_takes_for_ever() -> None:
    """A regular expression that explodes elsewhere takes linear time here."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    wrong = checker(Form(schema))

    began = time.monotonic()
    assert wrong({"a": "a" * 50_000 + "b"})
    assert time.monotonic() - began < 10


SIMPLE = st.recursive(
    st.sampled_from(
        [
            {"type": "string", "minLength": 9},
            {"type": "integer", "minimum": 3, "maximum": 4},
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            {"type": "boolean"},
            {"type": ["null", "string"]},
            {"enum": ["a", 2]},
            {"const": {"x": 1}},
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            {"$ref": "#/$defs/word"},
        ]
    ),
    lambda inner: (
        st.builds(lambda items: {"type": "array", "items": items, "maxItems": 3}, inner)
        | st.builds(
            lambda inside: {
                "type": "object",
                "properties": inside,
                "required": list(inside),
                "additionalProperties": False,
            },
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        )
    ),
    max_leaves=8,
)


@given(inside=SIMPLE, seed=st.integers())
def test_what_the_simulated_model_invents_fits(inside: dict[str, Any], seed: int) -> None:
    """A sample of an everyday schema passes the check of an answer."""
    schema = {
        "type": "object",
        "properties": {"value": inside},
        "required": ["value"],
        "$defs": {"word": {"type": "string", "maxLength": 3}},
    }

    assert checker(Form(schema))(sample(schema, random.Random(seed))) == ""
