"""``async-nodes breakers``: a line for each breaker."""

from __future__ import annotations

import io
from typing import Any

import pytest

from async_nodes.cli.main import main
from async_nodes.cli.terminal import Terminal
from async_nodes.cli.verbs import breakers

OPEN: dict[str, Any] = {
    "name": "endpoint:api.example:443",
    "state": "open",
    "mode": "auto",
    "until": "2026-12-01T12:00:30.000Z",
    "degraded": "small-model",
    "measured": {
        "calls": 80, "failures": 60, "failure_rate": 0.75, "rate": 8.0, "p95_seconds": 1.5,
    },
}  # fmt: skip
CLOSED = {
    **OPEN, "name": "node:ask", "state": "closed", "mode": "closed", "until": None,
    "degraded": None, "measured": {**OPEN["measured"], "failures": 0, "failure_rate": 0.0},
}  # fmt: skip


def test_each_has_a_line_with_what_decided() -> None:
    """State, rate, P95, failures, mode, and until when."""
    _, first, second = breakers.lines([OPEN, CLOSED], Terminal.of(io.StringIO()))

    assert first.split() == [
        "endpoint:api.example:443", "open", "auto", "8.0", "1.5", "s", "75%", "small-model",
        "2026-12-01T12:00:30.000Z",
    ]  # fmt: skip
    assert second.split()[1:3] == ["closed", "closed"]


def test_none_is_said() -> None:
    """An empty table would look like a fault."""
    assert "No node declares a breaker" in breakers.lines([], Terminal.of(io.StringIO()))[0]


def test_force_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody forces them all by mistake."""
    assert main(["breakers", "--force", "open"]) == 2
    assert "--force" in capsys.readouterr().err
