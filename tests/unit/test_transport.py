from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from async_nodes.execution.transport import KNOWN, transport


@pytest.mark.parametrize("kombu", ["5.7.0", "5.7.12", "5.7.0rc1"])
def test_the_fast_way_beside_a_known_kombu(kombu: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is said where all is as tested."""
    assert transport("fast", kombu) == "fast"
    assert not caplog.records


@pytest.mark.parametrize("kombu", ["5.6.2", "5.8.0", "5.8.0b1", "6.0", "4.6.11", "nightly"])
def test_the_stock_way_beside_any_other(kombu: str, caplog: pytest.LogCaptureFixture) -> None:
    """The worker works on, and says why it is slower."""
    with caplog.at_level(logging.WARNING):
        assert transport("fast", kombu) == "stock"
    (line,) = caplog.records
    assert kombu in line.getMessage()
    assert line.__dict__["action"] == "transport_fallback"


def test_who_wants_the_stock_way_gets_it(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever kombu there is."""
    assert transport("stock", "5.7.0") == transport("stock", "9.9") == "stock"
    assert not caplog.records


def test_what_is_known_is_what_is_required() -> None:
    """The package asks for the very kombu that the fast transport knows."""
    text = (Path(__file__).parents[2] / "setup.cfg").read_text("utf-8")
    found = re.search(r"^\s+kombu>=(\d+)\.(\d+),<(\d+)\.(\d+)$", text, re.MULTILINE)
    assert found is not None
    first, second, third, fourth = map(int, found.groups())
    assert ((first, second), (third, fourth)) == KNOWN
