"""docs/limits.md against the code: each figure is its constant's, each code in the catalogue."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from async_nodes.core.errors import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", re.MULTILINE)
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def test_the_page_has_its_rows() -> None:
    """None is lost to a slip in a table."""
    text = PAGE.read_text(encoding="utf-8")

    assert len(ROWS) == len(re.findall(r"^\| ", text, re.MULTILINE)) - 2 * text.count("| --- |\n")
    assert len({where for *_, where in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("limit", "where"), [(row[2], row[4]) for row in ROWS])
def test_a_figure_is_that_of_the_code(limit: str, where: str) -> None:
    """In the unit that the page gives it in."""
    module, _, name = where.rpartition(".")
    number, _, unit = limit.partition(" ")

    constant = getattr(importlib.import_module(f"async_nodes.{module}"), name)

    assert int(number.replace(",", "")) * UNITS.get(unit, 1) == constant


def test_a_code_is_in_the_catalogue() -> None:
    """With the status that the page gives it."""
    for _, _, _, beyond, where in ROWS:
        for status, code in re.findall(r"(?:(\d{3}) )?`([a-z]+_[a-z_]+)`", beyond):
            assert code in CATALOGUE, (code, where)
            assert not status or CATALOGUE[code].status == int(status), (code, where)


def test_both_languages_name_each() -> None:
    """The second column is Chinese."""
    assert all(re.search("[\u4e00-\u9fff]", row[1]) for row in ROWS)
