"""The environment that plugins run in: Dify's own SDK, apart from ours."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.environments import ROOT, Environment

PLUGIN = ROOT / "dify" / "async_nodes"
DIFY = Environment("dify", ("3.12", "3.13"))


def suitable_python() -> str | None:
    """Return a Python of the version that Dify's SDK wants, 3.12 or later."""
    return DIFY.suitable_python()


def dify_python() -> Path:
    """Return the environment's Python; raises `LookupError` without one that is suitable."""
    return DIFY.python()
