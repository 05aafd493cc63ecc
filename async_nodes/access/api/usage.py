"""Step 5, expose: ``GET /v1/usage``, what nodes have used, by day, node and name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, g

from async_nodes.access.api import query
from async_nodes.access.api.answers import in_json
from async_nodes.storage.usage import MOST_DAYS, Counts, Usage

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services

USUAL_DAYS: Final = 30


def blueprint(provider: Provider) -> Blueprint:
    """Return the route."""
    made = Blueprint("usage", __name__)

    @made.get("/v1/usage")
    def read_usage() -> Response:
        return show(provider())

    return made


def show(services: Services) -> Response:
    """Show the totals of the days that are asked for; those of which nothing is known are left out.

    Days are UTC's.
    """
    query.refuse_unknown(("from", "to", "node"))
    nodes = frozenset(query.texts("node", most=50, longest=128))
    first, last = requested_days(datetime.fromtimestamp(services.clock(), UTC).date())
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    shown = []
    for day, found in zip(days, Usage(services.store, g.tenant).of(days), strict=True):
        by_node = {node: counts for node, counts in found.items() if not nodes or node in nodes}
        if by_node:
            shown.append({"day": f"{day}", **added_up([by_node])})
    whole = added_up(one["nodes"] for one in shown)
    return in_json(
        {"from": f"{first}", "to": f"{last}", "time_zone": "UTC", "days": shown, **whole}
    )


def requested_days(today: date) -> tuple[date, date]:
    """Return the first and the last day that the query asks for: the last thirty when it does not.

    Raises:
        AsyncNodesError: ``bad_request``.

    """
    last = _day("to") or today
    first = _day("from") or last - timedelta(days=USUAL_DAYS - 1)
    if first > last:
        query.refuse("from", f"from, {first}, is later than to, {last}")
    if (last - first).days >= MOST_DAYS:
        query.refuse("from", f"{MOST_DAYS} days can be asked for at once")
    return first, last


def _day(name: str) -> date | None:
    given = query.text(name, longest=10)
    if given is None:
        return None
    try:
        return datetime.strptime(given, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        query.refuse(name, f"{name} must be a day such as 2026-12-01")


def added_up(several: Iterable[Mapping[str, Counts]]) -> dict[str, Any]:
    """Return the sums of counts, of each node and of all, names in order."""
    nodes: dict[str, Counter[str]] = {}
    for by_node in several:
        for node, counts in by_node.items():
            nodes.setdefault(node, Counter()).update(counts)
    totals: Counter[str] = Counter()
    for counts in nodes.values():
        totals.update(counts)
    return {
        "nodes": {node: dict(sorted(nodes[node].items())) for node in sorted(nodes)},
        "totals": dict(sorted(totals.items())),
    }
