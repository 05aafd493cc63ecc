"""The interface under schemathesis: its command line, over /openapi.json, with all its checks.

It is not among what the tests install, for it needs another jsonschema-rs than ours: it has an
environment of its own. Both ways into a web process are asked, with and without the fast lane.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.environments import Environment
from tests.acceptance.stack import Stack, free_port
from tests.acceptance.web_client import WebClient

SCHEMATHESIS = Environment("schemathesis", ("3.12", "3.13", "3.11"))
SEED = 20
EXAMPLES = 3
"""Requests made up for each operation, beside those at the bounds of every parameter."""

KEY = "k3y-of-the-test"
ENDLESS = ("followTask", "followTasks")
"""Streams end with their task, or never: left out, and tested where they are."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "positive_data_acceptance",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "use_after_free",
    "ensure_resource_availability",
    "ignored_auth",
)
"""All that apply: there are no accounts here whose tasks another one may not see."""

ANSWERED = "a cursor is one that was answered"
BY_ITSELF = "each item is refused by itself, within an answer that says 200"
DEADLINE = "a deadline lies in the future, and a wait for it to come is no part of it"
FORM = "a form has only texts, so that 60 and '60' are the same, and a file has a name beside it"
PART = "a part of a JSON text has its media type and is no JSON text"
PLAN = "it has cron or every, a time zone that exists, and its times in their order"
NOT_CHECKED = {
    "positive_data_acceptance": {
        "listDeadLetters": ANSWERED,
        "listFiles": ANSWERED,
        "listSchedules": ANSWERED,
        "listTasks": f"{ANSWERED}; ids and filters exclude each other",
        "readUsage": "from is not after to, and not far before it",
        "openapiOfDify": "server is the address of one",
        "submitTask": DEADLINE,
        "retryTask": DEADLINE,
        "createSchedule": PLAN,
        "replaceSchedule": PLAN,
        "uploadFile": FORM,
    },
    "response_schema_conformance": {"downloadFile": PART, "readResult": PART},
    "negative_data_rejection": {"submitTasks": BY_ITSELF, "uploadFile": FORM},
}
"""By check, the operations that are not held to it: rules that no JSON Schema can say."""

MAY_HAVE_CHANGED = ["2xx", "3xx", "401", "403", "404", "409", "410", "412", "416", "429", "503"]
"""Statuses for valid data: 410, 412 and 416 say that what it is about is gone, is another one now,
or is shorter than the part that is asked for."""

NO_FAULT = ["2xx", "3xx", "4xx", "503"]
"""503 too: these requests drain queues and nodes, and a submit to one of them is told so."""


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[dict[str, WebClient]]:
    """Return two web processes over a server of their own: with the fast lane, and a plain one."""
    environ = {"ASYNC_NODES_API_KEY": KEY}
    stack = Stack(tmp_path, environ=environ)
    stack.client.key = KEY
    plain = WebClient(free_port())
    plain.key = KEY
    words = ("serve", "--no-fast-lane", "--port", str(plain.port))
    stack.add_program("plain", [sys.executable, "-P", "-m", "async_nodes.cli", *words])
    try:
        stack.start()
        yield {"fast": stack.client, "plain": plain}
    finally:
        stack.stop()


def configuration() -> str:
    """Return the table of what is not checked as schemathesis reads it."""
    told = [f"checks.{check}.enabled = true" for check in CHECKS]
    told += [f"checks.positive_data_acceptance.expected-statuses = {MAY_HAVE_CHANGED}"]
    told += [f"checks.not_a_server_error.expected-statuses = {NO_FAULT}"]
    for check, operations in NOT_CHECKED.items():
        told += ["[[operations]]", f"include-operation-id = {json.dumps(list(operations))}"]
        told += [f"checks.{check}.enabled = false"]
    return "\n".join(told)


def run(client: WebClient, folder: Path, *, seed: int = SEED, examples: int = EXAMPLES) -> str:
    """Return what schemathesis says against a process, beginning with its exit status."""
    told = folder / "schemathesis.toml"
    told.write_text(configuration())
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent),
        "SCHEMATHESIS_HOOKS": "schemathesis_hooks",
    }
    left_out = [word for name in ENDLESS for word in ("--exclude-operation-id", name)]
    command = [
        *(SCHEMATHESIS.python().with_name("st"), "--config-file", told, "--no-color", "run"),
        *(f"http://127.0.0.1:{client.port}/openapi.json", *left_out),
        *("--header", f"Authorization: Bearer {KEY}"),
        *("--seed", str(seed), "--max-examples", str(examples), "--generation-database", "none"),
        *("--continue-on-failure", "--no-shrink", "--request-timeout", "10", "--warnings", "off"),
    ]
    done = subprocess.run(
        command, env=environ, cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    return f"status {done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.timeout(200)
@pytest.mark.parametrize("lane", ["fast", "plain"])
def test_every_check_passes(asked: dict[str, WebClient], lane: str, tmp_path: Path) -> None:
    """What the document admits is taken, the rest refused, and every answer is as it says."""
    said = run(asked[lane], tmp_path)
    assert said.startswith("status 0\n"), said[-20_000:]
    assert "55/57" in said
