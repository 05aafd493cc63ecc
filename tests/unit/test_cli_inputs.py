from __future__ import annotations

from pathlib import Path

import pytest

from async_nodes.cli.failures import Failure, explain
from async_nodes.cli.inputs import Upload, advised, parse
from async_nodes.core.errors import AsyncNodesError


def test_text_and_json() -> None:
    """``=`` gives text as it stands, ``:=`` gives JSON, and only the first of them counts."""
    items = ["text=你好 = x", "n:=3", "list:=[1, null]", "url=http://a/?b:=c", "empty="]
    assert parse(items) == {
        "text": "你好 = x",
        "n": 3,
        "list": [1, None],
        "url": "http://a/?b:=c",
        "empty": "",
    }


def test_a_file_is_named_with_an_at() -> None:
    """``key=@path`` stands for a file; JSON can spell a text that begins so."""
    assert parse(["file=@a/b.csv", 'text:="@a"', "mail=ann@b"]) == {
        "file": Upload(Path("a/b.csv")),
        "text": "@a",
        "mail": "ann@b",
    }


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (["text"], "'text' is not an input"),
        (["=x"], "'=x' is not an input"),
        (["n:=x"], "the value of 'n' is not JSON"),
        (["n:=NaN"], "NaN is no JSON number"),
        (["n:=" + "[" * 100_000], "is not JSON"),
        (["a=1", "a:=2"], "given twice"),
        (["a=\udcff"], "not UTF-8"),
    ],
)
def test_what_is_no_input_is_named(items: list[str], said: str) -> None:
    """Each wrong item is refused in a sentence that names it."""
    with pytest.raises(Failure, match=r".") as caught:
        parse(items)
    assert said in caught.value.detail


def test_an_error_is_a_sentence_a_hint_and_the_code() -> None:
    """The catalogue's hint and the code follow what happened."""
    error = AsyncNodesError("unknown_node", "there is no node 'ecoh'; did you mean 'echo'?")
    first, second = explain(error).split("\n")
    assert first == "error: there is no node 'ecoh'; did you mean 'echo'?"
    assert second.endswith("[unknown_node]")
    assert "/v1/nodes" in second


def test_an_error_is_explained_in_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a Chinese locale the catalogue's Chinese texts are used."""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    said = explain(AsyncNodesError("unknown_node", "there is no node 'x'"))
    assert said.startswith("错误: 没有这个名字的节点: there is no node 'x'\n")
    assert "列出节点" in said


def test_all_wrong_fields_are_listed() -> None:
    """A problem with several wrong fields shows each with its pointer."""
    errors = [
        {"pointer": "/delay", "detail": "too long"},
        {"pointer": "/ttl", "detail": "negative"},
    ]
    said = explain(AsyncNodesError("invalid_request", "2 fields are wrong", errors=errors))
    assert "  /delay: too long" in said
    assert "  /ttl: negative" in said


@pytest.mark.parametrize(
    ("text", "spelt"), [("3", "n:=3"), ("[1, 2]", "n:=[1, 2]"), ("x" * 50, "n:=…")]
)
def test_a_text_in_place_of_a_value_gets_the_other_spelling(text: str, spelt: str) -> None:
    """The server knows the type that is wanted, the command line how it is written."""
    faults = [{"pointer": "/inputs/n", "detail": "Expected `int`, got `str`"}]
    error = AsyncNodesError("invalid_inputs", "n: Expected `int`, got `str`", errors=faults)

    told = advised(error, {"n": text})

    assert isinstance(told, Failure)
    assert told.hint.endswith(f"write {spelt}")
    assert "[invalid_inputs]" in told.detail


@pytest.mark.parametrize(
    ("pointer", "detail"),
    [("/inputs/m", "Expected `int`, got `str`"), ("/inputs/n", "Expected `str`, got `int`")],
)
def test_another_refusal_stays_as_it_is(pointer: str, detail: str) -> None:
    """Of another input, or for another reason."""
    error = AsyncNodesError("invalid_inputs", errors=[{"pointer": pointer, "detail": detail}])

    assert advised(error, {"n": "3", "m": 4}) is error
