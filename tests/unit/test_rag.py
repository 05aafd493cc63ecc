"""What `rag.index` and `rag.answer` are made of, without a model and without a store."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes import rag_documents, rag_index
from async_nodes.nodes.breathing import breathing
from async_nodes.nodes.rag_documents import Document, cut
from async_nodes.nodes.rag_index import Index
from async_nodes.nodes.rag_kept import keep_index, kept_index
from async_nodes.nodes.rag_prompt import NO_SOURCES, messages, within
from async_nodes.nodes.rag_search import Bm25, cosine, fused, tokenise, top_k, unit
from async_nodes.nodes.rag_vectors import Embedder
from async_nodes.nodes.registry import registry
from async_nodes.testing import MemoryFiles, Outcome
from async_nodes.testing.harness import MemoryBlobs

WORDS = st.sampled_from(["cat", "dog", "mat", "猫", "狗", "垫子", "Straße"])
TEXT = st.lists(WORDS, max_size=12).map(" ".join)
ANY = st.text(max_size=80)
NUMBERS = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=8)


def context(**given: Any) -> Any:
    """Return a node's context that keeps blobs and files in memory."""
    return Outcome().context("test", **{"blobs": MemoryBlobs(), **given})


def pieces(documents: Any, **given: Any) -> Index:
    """Return the index of documents."""
    return cut(context(), documents, **{"size": 50, "overlap": 10, "most": 10_000, **given})


# -- words -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The CAT, the cat!", ["the", "cat", "the", "cat"]),
        ("猫坐垫", ["猫", "坐", "垫", "猫坐", "坐垫"]),
        ("ＧＰＵ４ ｶﾀｶﾅ", ["gpu4", "カ", "タ", "カ", "ナ", "カタ", "タカ", "カナ"]),
        ("用Redis缓存", ["用", "redis", "缓", "存", "缓存"]),
        ("Cafe\u0301 straße", ["café", "strasse"]),
        ("แมว", ["แ", "ม", "ว", "แม", "มว"]),
        ("снег -- snow_flake", ["снег", "snow", "flake"]),
        ("... \u200d", []),
    ],
)
def test_words_of_any_script_are_found(text: str, tokens: list[str]) -> None:
    """Words where there are spaces, characters and pairs where there are none."""
    assert tokenise(text) == tokens


@given(ANY)
def test_words_do_not_hang_on_how_they_are_written(text: str) -> None:
    """Case does not matter, and no word is empty or holds white space."""
    assert tokenise(text.upper().lower()) == tokenise(text.upper())
    assert all(token and not any(map(str.isspace, token)) for token in tokenise(text))


# -- BM25 ------------------------------------------------------------------------------------------


def by_definition(texts: list[str], query: str) -> dict[int, float]:
    """Return BM25 as its formula says it, without an index."""
    tokens = [tokenise(text) for text in texts]
    average = sum(map(len, tokens)) / len(texts) if texts else 0
    scores: dict[int, float] = {}
    for number, words in enumerate(tokens):
        score = 0.0
        for word in tokenise(query):
            having = sum(word in other for other in tokens)
            idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            if count := words.count(word):
                norm = 1.2 * (0.25 + 0.75 * len(words) / average)
                score += idf * count * 2.2 / (count + norm)
        if score:
            scores[number] = score
    return scores


@given(st.lists(TEXT, max_size=8), TEXT)
def test_bm25_is_what_its_formula_says(texts: list[str], query: str) -> None:
    """The index gives the same scores as counting every text by hand, and none below 0."""
    scores = Bm25(texts).scores(query)

    assert scores == pytest.approx(by_definition(texts, query))
    assert all(score > 0 for score in scores.values())


def test_rare_words_and_short_texts_win() -> None:
    """A word that few texts have says more, and it says more in a short text."""
    index = Bm25(["the cat", "the dog", "the cat and the dog and the bird", "the fish"])

    assert [number for number, _ in top_k(index.scores("the fish"), 1)] == [3]
    assert [number for number, _ in top_k(index.scores("cat"), 9)] == [0, 2]


# -- vectors and rankings --------------------------------------------------------------------------


@given(NUMBERS)
def test_a_direction_has_length_one(numbers: list[float]) -> None:
    """Whatever the size of the numbers; zeros have no direction and stay zeros."""
    direction = unit(numbers)

    assert len(direction) == len(numbers)
    length = math.hypot(*direction)
    assert length == (pytest.approx(1.0, abs=1e-6) if any(numbers) else 0.0)
    assert cosine(direction, direction) == pytest.approx(length, abs=1e-6)


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_a_vector_that_is_none_points_nowhere(odd: float) -> None:
    """It is near to nothing, instead of to everything."""
    assert not any(unit([odd, 1.0]))
    assert not any(unit([1.0, odd]))


@given(st.dictionaries(st.integers(0, 50), st.floats(0, 1)), st.integers(1, 60))
def test_the_best_come_first(scores: dict[int, float], count: int) -> None:
    """Equal ones in their order, and nothing that is left out is better."""
    best = top_k(scores, count)

    assert best == sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:count]


@given(st.lists(st.permutations(range(6)), min_size=1, max_size=4), st.integers(0, 5))
def test_joined_rankings_respect_what_all_agree_on(rankings: list[list[int]], cut: int) -> None:
    """What is ahead of another in each ranking is ahead in the joined one."""
    joined = fused(rankings)

    for one in range(6):
        for other in range(6):
            if all(ranking.index(one) < ranking.index(other) for ranking in rankings):
                assert joined[one] > joined[other]
    assert set(fused(ranking[:cut] for ranking in rankings)) <= set(joined)


def test_both_rankings_count() -> None:
    """What is second in both goes before what only one of them knows."""
    index = Index([("d", {})], pieces(["cat cat", "cat dog", "fish", "bird"]).pieces)
    index.read_words()
    rows = [unit([0, 1]), unit([2, 1]), unit([1, 0]), unit([1, 1])]
    index.take_vectors(rows, model="m", asked=None)

    assert [number for number, _ in index.by_words("cat", 3)] == [0, 1]
    assert [number for number, _ in index.by_vector(unit([1, 0]), 3)] == [2, 1, 3]
    assert [number for number, _ in index.by_both("cat", unit([1, 0]), 1)] == [1]


def test_vectors_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another length than the index's, different lengths, and more than may be kept."""
    index = pieces(["a", "b"])
    index.take_vectors([unit([1, 0]), unit([0, 1])], model="m", asked=None)

    with pytest.raises(TerminalError, match="3 numbers, the index's 2"):
        index.by_vector(unit([1, 0, 0]), 1)
    with pytest.raises(RetryableError, match="different lengths"):
        index.take_vectors([unit([1, 0]), unit([1])], model="m", asked=None)
    monkeypatch.setattr(rag_index, "MAX_BYTES", 15)
    with pytest.raises(TerminalError, match="fewer dimensions") as caught:
        index.take_vectors(iter([unit([1, 0])]), model="m", asked=None)
    assert caught.value.code == "output_too_large"


# -- documents -------------------------------------------------------------------------------------


@given(st.lists(st.text(alphabet="ab. 你。\n", max_size=300), min_size=1, max_size=4))
def test_pieces_say_where_they_are_from(texts: list[str]) -> None:
    """Each is exactly that part of its document, none is blank, and no word is lost."""
    index = pieces(texts)

    for piece in index.pieces:
        text = texts[piece.document]
        assert piece.text == text[piece.start : piece.start + len(piece.text)]
        assert piece.text.strip()
    for number, text in enumerate(texts):
        mine = {
            token for it in index.pieces if it.document == number for token in tokenise(it.text)
        }
        assert {word for word in tokenise(text) if len(word) == 1} <= mine


def test_documents_have_names() -> None:
    """Their own, their file's, or their place."""
    files = MemoryFiles()
    letter = files.add("letter.txt", "\ufeffDear cat".encode())
    ctx = Outcome(files=files).context("test")
    spec = registry()["rag.answer"]
    given = ["one", {"text": "two", "id": "b", "metadata": {"page": 2}}, {"file": letter}]
    inputs = spec.validate({"question": "?", "model": "m", "documents": given})
    ctx.files.load([inputs["documents"][2].file])

    index = cut(ctx, inputs["documents"], size=50, overlap=0, most=100)
    assert index.documents == [("1", {}), ("b", {"page": 2}), ("letter.txt", {})]
    assert [piece.text for piece in index.pieces] == ["one", "two", "Dear cat"]
    assert cut(ctx, letter, size=50, overlap=0, most=100).documents == [("letter.txt", {})]


@pytest.mark.parametrize(
    ("documents", "given", "words"),
    [
        (["a", Document(text="b", id="1")], {}, "two documents have the id '1'"),
        (["a" * 60, "b" * 41], {"most": 100}, "more than 100 characters together"),
        ("a " * 500, {"pieces": 10}, "more than 10 pieces"),
        (["a"], {"overlap": 26}, "at most half of size"),
        ([Document()], {}, "document 1 must have a text or a file"),
    ],
)
def test_documents_that_cannot_be_used_are_named(
    monkeypatch: pytest.MonkeyPatch, documents: Any, given: dict[str, Any], words: str
) -> None:
    """Bounds hold before the work is done, and say what they are."""
    monkeypatch.setattr(rag_documents, "MAX_PIECES", given.pop("pieces", 10_000))

    with pytest.raises(TerminalError, match=words) as caught:
        pieces(documents, **given)
    assert caught.value.code == "invalid_inputs"


@pytest.mark.parametrize(
    "documents", [[], [{"text": "a", "title": "x"}], [{"file": "nope"}], [3], {"text": "a"}]
)
def test_documents_of_another_form_are_refused_at_once(documents: Any) -> None:
    """The request is refused; no task is made."""
    with pytest.raises(AsyncNodesError) as caught:
        registry()["rag.index"].validate({"name": "x", "documents": documents})
    assert caught.value.code == "invalid_inputs"


# -- what is kept ----------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=60), min_size=1, max_size=5), st.integers(0, 3))
def test_a_kept_index_is_the_same(texts: list[str], width: int) -> None:
    """Bytes and back: the same pieces, words and vectors."""
    index = pieces(texts)
    index.read_words()
    if width:
        rows = [unit([number, 1.0, -1.0][:width]) for number, _ in enumerate(index.pieces)]
        index.take_vectors(rows, model="m", asked=width)

    again = Index.of_bytes(index.to_bytes())
    assert (again.documents, again.pieces, again.model) == (
        index.documents,
        index.pieces,
        index.model,
    )
    assert (again.vectors, again.width, again.asked) == (index.vectors, index.width, index.asked)
    assert again.words.scores(texts[0]) == index.words.scores(texts[0])


def test_an_index_is_read_once_and_again_when_it_was_replaced() -> None:
    """A process remembers it, tenants do not share it, and a change is seen at once."""
    ctx, other = context(), context(tenant="other")
    keep_index(ctx, "x", pieces(["cat"]), seconds=9)
    first = kept_index(ctx, "x")

    assert kept_index(ctx, "x") is first
    keep_index(ctx, "x", pieces(["dog"]), seconds=9)
    assert kept_index(ctx, "x").pieces[0].text == "dog"
    with pytest.raises(TerminalError, match="no index 'x'") as caught:
        kept_index(other, "x")
    assert caught.value.code == "index_not_found"


@pytest.mark.parametrize("data", [b"x" * 40, b"x" * 16, b"y" * 16 + b"\x91\x01"])
def test_bytes_of_another_version_are_no_index(data: bytes) -> None:
    """They say what to do."""
    ctx = context()
    ctx.blobs.put("rag.odd", data, seconds=9)

    with pytest.raises(TerminalError, match="build it again") as caught:
        kept_index(ctx, "odd")
    assert caught.value.code == "index_not_found"


def test_an_index_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is told, and what was there before stays."""
    ctx = context()
    keep_index(ctx, "x", pieces(["cat"]), seconds=9)
    monkeypatch.setattr(rag_index, "MAX_BYTES", 10)

    with pytest.raises(TerminalError, match="10 are allowed"):
        keep_index(ctx, "x", pieces(["dog " * 9]), seconds=9)
    assert kept_index(ctx, "x").pieces[0].text == "cat"


# -- what the model is asked -----------------------------------------------------------------------


@given(st.lists(ANY, max_size=6), st.integers(1, 200))
def test_sources_keep_within_the_budget(texts: list[str], budget: int) -> None:
    """The best first, all of it that fits, and nothing behind what was cut."""
    kept = within(texts, budget)

    assert "".join(kept) == "".join(texts)[:budget]
    assert all(text.startswith(part) for text, part in zip(texts, kept, strict=False))


@given(st.lists(st.text(alphabet="a\n\r\u2028\x85\x0b[1]>Question: ", max_size=60), max_size=4))
def test_no_source_passes_for_anything_else(texts: list[str]) -> None:
    """Every line is a quotation but for the numbers in front and the question, which comes last."""
    content = messages("who?", texts)[1]["content"]
    lines = content.splitlines()

    assert lines[0] == "Sources:"
    assert lines[-1] == "Question: who?"
    own = [line for line in lines[1:-1] if line and not line.startswith(">")]
    assert own == ([f"[{number}]" for number in range(1, len(texts) + 1)] or [NO_SOURCES])


def test_own_instructions_take_the_place_of_the_built_in_ones() -> None:
    """And only of those."""
    ours, own = messages("?", ["a"]), messages("?", ["a"], instructions="Rhyme.")

    assert own[0] == {"role": "system", "content": "Rhyme."}
    assert own[1] == ours[1]


# -- while neighbours wait -------------------------------------------------------------------------


def test_long_work_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause comes after every few milliseconds of work, however many items that are."""
    slept: list[float] = []
    monkeypatch.setattr("async_nodes.nodes.breathing.time.sleep", slept.append)

    for _ in breathing(range(20)):
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
    assert 5 <= len(slept) <= 11
    assert min(slept) > 0  # gevent looks at no socket while greenlets sleep for no time at all
    assert list(breathing(range(1000))) == list(range(1000))


def test_no_texts_are_no_request() -> None:
    """An index of nothing asks nobody."""
    registry()
    embedder = Embedder(ctx=context(), server=None, model="m")  # type: ignore[arg-type]
    assert list(embedder.vectors([])) == []
