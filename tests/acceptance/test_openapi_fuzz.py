"""The product against its OpenAPI document: requests made from it, answers held to it.

What the document admits is sent, and what it does not; every answer has a status, a media type, a
body, headers and error codes that the document names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from async_nodes.access.openapi.document import document, resolver
from async_nodes.access.openapi.pieces import METHODS, STREAM
from async_nodes.nodes.registry import registry
from tests.acceptance.stack import Stack
from tests.acceptance.web_client import JSON, Reply
from tests.schema_values import CHARACTERS, values
from tests.schema_values import JSON as ANYTHING

PROBLEM = "application/problem+json"
DOCUMENT = document(registry(()))
resolve = resolver(DOCUMENT["components"])
ENDLESS = {"followTask", "followTasks"}
"""Streams that end with their task, or never: what they hold is tested where they are."""

FEW = settings(
    max_examples=8,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
REFUSED = {400, 404, 415, 422}
NOT_IN_A_SCHEMA = {
    "listTasks": "ids and filters exclude each other",
    "readUsage": "from is not after to, and not far before it",
    "openapiOfDify": "an address",
    "listSchedules": "a cursor is one that was answered",
    "listDeadLetters": "a cursor is one that was answered",
    "listFiles": "a cursor is one that was answered",
}
"""Operations whose query has rules between its parameters or values that only the product knows."""


@dataclass(frozen=True)
class Operation:
    """What the document says of one operation."""

    method: str
    path: str
    told: Mapping[str, Any]
    parameters: list[dict[str, Any]]

    @property
    def body(self) -> dict[str, Any] | None:
        """Return the schema of its JSON body, None without one."""
        content = self.told.get("requestBody", {}).get("content", {})
        return content[JSON]["schema"] if JSON in content else None

    def __str__(self) -> str:
        return str(self.told["operationId"])


@dataclass(frozen=True)
class Sent:
    """Hold one request."""

    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    @property
    def address(self) -> str:
        """Return the path with its query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def operations() -> Iterator[Operation]:
    for path, item in DOCUMENT["paths"].items():
        for method in sorted(METHODS & item.keys()):
            told = item[method]
            given_ = [*item.get("parameters", ()), *told.get("parameters", ())]
            yield Operation(method.upper(), path, told, [resolve(piece) for piece in given_])


EACH = [one for one in operations() if str(one) not in ENDLESS]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack of these tests' own: they pause, drain and purge what they meet."""
    stack = Stack(tmp_path_factory.mktemp("fuzzed"))
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def there(fuzzed: Stack) -> dict[str, list[str]]:
    """Return what a path may name, by parameter and by path: things that exist."""
    tasks = [fuzzed.submit("echo", {"number": number}) for number in range(3)]
    fuzzed.wait_all(tasks)
    plan = {"name": "nightly", "cron": "30 2 * * *", "task": {"node": "echo"}}
    headers = {"Content-Type": JSON}
    fuzzed.client.request("POST", "/v1/schedules", json.dumps(plan).encode(), headers)
    kept = fuzzed.client.request("POST", "/v1/files", b"text", {"Content-Type": "text/plain"})
    workers = fuzzed.client.request("GET", "/v1/workers").json["workers"]
    return {
        "task_id": tasks,
        "file_id": [kept.json["file_id"]],
        "/v1/schedules": ["nightly"],
        "/v1/nodes": ["echo"],
        "/v1/workers": [worker["worker_id"] for worker in workers],
    }


# -- requests ------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value as a query or a path shows it."""
    if isinstance(value, float):
        return f"{value:.6f}"
    return value if isinstance(value, str) else json.dumps(value)


def first(found: list[str]) -> str:
    return found[0]


@cache
def of_parameter(number: int, place: int) -> st.SearchStrategy[list[str]]:
    """Return a strategy for the values of a parameter of `EACH`, by their positions."""
    told = EACH[number].parameters[place]
    if told["name"] == "wait":
        return st.just(["0.01"])
    if told["name"] == "Accept":
        return st.just([JSON])
    made = values(told["schema"], resolve)
    if told["in"] == "header":
        made = made.filter(lambda text: re.fullmatch(r"(?! )[ -~]*(?<! )", as_text(text)))
    listed = resolve(told["schema"]).get("type") == "array"
    return made.map(lambda found: [as_text(one) for one in (found if listed else [found])])


@st.composite
def requests(draw: st.DrawFn, number: int, there: dict[str, list[str]]) -> Sent:
    """Draw a request that the document admits."""
    operation = EACH[number]
    sent = Sent(operation.path)
    path = operation.path
    for place, told in enumerate(operation.parameters):
        if told["in"] == "path":
            start = operation.path.partition("/{")[0]
            known = there.get(told["name"], there.get(start, []))
            likely = bool(known) and draw(st.integers(0, 3)) > 0
            name = draw(
                st.sampled_from(known) if likely else of_parameter(number, place).map(first)
            )
            path = path.replace(f"{{{told['name']}}}", quote(name or "-", safe=""))
        elif told.get("required") or draw(st.booleans()):
            for value in draw(of_parameter(number, place)):
                if told["in"] == "query":
                    sent.query.append((told["name"], value))
                else:
                    sent.headers[told["name"]] = value
    body = operation.told.get("requestBody", {})
    if operation.body is not None and (body.get("required") or draw(st.booleans())):
        return with_body(path, sent, draw(values(operation.body, resolve)))
    raw = draw(st.binary(max_size=64)) if operation.body is None and body else None
    if raw is not None:
        sent.headers["Content-Type"] = "application/octet-stream"
    return Sent(path, sent.query, sent.headers, raw)


def with_body(path: str, sent: Sent, value: Any) -> Sent:
    headers = {**sent.headers, "Content-Type": JSON}
    return Sent(path, sent.query, headers, json.dumps(value).encode())


# -- answers -------------------------------------------------------------------------------------


@cache
def validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    """Return what checks a schema of the document, given as JSON."""
    whole = {"components": DOCUMENT["components"], "allOf": [json.loads(schema)]}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True)


def faults(schema: Mapping[str, Any], value: Any) -> list[str]:
    checked = validator(json.dumps(schema))
    return [f"{error.instance_path}: {error.message}" for error in checked.iter_errors(value)]


def check(operation: Operation, reply: Reply) -> None:
    """Hold an answer to what the document says of it."""
    assert reply.status < 500, reply.body
    assert str(reply.status) in operation.told["responses"], (reply.status, reply.body)
    told = resolve(operation.told["responses"][str(reply.status)])
    for name, piece in told.get("headers", {}).items():
        if name.lower() in reply.headers:
            check_header(name, resolve(piece), reply.headers[name.lower()])
    content = told.get("content", {})
    kind = reply.headers.get("content-type", "").partition(";")[0]
    if not content:
        assert reply.body == b""
        return
    assert kind in content or "*/*" in content, kind
    if kind == PROBLEM:
        assert reply.json["code"] in content[PROBLEM]["examples"]
    if kind in {JSON, PROBLEM} and "*/*" not in content and reply.status != 206:
        assert faults(content[kind]["schema"], reply.json) == []


def check_header(name: str, told: Mapping[str, Any], text: str) -> None:
    value: Any = int(text) if told["schema"].get("type") == "integer" else text
    assert faults(told["schema"], value) == [], name


def send(stack: Stack, operation: Operation, sent: Sent) -> Reply:
    return stack.client.request(operation.method, sent.address, sent.body, sent.headers)


# -- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(EACH)), ids=[str(one) for one in EACH])
def test_what_the_document_admits_is_answered_as_it_says(
    fuzzed: Stack, there: dict[str, list[str]], number: int
) -> None:
    """No server error, and nothing that is not described; a query that fits is not refused."""
    operation = EACH[number]

    @FEW
    @given(requests(number, there))
    def run(sent: Sent) -> None:
        reply = send(fuzzed, operation, sent)
        check(operation, reply)
        if "requestBody" not in operation.told and str(operation) not in NOT_IN_A_SCHEMA:
            assert reply.status not in {400, 415, 422}, reply.body

    run()


@pytest.mark.parametrize(
    "number",
    [
        number
        for number, one in enumerate(EACH)
        # Of many tasks, each is refused by itself, within an answer that says 200.
        if one.body is not None and str(one) != "submitTasks"
    ],
    ids=lambda number: str(EACH[number]),
)
def test_a_body_that_the_document_does_not_admit_is_refused(
    fuzzed: Stack, there: dict[str, list[str]], number: int
) -> None:
    """Any other JSON, and any admitted one with a member too many or of another type."""
    operation = EACH[number]
    assert operation.body is not None
    right = values(operation.body, resolve)
    wrong = st.one_of(
        ANYTHING,
        st.tuples(right, st.text(CHARACTERS, min_size=1), ANYTHING).map(
            lambda drawn: {**drawn[0], drawn[1]: drawn[2]}
        ),
    ).filter(lambda value: faults(operation.body or {}, value) != [])

    @FEW
    @given(requests(number, there), wrong)
    def run(sent: Sent, value: Any) -> None:
        reply = send(fuzzed, operation, with_body(sent.path, Sent(sent.path), value))
        check(operation, reply)
        assert reply.status in {*REFUSED, 409, 410}, (value, reply.body)

    run()


@pytest.mark.parametrize("number", range(len(EACH)), ids=[str(one) for one in EACH])
def test_a_query_that_the_document_does_not_admit_is_refused(
    fuzzed: Stack, there: dict[str, list[str]], number: int
) -> None:
    """Each parameter with bounds, a pattern or a list of values, one by one."""
    operation = EACH[number]
    strict = [
        told
        for told in operation.parameters
        if told["in"] == "query"
        and told["schema"].keys() & {"enum", "pattern", "minimum", "format", "minLength"}
    ]
    for told in strict:
        one = told["schema"]
        wrong = "" if one.get("minLength") and "pattern" not in one else "no such value"
        path = re.sub(
            r"\{(\w+)\}",
            lambda found, path=operation.path: there.get(
                found[1], there.get(path.partition("/{")[0], ["echo"])
            )[0],
            operation.path,
        )
        reply = send(fuzzed, operation, Sent(path, [(told["name"], wrong)]))
        check(operation, reply)
        assert reply.status in {*REFUSED, 409, 410}, (told["name"], reply.body)


@pytest.mark.parametrize("path", sorted(DOCUMENT["paths"]))
def test_other_methods_are_refused(fuzzed: Stack, path: str) -> None:
    """With 405 and those that there are; a method that nobody knows is refused too."""
    told = {method.upper() for method in METHODS & DOCUMENT["paths"][path].keys()}
    asked = re.sub(r"\{(\w+)\}", "x", path)
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - told:
        reply = fuzzed.client.request(method, asked)
        assert reply.status == 405, (method, reply.body)
        allowed = set(reply.headers["allow"].replace(" ", "").split(","))
        assert allowed - {"HEAD", "OPTIONS"} == told
        assert reply.is_problem


def test_streams_are_described_as_streams() -> None:
    """What is left out here answers events, and nothing else is left out."""
    assert {str(one) for one in operations()} - {str(one) for one in EACH} == ENDLESS
    for one in operations():
        if str(one) in ENDLESS:
            assert STREAM in one.told["responses"]["200"]["content"]
