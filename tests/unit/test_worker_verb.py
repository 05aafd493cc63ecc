"""The worker verb and its exit status."""

from __future__ import annotations

import pytest

from async_nodes.cli.program import run
from async_nodes.execution import worker


@pytest.mark.parametrize("status", [0, 1, 69])
def test_the_verb_ends_with_the_workers_own_status(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gave up did not end well, and whoever started it is told."""
    monkeypatch.setenv("ASYNC_NODES_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setattr(worker, "main", lambda *_, **__: status)

    assert run(["worker", "--pool", "cpu"]) == status
