"""The error catalogue: complete, in two languages, and one exception class for all of it."""

from __future__ import annotations

import contextlib
import re
from http import HTTPStatus
from pathlib import Path

import pytest

import async_nodes
from async_nodes.core.errors import (
    CATALOGUE,
    AsyncNodesError,
    AttemptTimeout,
    RetryableError,
    TaskCancelled,
    TerminalError,
)

CODES = sorted(CATALOGUE)
PACKAGE = Path(async_nodes.__file__).parent


@pytest.mark.parametrize("code", CODES)
def test_every_entry_is_complete(code: str) -> None:
    """Code, an HTTP status of an error, a title and a hint in both languages."""
    kind = CATALOGUE[code]

    assert re.fullmatch(r"[a-z][a-z_]*", code)
    assert kind.code == code
    assert HTTPStatus(kind.status).value >= 400
    assert all((kind.title, kind.hint, kind.title_zh, kind.hint_zh))
    assert re.search(r"[\u4e00-\u9fff]", kind.title_zh)
    assert re.search(r"[\u4e00-\u9fff]", kind.hint_zh)
    assert not kind.title.endswith(".")
    assert kind.hint.endswith(".")


def test_every_code_that_is_raised_is_in_the_catalogue() -> None:
    """No module raises a code of its own making."""
    pattern = re.compile(r"""AsyncNodesError\(\s*\n?\s*["'](\w+)["']""")
    raised = {
        (path.name, code)
        for path in PACKAGE.rglob("*.py")
        for code in pattern.findall(path.read_text(encoding="utf-8"))
    }

    assert raised
    assert {(name, code) for name, code in raised if code not in CATALOGUE} == set()


def test_an_error_carries_its_entry_and_what_was_added() -> None:
    """Without a detail the title stands in; extra members are kept for the problem document."""
    error = AsyncNodesError("task_gone", pointer="/x", retry_after=2.0, task_id="t")

    assert (error.status, error.detail, str(error)) == (410, error.kind.title, error.kind.title)
    assert (error.pointer, error.retry_after, error.extra) == ("/x", 2.0, {"task_id": "t"})
    assert AsyncNodesError("task_gone", "why").detail == "why"


def test_a_code_that_does_not_exist_is_a_mistake_of_ours() -> None:
    """It fails at once, where it is written."""
    with pytest.raises(KeyError):
        AsyncNodesError("no_such_code")


def test_a_node_decides_whether_its_error_is_tried_again() -> None:
    """TerminalError never, RetryableError always, whatever the catalogue says of the code."""
    assert TerminalError("no", code="node_failed").retryable is False
    assert RetryableError("yes", code="poison", retry_after=3).retryable is True
    assert RetryableError("yes", retry_after=3).retry_after == 3
    assert AsyncNodesError("node_failed").retryable is CATALOGUE["node_failed"].retryable


@pytest.mark.parametrize("kind", [TaskCancelled, AttemptTimeout])
def test_what_is_thrown_into_a_body_passes_its_own_handlers(kind: type[BaseException]) -> None:
    """A body that catches Exception does not swallow its cancel."""

    def careless() -> None:
        with contextlib.suppress(Exception):
            raise kind

    with pytest.raises(kind):
        careless()


@pytest.mark.parametrize("kind", [TerminalError, RetryableError])
def test_a_node_may_bring_a_code_of_its_own(kind: type[AsyncNodesError]) -> None:
    """An unknown code stays as it is and is otherwise an ordinary failure of a node."""
    error = kind("the card was declined", code="card_declined")
    assert (error.code, error.status) == ("card_declined", CATALOGUE["node_failed"].status)
    assert error.retryable is (kind is RetryableError)
