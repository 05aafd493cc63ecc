"""Built-in node ``echo``: the smallest possible task."""

from __future__ import annotations

from typing import Any

from async_nodes.nodes.spec import node


@node("echo")
def echo(**inputs: Any) -> dict[str, Any]:
    """Return the inputs as they are."""
    return inputs
