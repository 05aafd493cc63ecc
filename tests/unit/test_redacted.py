"""Secrets are found wherever they stand in a text."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.core.redacted import SHORTEST, hider
from async_nodes.nodes.context import MOST_USAGE, NodeContext

SECRETS = st.lists(st.text(min_size=SHORTEST, max_size=12), min_size=1, max_size=4)


@given(SECRETS, st.lists(st.text(alphabet="ab .*\n", max_size=5), min_size=5, max_size=5))
def test_no_secret_is_left_in_a_text(secrets: list[str], between: list[str]) -> None:
    """Whatever stands around it, and where one secret holds another."""
    pairs = zip(between, [*secrets, *secrets], strict=False)
    hidden = hider(secrets, "\0")("".join(a + b for a, b in pairs))

    assert not any(secret in hidden for secret in secrets if "\0" not in secret)


def test_secrets_are_found_inside_of_json() -> None:
    """Such as the values of headers; short ones, numbers and names are no secrets."""
    hide = hider([{"Authorization": "Bearer abc", "deep": ["secret-2", {"x": 3}]}, "4111"], "***")
    said = hide("Authorization Bearer abc, secret-2, 3, 4111")
    assert said == "Authorization ***, ***, 3, 4111"
    assert hider(["short", None, 1], "***") is str


def test_nothing_that_a_node_logs_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """Neither for its task nor for its worker, as an argument, in a traceback, or half of each."""
    lines: list[str] = []
    ctx = NodeContext(
        task_id="t_1",
        node="n",
        on_log=lambda _level, text: lines.append(text),
        hide=hider(["hunter2hunter2"], "***"),
    )
    with caplog.at_level(logging.DEBUG, "async_nodes.node"):
        ctx.log.warning("it is %s%s", "hunter2", "hunter2")
        try:
            int("hunter2hunter2")
        except ValueError:
            ctx.log.exception("it failed with 100 %")

    assert lines[0] == "it is ***"
    assert lines[1].startswith("it failed with 100 %\nTraceback")
    assert lines[1].endswith("with base 10: '***'")
    assert "hunter2hunter2" not in caplog.text
    assert [record.getMessage() for record in caplog.records] == lines


def test_an_attempt_has_a_bounded_number_of_names_of_usage() -> None:
    """Totals are kept for each: a node that makes up names is told."""
    seen: list[dict[str, int]] = []
    ctx = NodeContext(task_id="t_1", node="n", on_usage=seen.append)
    ctx.usage(**{f"n{number}": 1 for number in range(MOST_USAGE)})
    ctx.usage(n0=1)
    with pytest.raises(ValueError, match="100 names"):
        ctx.usage(one_more=1)
    with pytest.raises(ValueError, match="100 characters"):
        NodeContext(task_id="t_1", node="n").usage(**{"x" * 101: 1})
    assert len(seen) == 2
