"""The pages of docs/api: each operation with what the OpenAPI document says of it.

Who may call it, its parameters, answers and errors, and an example. What all operations share is
said once, in the index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from async_nodes.access.app import build_app
from async_nodes.access.openapi.document import document, resolver
from async_nodes.access.openapi.pieces import METHODS
from async_nodes.access.problems import CONTENT_TYPE
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from tests.unit.test_openapi import nowhere

FOLDER = Path(__file__).parents[2] / "docs" / "api"
DOCUMENT = document([])
resolve = resolver(DOCUMENT["components"])
INDEX = (FOLDER / "README.md").read_text("utf-8")
SHARED = INDEX.partition("\n## For every request\n")[2]
SECTIONS = {
    part.splitlines()[0].strip("# `"): part
    for page in FOLDER.glob("[!A-Z]*.md")
    for part in re.split(r"(?m)^(?=## )", page.read_text("utf-8"))[1:]
}
PLAIN = "200"
"""The status that needs no word: where nothing else is said, it is this one."""


@dataclass(frozen=True)
class Operation:
    """What the document says of one operation, and where the pages do."""

    route: str
    told: dict[str, Any]
    parameters: list[dict[str, Any]]

    @property
    def section(self) -> str:
        """Return its section."""
        return SECTIONS[self.route]

    @property
    def errors(self) -> set[str]:
        """Return the codes of its errors."""
        answers = (resolve(piece).get("content", {}) for piece in self.told["responses"].values())
        return {code for one in answers for code in one.get(CONTENT_TYPE, {}).get("examples", {})}

    def __str__(self) -> str:
        return str(self.told["operationId"])


def operations() -> Iterator[Operation]:
    for path, item in DOCUMENT["paths"].items():
        for method in sorted(METHODS & item.keys()):
            route = f"{method.upper()} {path.replace('{', '<').replace('}', '>')}"
            given = [*item.get("parameters", ()), *item[method].get("parameters", ())]
            yield Operation(route, item[method], [resolve(piece) for piece in given])


each = pytest.mark.parametrize("operation", list(operations()), ids=str)


@pytest.fixture(scope="module")
def keyed() -> FlaskClient:
    """Return a client of a service with a key."""
    settings = Settings.load({"ASYNC_NODES_API_KEY": "k" * 32})
    return build_app(settings, nowhere, nodes=registry(())).test_client()


def named(word: str, text: str) -> bool:
    """Tell whether a text has a word by itself."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


@each
def test_it_says_who_may_call(operation: Operation, keyed: FlaskClient) -> None:
    """Those that need no key are listed in the index, and only those; so it is in truth."""
    open_to_all = operation.told.get("security") == [{}]
    method, path = re.sub(r"<\w+>", "x", operation.route).split(" ")

    answer = keyed.open(path, method=method, base_url="http://localhost")

    assert (f"`{operation.route}`" in SHARED) == open_to_all
    assert (answer.status_code != 401) == open_to_all


@each
def test_it_names_its_parameters(operation: Operation) -> None:
    """Of the query and of the head; those of the path stand in its heading."""
    names = [one["name"] for one in operation.parameters]

    text = operation.section + SHARED
    assert [name for name in names if not named(name, text)] == []


@each
def test_it_names_its_answers(operation: Operation) -> None:
    """Each status that is no error."""
    good = [status for status in operation.told["responses"] if status < "4" and status != PLAIN]

    assert [status for status in good if not named(status, operation.section)] == []


@each
def test_it_names_its_errors(operation: Operation) -> None:
    """Each code, but for those that every route may answer."""
    text = operation.section + SHARED

    assert sorted(code for code in operation.errors if not named(code, text)) == []


@each
def test_it_has_an_example(operation: Operation) -> None:
    """A command that asks this very path."""
    path = operation.route.partition(" ")[2]
    pattern = re.sub(r"<\\?\w+>", r"[^\\s/?'\"]+", re.escape(path).replace(r"\<", "<"))
    commands = re.findall(r"(?s)```sh[^\n]*\n(.*?)```", operation.section)

    assert any(re.search(rf"8000{pattern}(?![\w/-])", text) for text in commands), path
