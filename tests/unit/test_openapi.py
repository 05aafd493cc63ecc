"""The OpenAPI document: complete, consistent, and the same as what the code does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from async_nodes.access.app import build_app
from async_nodes.access.openapi.document import document
from async_nodes.access.services import Services
from async_nodes.core.errors import CATALOGUE
from async_nodes.core.states import NodeState
from async_nodes.dispatch.request import FIELDS
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage.redis_errors import StoreUnavailable

DOCUMENT = document(["echo"])
SCHEMAS = DOCUMENT["components"]["schemas"]
METHODS = {"get", "post", "put", "delete", "patch"}


def nowhere() -> Services:
    raise StoreUnavailable("there is none in this test")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS & item.keys():
            yield path, method, item[method]


def resolved(piece: dict[str, Any]) -> dict[str, Any]:
    """Return what a piece stands for: itself, or the component that it refers to."""
    if "$ref" not in piece:
        return piece
    _, _, kind, name = piece["$ref"].split("/")
    found: dict[str, Any] = DOCUMENT["components"][kind][name]
    return found


def test_every_route_is_described_and_no_other() -> None:
    """The paths are those of the app, method by method."""
    app = build_app(Settings(), nowhere, nodes=registry(()))
    routes = {
        (re.sub(r"<(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    assert {(path, method) for path, method, _ in operations()} == routes


def test_every_reference_leads_somewhere() -> None:
    """No dangling ``$ref``, and no component that nothing refers to."""
    text = json.dumps(DOCUMENT)
    targets = set(re.findall(r'"\$ref": "#/components/(\w+/[\w-]+)"', text))
    there = {
        f"{kind}/{name}"
        for kind, members in DOCUMENT["components"].items()
        if kind != "securitySchemes"
        for name in members
    }
    assert targets == there


def test_every_error_code_is_listed() -> None:
    """A client finds every code with its status, and problems admit no other."""
    assert list(DOCUMENT["x-problem-codes"]) == list(CATALOGUE)
    assert SCHEMAS["Problem"]["properties"]["code"]["enum"] == list(CATALOGUE)


def test_a_submit_is_described_by_what_validates_it() -> None:
    """The schema's members are the table's, and unknown ones are refused in both."""
    schema = SCHEMAS["SubmitRequest"]
    assert list(schema["properties"]) == list(FIELDS)
    assert schema["additionalProperties"] is False


def test_the_states_are_the_machines() -> None:
    """No state is missing or made up."""
    assert SCHEMAS["Task"]["properties"]["state"]["enum"] == [s.value for s in NodeState]


@pytest.mark.parametrize(("path", "method", "operation"), list(operations()))
def test_an_operation_is_described_in_full(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    """Each has a name, a summary, its answers, its errors and its path's parameters."""
    assert operation["operationId"].isidentifier()
    assert operation["summary"]
    assert "500" in operation["responses"]
    assert any(status.startswith("2") for status in operation["responses"])
    named = {resolved(given)["name"] for given in DOCUMENT["paths"][path].get("parameters", ())}
    assert named == set(re.findall(r"\{(\w+)\}", path)), method


def test_names_of_operations_are_unique() -> None:
    """Generators of clients rely on it."""
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))


def test_the_document_is_strict_json() -> None:
    """It is served as bytes that any parser takes."""
    app = build_app(Settings(), nowhere, nodes=registry(()))
    answer = app.test_client().get("/openapi.json", base_url="http://localhost")
    assert answer.status_code == 200
    assert answer.get_json() == json.loads(json.dumps(document(registry(()))))
