"""The page of faults names tests that are there, one or more for each thing that is protected."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from async_nodes.testing.faults.toxics import KINDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faults.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| (P\d+) \| (.+) \|$", PAGE, re.MULTILINE))


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of a module's tests."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_everything_that_is_asked_for_is_there() -> None:
    """P1 to P25, in order."""
    assert list(ROWS) == [f"P{number}" for number in range(1, 26)]


@pytest.mark.parametrize("name", ROWS)
def test_it_has_a_test(name: str) -> None:
    """Each test that the row names exists."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", ROWS[name])
    assert named
    for path, test in named:
        assert test in names_in(path), f"{path} has no {test}"


def test_every_toxic_is_described() -> None:
    """By its own name and by Toxiproxy's."""
    for name, kind in KINDS.items():
        assert f"| `{kind.__name__}` |" in PAGE
        assert f"| `{name}` " in PAGE
