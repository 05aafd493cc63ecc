"""Step 5, expose: the OpenAPI document of the totals of usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from async_nodes.access.openapi.pieces import STORED, answer, given, operation, problems
from async_nodes.access.openapi.shapes import COUNT, NODE_NAME, Schema, array, members, ref

_DAY: Final[Schema] = {"type": "string", "format": "date"}
_COUNTS: Final[Schema] = {"type": "object", "additionalProperties": COUNT}
_BY_NODE: Final[Schema] = {"type": "object", "additionalProperties": ref("UsageCounts")}


def paths(nodes: Sequence[str]) -> Schema:
    """Return the paths.

    Args:
        nodes: of no use here.

    """
    several = {**given("query", "node", "A node's name; repeated: any of them."), "explode": True}
    read = operation(
        "readUsage",
        "Read what nodes have used, by day",
        {"200": answer("The totals", ref("Usage")), **problems(*STORED)},
        parameters=[
            given(
                "query", "from", "First day (UTC); 29 before the last when absent.", format="date"
            ),
            given("query", "to", "Last day (UTC); today when absent.", format="date"),
            {**several, "schema": array(NODE_NAME, maxItems=50)},
        ],
    )
    return {"/v1/usage": {"get": read}}


SCHEMAS: Final[Mapping[str, Schema]] = {
    "UsageCounts": {**_COUNTS, "description": "By name, such as total_tokens."},
    "UsageDay": members({"day": _DAY, "nodes": _BY_NODE, "totals": ref("UsageCounts")}),
    "Usage": members(
        {
            "from": _DAY,
            "to": _DAY,
            "time_zone": {"type": "string", "const": "UTC"},
            "days": array(ref("UsageDay"), description="Those on which something was counted."),
            "nodes": _BY_NODE,
            "totals": ref("UsageCounts"),
        }
    ),
}
