"""Problems: every error as a document that people and programs can use."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from werkzeug.exceptions import BadRequest, ImATeapot, NotFound, RequestEntityTooLarge

from async_nodes.access import problems
from async_nodes.core.errors import CATALOGUE, AsyncNodesError


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_code_becomes_a_whole_document(code: str) -> None:
    """Type, status, both languages and what to do come from the catalogue."""
    kind = CATALOGUE[code]
    english = problems.document(AsyncNodesError(code, "why"), path="/v1/x", trace_id="t")
    chinese = problems.document(AsyncNodesError(code), language="zh")
    assert english["type"] == f"/problems/{code}"
    assert (english["status"], english["code"]) == (kind.status, code)
    assert (english["title"], english["detail"], english["hint"]) == (kind.title, "why", kind.hint)
    assert english["retryable"] is kind.retryable
    assert (english["instance"], english["trace_id"]) == ("/v1/x", "t")
    assert (chinese["title"], chinese["hint"]) == (kind.title_zh, kind.hint_zh)
    assert json.loads(problems.encode(english)) == english


def test_more_members_are_added_and_none_is_overwritten() -> None:
    """A task's id is shown; an extra that bears a standard name is not."""
    error = AsyncNodesError("outcome_unknown", task_id="t_1", status=200, title="x")
    members = problems.document(error)
    assert members["task_id"] == "t_1"
    assert (members["status"], members["title"]) == (503, CATALOGUE["outcome_unknown"].title)


def test_a_pointer_is_a_list_of_faults_too() -> None:
    """A client that reads ``errors`` finds the one fault there."""
    members = problems.document(AsyncNodesError("not_json", "no", pointer="/inputs/x"))
    assert members["pointer"] == "/inputs/x"
    assert members["errors"] == [{"pointer": "/inputs/x", "detail": "no"}]
    several = AsyncNodesError("invalid_request", "no", pointer="/a", errors=[{"pointer": "/a"}])
    assert problems.document(several)["errors"] == [{"pointer": "/a"}]


def test_headers_tell_when_to_come_back_and_how_to_sign_in() -> None:
    """Retry-After is whole seconds, rounded up; a 401 names the scheme."""
    assert problems.headers(AsyncNodesError("queue_full", retry_after=1.2))["Retry-After"] == "2"
    assert problems.headers(AsyncNodesError("queue_full", retry_after=0.0))["Retry-After"] == "1"
    assert "Retry-After" not in problems.headers(AsyncNodesError("internal"))
    assert "Bearer" in problems.headers(AsyncNodesError("unauthorized"))["WWW-Authenticate"]
    assert problems.headers(AsyncNodesError("not_found"))["Cache-Control"] == "no-store"


@given(st.text(), st.text())
def test_nothing_sent_is_reflected_raw(detail: str, path: str) -> None:
    """Control characters and lone surrogates leave in no problem, whatever came in."""
    path = "/" + path.encode("utf-8", "replace").decode()
    error = AsyncNodesError("bad_request", detail, note="\ud800")
    raw = problems.encode(problems.document(error, path=path))
    text = json.dumps(json.loads(raw), ensure_ascii=False)
    assert text.isprintable()
    assert json.loads(raw)["instance"].isascii()


@given(st.integers(0, 9), st.integers(80, 120))
def test_a_long_address_is_cut_between_characters(start: int, length: int) -> None:
    """What is left of it is an address still: no escape is cut in two."""
    error = AsyncNodesError("not_found")

    instance = problems.document(error, path="/" + "x" * start + "𝑻" * length)["instance"]

    assert re.fullmatch(r"/x*(%[0-9A-F]{2})+", instance)
    assert len(instance) <= problems.MAX_INSTANCE


def test_a_long_text_is_cut() -> None:
    """A problem stays short, whatever was sent."""
    error = AsyncNodesError("bad_request", "x" * 100_000)
    assert len(problems.encode(problems.document(error, path="/" + "y" * 100_000))) < 3_000


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (NotFound(), "not_found", 404),
        (RequestEntityTooLarge(), "body_too_large", 413),
        (BadRequest("odd"), "bad_request", 400),
        (ImATeapot(), "bad_request", 418),
    ],
)
def test_errors_of_the_framework_are_problems_too(error: Exception, code: str, status: int) -> None:
    """Each keeps its own status."""
    found = problems.from_http(error)  # type: ignore[arg-type]
    members = problems.document(found)
    assert (members["code"], members["status"]) == (code, status)


def test_a_description_has_both_languages() -> None:
    """What /problems shows of a code."""
    shown = problems.description(CATALOGUE["poison"])
    assert shown["title"] == {"en": CATALOGUE["poison"].title, "zh": CATALOGUE["poison"].title_zh}
    assert shown["code"] == "poison"
    assert problems.known("nonsense") is None
