"""The pages of the documentation: each operation in both languages, safe, and without dead ends."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from async_nodes.access.api.docs_pages import POLICY, Pages
from async_nodes.access.app import build_app
from async_nodes.access.openapi.document import document
from async_nodes.access.openapi.pieces import METHODS
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from tests.unit.test_openapi import nowhere

HOSTILE = '<script>alert("x")</script>'
DOCUMENT = document(registry(()))
NAMES = [
    item[method]["operationId"]
    for item in DOCUMENT["paths"].values()
    for method in sorted(METHODS & item.keys())
]


class Page(HTMLParser):
    """Collect what a page links to, its anchors, and what would run in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: list[str] = []
        self.running: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take down what an element has."""
        found = {name: value or "" for name, value in attrs}
        self.links += [found["href"]] if "href" in found else []
        self.anchors += [found["id"]] if "id" in found else []
        if tag == "script" or any(name.startswith("on") for name in found):
            self.running.append(tag)


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return build_app(Settings(), nowhere, nodes=registry(())).test_client()


def get(client: FlaskClient, address: str) -> str:
    answer = client.get(
        address, base_url="http://localhost", headers={"Accept": "text/html,*/*;q=0.1"}
    )
    assert answer.status_code == 200, address
    return answer.get_data(as_text=True)


@pytest.mark.parametrize("tongue", ["en", "zh"])
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_has_a_page(client: FlaskClient, name: str, tongue: str) -> None:
    """In its language, under a policy that allows no script, and nothing on it would run."""
    answer = client.get(f"/docs/{name}?lang={tongue}", base_url="http://localhost")
    page = Page(answer.get_data(as_text=True))
    assert answer.status_code == 200
    assert answer.headers["Content-Language"] == tongue
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert "script-src" not in POLICY
    assert page.running == []
    assert len(page.anchors) == len(set(page.anchors))
    assert {"main", "call", "answers", "errors"} <= set(page.anchors)


@pytest.mark.parametrize("tongue", ["en", "zh"])
def test_no_link_of_the_pages_leads_nowhere(client: FlaskClient, tongue: str) -> None:
    """Every address is there, with the anchor that a link names; the language goes along."""
    addresses = [f"/docs/{name}?lang={tongue}" for name in NAMES]
    pages = {one: Page(get(client, one)) for one in (f"/?lang={tongue}", *addresses)}
    for page in list(pages.values()):
        for link in page.links:
            address, _, anchor = link.partition("#")
            if address.startswith("/docs") and address not in pages:
                pages[address] = Page(get(client, address))
            assert not anchor or anchor in (pages[address] if address else page).anchors, link
    listed = {link.partition("?")[0] for link in pages[f"/docs?lang={tongue}"].links}
    assert {f"/docs/{name}" for name in NAMES} <= listed


def test_hostile_names_and_texts_are_shown_and_not_run() -> None:
    """Whoever names a node or writes a text of the document puts nothing into the page."""
    hostile = document(registry(()))
    for item in hostile["paths"].values():
        for method in METHODS & item.keys():
            item[method]["summary"] = item[method]["description"] = HOSTILE
            for sample in item[method]["x-codeSamples"]:
                sample["source"] = sample["label"] = HOSTILE
    submit = hostile["paths"]["/v1/tasks"]["post"]["requestBody"]["content"]["application/json"]
    submit["examples"] = {HOSTILE: {"value": {"node": HOSTILE}}}
    made = Pages(hostile)
    for tongue in ("en", "zh"):
        text = made.operation("submitTask", tongue, chosen=True, path=HOSTILE, base="")
        assert Page(text).running == []
        assert "<script" not in text
        assert len(re.findall("&lt;script&gt;", text)) > len(NAMES)
