"""What is no JSON, too deep, too wide or too large, at both ends; afterwards everything lives."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.stack import Stack
from tests.acceptance.value_nodes import CONVERTED, VALUES
from tests.acceptance.web_client import Reply

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(180)]

MIB = 1 << 20
KINDS = ("io", "cpu", "async")
REFUSED = sorted(set(VALUES) - set(CONVERTED) - {"too-large"})
HEADERS = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack whose nodes give anything."""
    stack = Stack(
        tmp_path_factory.mktemp("values"),
        environ={"ASYNC_NODES_IMPORTS": "tests.acceptance.value_nodes"},
    )
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def strictly(raw: bytes) -> Any:
    """Return what a strict parser reads."""

    def refuse(word: str) -> Any:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(raw.decode("utf-8"), parse_constant=refuse)


def record(stack: Stack, node: str, kind: str) -> dict[str, Any]:
    """Return the record of a task that has ended, read strictly."""
    task_id = stack.submit(node, {"kind": kind})
    stack.wait(task_id, 60)
    found: dict[str, Any] = strictly(stack.client.request("GET", f"/v1/tasks/{task_id}").body)
    return found


# -- what comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", KINDS)
@pytest.mark.parametrize("kind", sorted(CONVERTED))
def test_what_has_one_json_form_gets_it(values: Stack, pool: str, kind: str) -> None:
    """The same in every kind of body (unserialisable-result)."""
    found = record(values, f"values.{pool}", kind)

    assert (found["state"], found["output"]) == ("Succeeded", CONVERTED[kind])
    if kind == "mixed":
        assert math.copysign(1, found["output"]["zero"]) == -1


@pytest.mark.parametrize("pool", KINDS)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_none_fails_at_once(values: Stack, pool: str, kind: str) -> None:
    """Failed with the reason, after one attempt; never stuck as Running (unserialisable-result)."""
    found = record(values, f"values.{pool}", kind)

    assert (found["state"], found["error"]["code"]) == ("Failed", "result_not_json")
    assert found["attempt"] == 1
    assert found["error"]["message"]


@pytest.mark.parametrize("pool", KINDS)
def test_a_result_over_the_limit_fails(values: Stack, pool: str) -> None:
    """With the error that says what to do, and the worker goes on."""
    found = record(values, f"values.{pool}", "too-large")

    assert (found["state"], found["error"]["code"]) == ("Failed", "output_too_large")
    assert record(values, f"values.{pool}", "tuple")["state"] == "Succeeded"


@pytest.mark.parametrize("node", ["values.stream", "values.stream_async"])
@pytest.mark.parametrize("kind", [*sorted(CONVERTED), *REFUSED])
def test_chunks_are_json_as_well(values: Stack, node: str, kind: str) -> None:
    """What cannot be one fails the task; what was sent before stays, each event strictly JSON."""
    task_id = values.submit(node, {"kind": kind})
    values.wait(task_id, 60)
    stream = values.client.request("GET", f"/v1/tasks/{task_id}/events").body.decode()

    data = [strictly(line[6:].encode()) for line in stream.split("\n") if line.startswith("data:")]
    chunks = [one for one in data if "n" in one]
    assert chunks[0]["text"] == "before"
    if kind in CONVERTED:
        assert data[-1]["state"] == "Succeeded"
        assert chunks[1]["data"] == {"value": CONVERTED[kind]}
    else:
        assert (data[-1]["state"], data[-1]["error"]["code"]) == ("Failed", "result_not_json")
        assert len(chunks) == 1


@pytest.mark.parametrize("kind", ["set", "bytes", "object", "nan", "surrogate", "datetime"])
def test_what_is_told_on_the_way_never_breaks_the_record(values: Stack, kind: str) -> None:
    """Log, progress and error hold what they can, strictly as JSON; the node's error is kept."""
    found = record(values, "values.told", kind)
    log = values.client.request("GET", f"/v1/tasks/{found['task_id']}/logs").body

    assert (found["state"], found["error"]["code"]) == ("Failed", "node_failed")
    assert found["error"]["message"].startswith("it was ")
    assert "a value" in json.dumps(strictly(log))


# -- what comes in ---------------------------------------------------------------------------------


def post(stack: Stack, body: bytes) -> Reply:
    return stack.client.request("POST", "/v1/tasks", body, HEADERS)


def inputs(text: bytes) -> bytes:
    return b'{"node":"values.io","inputs":{"x":' + text + b"}}"


DEEP_AND_WIDE = {
    "20,000 levels": (b"[" * 20_000, 400),
    "65 levels, closed": (inputs(b"[" * 63 + b"]" * 63), 400),
    "100,000 keys": (inputs(b"{" + b",".join(b'"%d":0' % n for n in range(100_000)) + b"}"), 400),
    "10,001 members": (inputs(b"[" + b"0," * 10_000 + b"0]"), 400),
    "a key twice": (inputs(b'{"a":1,"a":2}'), 400),
    "10^5000": (inputs(b"1" + b"0" * 5000), 400),
    "401 digits": (inputs(b"1" * 401), 400),
    "1e999": (inputs(b"1e999"), 400),
    "half a pair": (inputs(b'"\\ud800"'), 400),
    "not UTF-8": (inputs(b'"\xff"'), 400),
    "a byte order mark": (b"\xef\xbb\xbf" + inputs(b"1"), 400),
    "1 MiB + 1": (inputs(b'"' + b"x" * MIB + b'"')[: MIB + 1], 413),
    "8 MiB": (inputs(b'"' + b"x" * (8 * MIB) + b'"'), 413),
}


@pytest.mark.parametrize("name", DEEP_AND_WIDE)
def test_what_is_too_much_is_refused(values: Stack, name: str) -> None:
    """As a problem that says what and where, within a moment (deep-and-wide)."""
    body, status = DEEP_AND_WIDE[name]
    began = time.monotonic()

    answer = post(values, body)

    assert (answer.status, answer.is_problem) == (status, True), answer
    assert answer.json["detail"]
    assert time.monotonic() - began < 5


def test_what_is_just_within_is_taken(values: Stack) -> None:
    """The limits themselves are allowed: depth, members, digits, bytes."""
    for text in (
        b"[" * 62 + b"]" * 62,
        b"[" + b"0," * 9_990 + b"0]",
        b"1" * 300 + b"." + b"1" * 100,
    ):
        answer = post(values, inputs(text))
        assert answer.status == 422, answer  # well-formed: the node has no such input
    whole = inputs(b'""')
    padded = whole[:-3] + b"x" * (MIB - len(whole)) + whole[-3:]
    assert len(padded) == MIB
    assert post(values, padded).status == 422


def memory(pid: int) -> int:
    """Return the bytes that a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_everything_lives_on_and_memory_is_flat(values: Stack) -> None:
    """After two hundred hostile bodies the same processes serve, as large as before."""
    hostile = [body for body, _ in DEEP_AND_WIDE.values()]
    for body in hostile * 4:
        post(values, body)
    pids = {name: values[name].pid for name in ("web", "io0")}
    before = {name: memory(pid) for name, pid in pids.items()}

    for body in hostile * 15:
        post(values, body)

    assert {name: values[name].pid for name in pids} == pids
    grown = {name: memory(pid) - before[name] for name, pid in pids.items()}
    assert all(size < 16 * MIB for size in grown.values()), grown
    assert record(values, "values.io", "tuple")["state"] == "Succeeded"
