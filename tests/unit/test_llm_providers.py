"""The wires of the model providers, pure: bytes in, pieces out; a request in, a call out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.core.strict_json import dumps
from async_nodes.egress.response import LineSplitter
from async_nodes.nodes.providers import anthropic, ollama, openai
from async_nodes.nodes.providers.answer import Answer, parsed_arguments
from async_nodes.nodes.providers.exchange import Ask, Call, Piece, Provider, Server
from async_nodes.nodes.providers.presets import PRESETS, resolved
from async_nodes.nodes.providers.refusals import hider, refusal
from async_nodes.nodes.providers.stream import Reader, Stream
from async_nodes.testing import model_dialects as dialects
from async_nodes.testing.model_wire import Usage

WIRES: tuple[Provider, ...] = ("openai", "anthropic", "ollama")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TOOL = {"name": "add", "description": "Add up.", "parameters": SCHEMA}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One and one?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c1", "name": "add", "arguments": {"n": 2}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
]


def ask(**given: Any) -> Ask:
    return Ask(**{"model": "m", "messages": [{"role": "user", "content": "hi"}], **given})


def reader(provider: Provider, asked: Ask | None = None) -> Reader:
    return PRESETS[provider].reader(Answer(hider("sk-secret")), asked or ask())


def read(raw: bytes, provider: Provider = "openai", asked: Ask | None = None) -> Any:
    """Return the pieces of a stream and the answer they make."""
    understood = reader(provider, asked)
    stream, lines = Stream(understood), LineSplitter()
    found = [piece for line in lines.feed(raw) for piece in stream.feed(line)]
    return [*found, *stream.finish()], understood.answer


def delta(content: str) -> bytes:
    return b'data: {"choices": [{"delta": {"content": "%b"}}]}\n\n' % content.encode()


STOP = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


def build(provider: Provider, asked: Ask, **server: Any) -> Call:
    preset, where = resolved(Server(**{"provider": provider, "base_url": "http://h/v1", **server}))
    return preset.build(asked, where, knows_schema=preset.knows_schema)


def dialect(provider: Provider) -> dialects.Dialect:
    match provider:
        case "anthropic":
            return dialects.Anthropic(1, "m", 9, 4)
        case "ollama":
            return dialects.Ollama("m", "2026-01-01T00:00:00Z")
    return dialects.OpenAI(1, "m", 0)


def written(
    provider: Provider, texts: list[str], *, tool: str | None = None, thoughts: Sequence[str] = ()
) -> bytes:
    """Return a stream as the provider writes it."""
    spoken = dialect(provider)
    parts = [spoken.opening(), *(spoken.think(thought) for thought in thoughts)]
    if tool is not None:
        parts += [spoken.call(tool), *(spoken.argue(text) for text in texts)]
    else:
        parts += [spoken.say(text) for text in texts]
    usage = Usage(prompt=9, completion=3, cached=4, reasoning=2)
    said = dialects.Said("".join(thoughts), "".join(texts), tool, "stop", usage)
    return b"".join((*parts, spoken.ending(said, include_usage=True)))


def in_pieces(raw: bytes, cuts: list[int], provider: Provider) -> tuple[list[Piece], Answer]:
    """Return what comes of a stream whose bytes the network cuts anywhere."""
    understood = reader(provider)
    stream, lines = Stream(understood), LineSplitter()
    places = sorted({cut % (len(raw) + 1) for cut in cuts})
    found: list[Piece] = []
    for start, end in zip([0, *places], [*places, len(raw)], strict=True):
        for line in lines.feed(raw[start:end]):
            found += stream.feed(line)
    if lines.rest:
        found += stream.feed(lines.rest)
    return [*found, *stream.finish()], understood.answer


text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
cuts = st.lists(st.integers(0, 100_000), max_size=12)


@pytest.mark.parametrize("provider", WIRES)
@given(texts=st.lists(text, max_size=6), thoughts=st.lists(text, max_size=3), cuts=cuts)
def test_text_is_exact_however_the_network_cuts_it(
    provider: Provider, texts: list[str], thoughts: list[str], cuts: list[int]
) -> None:
    """Cuts within characters, lines and events change neither text, reasoning nor counts."""
    pieces, answer = in_pieces(written(provider, texts, thoughts=thoughts), cuts, provider)

    said = [piece for piece in pieces if isinstance(piece, str)]
    thought = [piece["reasoning_delta"] for piece in pieces if isinstance(piece, dict)]
    assert "".join(said) == answer.text == "".join(texts)
    assert "".join(thought) == "".join(thoughts)
    assert answer.finish_reason == "stop"
    assert answer.usage["total_tokens"] == 12


@pytest.mark.parametrize("provider", WIRES)
@given(value=st.dictionaries(text, text | st.integers() | st.none(), max_size=4), cuts=cuts)
def test_a_tools_arguments_are_exact_too(
    provider: Provider, value: dict[str, Any], cuts: list[int]
) -> None:
    """The deltas join to the JSON text, and the output holds the object."""
    whole = json.dumps(value)
    texts = [whole[start : start + 5] for start in range(0, len(whole), 5)]
    pieces, answer = in_pieces(written(provider, texts, tool="add"), cuts, provider)

    deltas = [piece["tool_call"] for piece in pieces if isinstance(piece, dict)]
    assert {(one["index"], one["name"]) for one in deltas} == {(0, "add")}
    assert json.loads("".join(one["arguments_delta"] for one in deltas)) == value
    (call,) = answer.tool_calls
    assert (call["name"], call["arguments"]) == ("add", value)
    assert answer.finish_reason == "tool_calls"


@pytest.mark.parametrize("provider", WIRES)
@given(share=st.floats(0, 1))
def test_a_part_of_a_stream_is_no_answer(provider: Provider, share: float) -> None:
    """A stream that ends early is an error that is tried again, or had said that it was done."""
    raw = written(provider, ["half", " of", " it"])

    try:
        _, answer = in_pieces(raw[: int(share * len(raw))], [], provider)
    except RetryableError as error:
        assert error.code in ("model_stream_cut", "model_bad_chunk")  # noqa: PT017 - either is right
    else:
        assert answer.text == "half of it"


NAMES = st.sampled_from(
    [
        "type",
        "error",
        "choices",
        "index",
        "delta",
        "message",
        "content",
        "tool_calls",
        "function",
        "arguments",
        "name",
        "id",
        "usage",
        "finish_reason",
        "content_block",
        "partial_json",
        "text",
        "thinking",
        "stop_reason",
        "done",
        "done_reason",
        "reasoning_content",
        "refusal",
        "input_tokens",
        "prompt_tokens",
    ]
)
WORDS = st.sampled_from(
    [
        "text",
        "tool_use",
        "message_start",
        "message_delta",
        "content_block_start",
        "content_block_delta",
        "text_delta",
        "input_json_delta",
        "message_stop",
        "error",
        "thinking",
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=False) | WORDS | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.parametrize("provider", WIRES)
@given(documents=st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_no_document_breaks_a_reader(provider: Provider, documents: list[dict[str, Any]]) -> None:
    """Whatever a server sends is understood or a named error, and always fit for a record."""
    understood = reader(provider)
    pieces: list[Piece] = []
    try:
        for document in documents:
            pieces += understood.read(document)
    except AsyncNodesError as error:
        assert isinstance(error, RetryableError)  # noqa: PT017 - both outcomes are right
    assert dumps([pieces, understood.answer.text, understood.answer.tool_calls])


@given(raw=st.binary(max_size=200))
def test_no_bytes_break_a_stream(raw: bytes) -> None:
    """Rubbish is an error that is tried again."""
    with pytest.raises(RetryableError):
        in_pieces(b"data: \x00" + raw + b"\n\n", [], "openai")


def test_a_stream_gives_text_usage_and_reason() -> None:
    """Comments, roles and usage chunks are no text."""
    usage = b'{"choices": [], "usage": {"total_tokens": 3, "cost": 1.5, "prompt_tokens": true}}'
    pieces, answer = read(
        b": ping\n\n"
        b'data: {"choices": [{"delta": {"role": "assistant", "content": ""}}]}\n\n'
        + delta("a")
        + delta("b")
        + STOP
        + b"data: "
        + usage
        + b"\n\ndata: [DONE]\n\n"
    )

    assert pieces == ["a", "b"]
    assert (answer.usage, answer.finish_reason) == ({"total_tokens": 3}, "stop")


def test_an_event_in_several_data_lines_is_one_document() -> None:
    """The lines of one event belong together; the space after the colon is optional."""
    lines = b'data:{"choices": [{"delta":\ndata: {"content": "x"}, "finish_reason": "stop"}]}\n\n'

    assert read(lines)[0] == ["x"]


ORPHAN = (
    b'data: {"type": "content_block_delta", "index": 3, "delta": '
    b'{"type": "input_json_delta", "partial_json": "x"}}'
)


@pytest.mark.parametrize(
    ("provider", "line"),
    [
        ("openai", b'data: {"broken'),
        ("openai", b"data: [1]"),
        ("openai", b'data: {"choices": 1}'),
        ("openai", b'data: {"choices": [1]}'),
        ("openai", b'data: {"choices": [{"delta": "x"}]}'),
        ("openai", b'data: {"choices": [{"delta": {"content": 1}}]}'),
        ("openai", b'data: {"choices": [{"delta": {"content": "\xff"}}]}'),
        ("openai", b'data: {"choices": [{"delta": {"tool_calls": [{"index": 5}]}}]}'),
        ("openai", b'data: {"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}'),
        ("anthropic", b'data: {"type": "content_block_start", "content_block": 1}'),
        (
            "anthropic",
            b'data: {"type": "content_block_start", "content_block": {"type": "tool_use"}}',
        ),
        ("anthropic", ORPHAN),
        ("anthropic", b'data: {"type": "message_delta", "delta": {"stop_reason": ["x"]}}'),
        ("ollama", b'{"message": {"content"'),
        ("ollama", b'{"message": {"content": 1}}'),
        ("ollama", b'{"message": {"tool_calls": [{"function": {"arguments": []}}]}}'),
    ],
)
def test_a_malformed_chunk_is_tried_again(provider: Provider, line: bytes) -> None:
    """What is not a chunk ends the attempt, and another one may succeed."""
    with pytest.raises(RetryableError) as caught:
        read(line + b"\n\n", provider)

    assert caught.value.code == "model_bad_chunk"


def test_a_stream_without_an_ending_was_cut() -> None:
    """Text alone does not prove that the model had finished."""
    with pytest.raises(RetryableError) as caught:
        read(delta("half of the"))

    assert caught.value.code == "model_stream_cut"


@pytest.mark.parametrize(
    ("provider", "line", "code"),
    [
        ("openai", b'data: {"error": {"message": "out of sk-secret"}}', "model_error"),
        ("openai", b'{"error": "out of sk-secret"}', "model_error"),
        (
            "anthropic",
            b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "out of"}}',
            "model_error",
        ),
        (
            "anthropic",
            b'data: {"type": "error", "error": {"type": "rate_limit_error", "message": "out of"}}',
            "model_rate_limited",
        ),
        ("ollama", b'{"error": "out of memory"}', "model_error"),
    ],
)
def test_an_error_in_the_stream_is_the_servers_own(
    provider: Provider, line: bytes, code: str
) -> None:
    """Servers that fail half-way say so in a chunk; a key they repeat is not shown."""
    with pytest.raises(RetryableError, match="out of") as caught:
        read(line + b"\n\n", provider)

    assert caught.value.code == code
    assert "sk-secret" not in caught.value.detail


def test_halves_of_a_surrogate_pair_are_joined() -> None:
    """A character escaped over two chunks is whole; a lone half becomes U+FFFD."""
    assert read(delta("a\\ud83d") + delta("\\ude80b") + STOP)[1].text == "a🚀b"
    assert read(delta("a\\ud83d") + STOP)[1].text == "a\ufffd"
    assert read(delta("\\ude80") + STOP)[1].text == "\ufffd"
    assert parsed_arguments('{"a": "\\ud83d", "b": "\\ud83d\\ude80"}') == {"a": "\ufffd", "b": "🚀"}


def test_several_calls_keep_their_pieces_apart() -> None:
    """Arguments arrive in pieces and belong to the call of their index."""

    def piece(index: int, **call: Any) -> bytes:
        chunk = {"choices": [{"delta": {"tool_calls": [{"index": index, **call}]}}]}
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    pieces, answer = read(
        piece(0, id="c1", function={"name": "f", "arguments": '{"a"'})
        + piece(1, id="c2", function={"name": "g"})
        + piece(0, function={"arguments": ": 1}"})
        + piece(1, function={"arguments": "not JSON"})
        + STOP
    )

    assert pieces[2] == {
        "tool_call": {"index": 0, "id": "c1", "name": "f", "arguments_delta": ": 1}"}
    }
    assert answer.tool_calls == [
        {"id": "c1", "name": "f", "arguments": {"a": 1}},
        {"id": "c2", "name": "g", "arguments": "not JSON"},
    ]


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [
        ("", {}),
        ('{"a": [1]}', {"a": [1]}),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[1]", "[1]"),
        ('"x"', '"x"'),
        ('{"a": ' + "9" * 5_000 + "}", '{"a": ' + "9" * 5_000 + "}"),
        ('{"a":' * 70 + "1" + "}" * 70, '{"a":' * 70 + "1" + "}" * 70),
    ],
)
def test_arguments_that_are_no_object_stay_text(arguments: str, parsed: Any) -> None:
    """Whatever a model writes, the output can be stored."""
    assert parsed_arguments(arguments) == parsed


def test_other_choices_than_the_first_are_left_out() -> None:
    """A request for several answers gets one, not a mixture."""
    other = b'data: {"choices": [{"index": 1, "delta": {"content": "no"}}]}\n\n'

    assert read(delta("yes") + other + STOP)[1].text == "yes"


@pytest.mark.parametrize(
    ("provider", "usage", "counts"),
    [
        (
            "openai",
            {
                "prompt_tokens": 9,
                "completion_tokens": 5,
                "total_tokens": 14,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            (9, 5, 14, 4, 2),
        ),
        (
            "deepseek",
            {"prompt_tokens": 9, "completion_tokens": 5, "prompt_cache_hit_tokens": 4},
            (9, 5, 14, 4, None),
        ),
        (
            "moonshot",
            {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14, "cached_tokens": 1},
            (9, 5, 14, 1, None),
        ),
    ],
)
def test_usage_has_one_set_of_names(
    provider: Provider, usage: dict[str, int], counts: tuple[int | None, ...]
) -> None:
    """What is cached and what was thought are told where a server tells it."""
    chunk = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
    _, answer = read(b"data: " + json.dumps(chunk).encode() + b"\n\n", provider)

    names = ("prompt", "completion", "total", "cached", "reasoning")
    wanted = {f"{name}_tokens": n for name, n in zip(names, counts, strict=True) if n is not None}
    assert answer.usage == wanted


def test_anthropics_cached_input_counts_as_prompt() -> None:
    """Its input tokens leave out what the cache served and what it stored."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 1}
    start = {"type": "message_start", "message": {"usage": {**usage, "output_tokens": 1}}}
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "max_tokens"},
        "usage": {"output_tokens": 7},
    }
    raw = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in (start, end))
    _, answer = read(raw, "anthropic")

    assert answer.finish_reason == "length"
    assert answer.usage == {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "total_tokens": 17,
        "cached_tokens": 4,
    }


def test_openai_is_asked_in_its_own_words() -> None:
    """The key is a Bearer token; calls of earlier turns are written as OpenAI wants them."""
    asked = ask(
        messages=CONVERSATION, max_tokens=9, stop="x", seed=1, tools=[TOOL], tool_choice="add"
    )
    call = build("openai", asked, api_key="k")

    assert call.url == "http://h/v1/chat/completions"
    assert call.headers == {"Authorization": "Bearer k"}
    function = {"name": "add", "arguments": '{"n": 2}'}
    assert call.body["messages"][2]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": function}
    ]
    assert call.body["tools"] == [{"type": "function", "function": TOOL}]
    assert call.body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert (call.body["max_tokens"], call.body["stop"], call.body["seed"]) == (9, "x", 1)


def test_azure_is_asked_at_its_deployment() -> None:
    """The deployment is the model's name unless it has its own, and the key has its own header."""
    call = build("azure", ask(), base_url="https://r/openai/", api_key="k", api_version="v")
    named = build("azure", ask(), base_url="https://r", deployment="a b/c")

    assert call.url == "https://r/openai/deployments/m/chat/completions?api-version=v"
    assert call.headers == {"api-key": "k"}
    assert "/deployments/a%20b%2Fc/chat" in named.url


def test_anthropic_is_asked_in_its_own_words() -> None:
    """System apart, blocks for content, results of tools as a user's turn, a limit always."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    more = {"role": "user", "content": [{"type": "text", "text": "And?"}, image]}
    asked = ask(messages=[*CONVERSATION, more], tools=[TOOL], tool_choice="required", stop="x")
    call = build("anthropic", asked, api_key="k")

    assert call.url == "http://h/v1/messages"
    assert call.headers == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert call.body["system"] == "Be brief."
    assert call.body["max_tokens"] == anthropic.MAX_TOKENS
    assert call.body["stop_sequences"] == ["x"]
    assert call.body["tool_choice"] == {"type": "any"}
    assert call.body["tools"][0]["input_schema"] == SCHEMA
    user, assistant, results = call.body["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "One and one?"}]}
    assert assistant["content"] == [
        {"type": "tool_use", "id": "c1", "name": "add", "input": {"n": 2}}
    ]
    result, words, picture = results["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "c1")
    assert words["text"] == "And?"
    assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": "aGk="}


def test_ollama_is_asked_in_its_own_words() -> None:
    """Options have a place of their own, pictures too, and a result names its tool."""
    image = {"type": "image_url", "image_url": "data:image/png;base64,aGk="}
    more = {"role": "user", "content": [{"type": "text", "text": "And?"}, image]}
    asked = ask(messages=[*CONVERSATION, more], max_tokens=9, stop="x", tools=[TOOL])
    call = build("ollama", asked, base_url="http://h/api")

    assert call.url == "http://h/api/chat"
    assert call.headers == {}
    assert call.body["options"] == {"num_predict": 9, "stop": ["x"]}
    assert call.body["messages"][2]["tool_calls"] == [
        {"function": {"name": "add", "arguments": {"n": 2}}}
    ]
    assert call.body["messages"][3]["tool_name"] == "add"
    assert call.body["messages"][4] == {"role": "user", "content": "And?", "images": ["aGk="]}
    assert "tools" not in build("ollama", ask(tools=[TOOL], tool_choice="none")).body


@pytest.mark.parametrize("provider", WIRES)
def test_extra_members_have_the_last_word(provider: Provider) -> None:
    """What the inputs do not name can still be sent."""
    call = build(provider, ask(extra={"model": "other", "think": False}))

    assert (call.body["model"], call.body["think"]) == ("other", False)


@pytest.mark.parametrize(
    ("provider", "inputs", "words"),
    [
        ("openai", {"tools": [{"type": "web_search"}]}, "type function"),
        ("openai", {"tools": [{"description": "x"}]}, "needs a name"),
        ("openai", {"tools": [{"name": "f", "parameters": []}]}, "JSON schema"),
        ("openai", {"tool_choice": "auto"}, "needs tools"),
        ("openai", {"tools": [TOOL], "tool_choice": "ad"}, "name of one of the tools"),
        ("openai", {"response_format": {"type": "xml"}}, "response_format.type"),
        ("openai", {"response_format": {"type": "json_schema", "json_schema": {}}}, "a schema"),
        ("ollama", {"tools": [TOOL], "tool_choice": "required"}, "cannot be made"),
        ("anthropic", {"tools": [TOOL], "tool_choice": "add", "schema": SCHEMA}, "either"),
        ("anthropic", {"messages": [{"content": 1}]}, "content must be"),
        ("anthropic", {"messages": [{"tool_calls": [{}]}]}, "needs a name"),
        (
            "ollama",
            {"messages": [{"content": [{"type": "image_url", "image_url": "https://h/i.png"}]}]},
            "data: URLs",
        ),
    ],
)
def test_what_cannot_be_asked_is_named(
    provider: Provider, inputs: dict[str, Any], words: str
) -> None:
    """A wrong input is final and says what it should be, before anything is sent."""
    with pytest.raises(TerminalError, match=words) as caught:
        build(provider, ask(**inputs))

    assert caught.value.code == "invalid_inputs"


def test_every_provider_has_a_preset() -> None:
    """A name that a request may give leads to an address or says that one is needed."""
    assert set(PRESETS) == set(get_args(Provider))
    for provider, preset in PRESETS.items():
        if preset.base_url:
            assert resolved(Server(provider=provider))[1].base_url == preset.base_url
        else:
            with pytest.raises(TerminalError, match="needs a base_url"):
                resolved(Server(provider=provider))


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1", "sk-\u00e9"])
def test_a_key_that_no_header_holds_is_refused_unseen(key: str) -> None:
    """A line break pasted along is the usual reason; the key stays out of the message."""
    with pytest.raises(TerminalError, match="api_key holds") as caught:
        resolved(Server(api_key=key))

    assert "sk" not in caught.value.detail
    assert key not in repr(Server(api_key=key))


def test_an_address_with_a_query_is_refused() -> None:
    """A path cannot be put behind a query."""
    with pytest.raises(TerminalError, match="without a query"):
        resolved(Server(base_url="http://h/v1?x=1"))


@pytest.mark.parametrize(
    ("status", "body", "kind", "code"),
    [
        (400, b'{"type": "error", "error": {"message": "bad sk-secret"}}', TerminalError, ""),
        (529, b'{"error": {"type": "overloaded_error", "message": "x"}}', RetryableError, ""),
        (429, b'{"error": {"code": "insufficient_quota"}}', TerminalError, "model_refused"),
        (429, b'{"error": {"type": "exceeded_current_quota_error"}}', TerminalError, ""),
        (404, b'{"error": "model not found"}', TerminalError, "model_refused"),
        (429, b'{"error": {"code": ["x"], "type": 1}}', RetryableError, "model_rate_limited"),
        (502, b"\xff<html>", RetryableError, "model_error"),
        (401, b"[" * 100_000, TerminalError, "model_refused"),
    ],
)
def test_a_status_is_final_or_not(status: int, body: bytes, kind: type, code: str) -> None:
    """Each provider's way to refuse gets one of our codes, its words and no secret."""
    error = refusal(status, body, {"Retry-After": "2"}, hide=hider("sk-secret"))

    assert type(error) is kind
    assert code in error.code
    assert f"answered {status}" in error.detail
    assert "sk-secret" not in error.detail
    assert error.retry_after == (2.0 if kind is RetryableError else None)


def test_reasoning_is_found_under_its_names() -> None:
    """DeepSeek, newer vLLM and Mistral each have a place for it."""
    for part in (
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    ):
        understood = openai.OpenAIReader(Answer(), ask())
        assert understood.read({"choices": [{"delta": part}]}) == [{"reasoning_delta": "hm"}]
        assert understood.answer.text == ""
    thought = {"message": {"content": "", "thinking": "hm"}}
    assert ollama.OllamaReader(Answer(), ask()).read(thought) == [{"reasoning_delta": "hm"}]
