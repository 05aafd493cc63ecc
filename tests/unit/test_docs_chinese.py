"""The documentation in Chinese: each text has its translation, each translation its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from async_nodes.access.api import docs_pages, docs_view
from async_nodes.access.api.docs_view import Content, Row, areas
from async_nodes.access.openapi.chinese import TEXTS
from async_nodes.access.openapi.document import document
from async_nodes.core.errors import CATALOGUE
from async_nodes.nodes.registry import registry
from tests.unit.test_docs import ROOT

NODES = registry(())
DOCUMENT = document(NODES)
TOLD = ("description", "summary")
DATA = ("example", "examples", "enum", "default", "const", "value", "x-codeSamples")
SAID = re.compile(r"""\bsay\((?:'([^']+)'|"([^"]+)")\)""")
SAME = {"OpenAPI"}
"""Names that are the same in both languages."""


def in_document(piece: Any) -> Iterator[str]:
    """Yield every summary and description; a member of a schema may bear these names too."""
    if isinstance(piece, list):
        for item in piece:
            yield from in_document(item)
    elif isinstance(piece, Mapping):
        for name, value in piece.items():
            if name in TOLD and isinstance(value, str):
                yield value
            elif name == "properties":
                yield from in_document(list(value.values()))
            elif name not in DATA:
                yield from in_document(value)


def in_rows(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        yield from (row.text, row.place)


def in_bodies(bodies: list[Content]) -> Iterator[str]:
    for body in bodies:
        yield from in_rows(body.rows)
        yield from (title for title, _ in body.examples if title not in NODES)
        for event in body.events:
            yield from in_rows(event.rows)


def on_pages() -> Iterator[str]:
    """Yield what the pages show: of the document, of their templates, of the index."""
    for area in areas(DOCUMENT):
        yield area.title
        for shown in area.operations:
            yield from in_rows(shown.parameters)
            yield from in_bodies(shown.request)
            for answer in shown.answers:
                yield from in_rows(answer.headers)
                yield from in_bodies(answer.content)
    for path in (ROOT / "async_nodes/access/api/pages").glob("*.html"):
        for single, double in SAID.findall(path.read_text("utf-8")):
            yield single or double
    for title, _, text in docs_pages.CARDS:
        yield from (title, text)
    yield from docs_view.LIMITS.values()


def is_a_list_of_codes(text: str) -> bool:
    """Return whether a text only names error codes, which no language changes."""
    return set(text.split(", ")) <= CATALOGUE.keys()


def texts() -> set[str]:
    found = {*in_document({**DOCUMENT, "components": components()}), *on_pages()}
    return {text for text in found if re.search("[A-Za-z]", text) and not is_a_list_of_codes(text)}


def components() -> dict[str, Any]:
    """Return those components whose texts are not the catalogue's own."""
    return {name: part for name, part in DOCUMENT["components"].items() if name != "examples"}


def test_every_text_is_there_in_chinese() -> None:
    """Summaries, descriptions, parameters, titles and the furniture of the pages."""
    assert sorted(texts() - TEXTS.keys()) == []


def test_no_translation_has_lost_its_text() -> None:
    """A text that was changed takes its translation along."""
    assert sorted(TEXTS.keys() - texts()) == []


@pytest.mark.parametrize("text", sorted(TEXTS))
def test_a_translation_is_in_chinese(text: str) -> None:
    """It has Chinese characters, no English left to translate, and the codes of the original."""
    chinese = TEXTS[text]
    assert chinese == text if text in SAME else re.search("[\u4e00-\u9fff]", chinese)
    assert set(re.findall(r"`[^`]+`", text)) == set(re.findall(r"`[^`]+`", chinese))
