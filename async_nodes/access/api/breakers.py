"""Step 5, expose: the breakers, what each has measured, and an administrator's word.

A node's breaker is shown before it was ever used; one of an endpoint from its first call on.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, g, request

from async_nodes.access.api import query
from async_nodes.access.api.answers import body_of_request, in_json
from async_nodes.access.guard import check_content_type
from async_nodes.core import strict_json
from async_nodes.core.breaker import (
    PRISTINE,
    Breaker,
    Condition,
    State,
    forced,
    name_of,
    thresholds,
)
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.request import invalid, unknown
from async_nodes.storage.breakers import SharedBreakers

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services
    from async_nodes.nodes import Registry

MODES: Final = ("auto", "open", "closed")
KINDS: Final = ("node", "key", "endpoint")
_TRIES: Final = 5
_ENDPOINT: Final = Breaker()


def blueprint(provider: Provider, nodes: Registry) -> Blueprint:
    """Return the routes."""
    made = Blueprint("breakers", __name__)

    @made.get("/v1/breakers")
    def list_breakers() -> Response:
        return show_all(provider(), nodes)

    @made.get("/v1/breakers/<name>")
    def show_breaker(name: str) -> Response:
        return show(provider(), nodes, name)

    @made.post("/v1/breakers/<name>")
    def force_breaker(name: str) -> Response:
        return force(provider(), nodes, name)

    return made


def show_all(services: Services, nodes: Registry) -> Response:
    """Show the breakers that nodes declare, and those of the tenant's endpoints."""
    query.refuse_unknown(())
    declared, known = declarations(nodes), _known(services)
    shown = [_shown(name, known.get(name), declared) for name in sorted({*declared, *known})]
    return in_json({"breakers": shown})


def show(services: Services, nodes: Registry, name: str) -> Response:
    """Show one breaker."""
    query.refuse_unknown(())
    declared, known = declarations(nodes), _known(services)
    _check(name, {*declared, *known})
    return in_json(_shown(name, known.get(name), declared))


def force(services: Services, nodes: Registry, name: str) -> Response:
    """Open or close a breaker whatever happens, or let it decide again."""
    mode = requested_mode()
    declared, shared = declarations(nodes), SharedBreakers(services.store)
    _check(name, {*declared, *_known(services)})
    condition = shared.one(name) or PRISTINE
    for _ in range(_TRIES):
        wanted = forced(condition, mode, now_ms=shared.now_ms())
        other = shared.change(name, condition.version, wanted)
        if other is None:
            return in_json(_shown(name, wanted, declared))
        condition = other
    raise AsyncNodesError("store_busy", f"{name} changes all the time", retry_after=1.0)


def requested_mode() -> str:
    """Return what the request's body wants.

    Raises:
        AsyncNodesError: ``not_json`` or ``invalid_request``.

    """
    check_content_type(request.content_type)
    given = strict_json.loads(body_of_request())
    if not isinstance(given, dict):
        raise invalid("the body is a JSON object", "")
    for member in given:
        if member != "mode":
            raise unknown(member, ("mode",))
    mode = given.get("mode")
    if mode not in MODES:
        raise invalid(f"mode must be one of {', '.join(MODES)}", "/mode")
    return str(mode)


def declarations(nodes: Registry) -> dict[str, tuple[Breaker, list[str]]]:
    """Return the breakers that nodes declare, each with these nodes' names."""
    found: dict[str, tuple[Breaker, list[str]]] = {}
    for node, spec in nodes.items():
        if spec.protection is not None and spec.protection.breaker is not None:
            breaker = spec.protection.breaker
            found.setdefault(name_of(node, breaker), (breaker, []))[1].append(node)
    return found


def _known(services: Services) -> dict[str, Condition]:
    """Return what the store knows, but for the endpoints of other tenants."""
    known = SharedBreakers(services.store).all()
    return {
        name: condition
        for name, condition in known.items()
        if not name.startswith("endpoint:") or name.partition("@")[2] in {"", g.tenant}
    }


def _check(name: str, names: set[str]) -> None:
    if name in names:
        return
    close = difflib.get_close_matches(name[:200], sorted(names), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "GET /v1/breakers lists them"
    more: dict[str, Any] = {"suggestion": close[0]} if close else {}
    detail = f"there is no breaker {name[:200]!r}; {hint}"
    raise AsyncNodesError("breaker_not_found", detail, **more)


def _shown(
    name: str,
    condition: Condition | None,
    declared: Mapping[str, tuple[Breaker, list[str]]],
) -> dict[str, Any]:
    known = PRISTINE if condition is None else condition
    breaker, nodes = declared.get(name, (_ENDPOINT, []))
    figures = known.figures
    rate, latency = thresholds(breaker, known.load)
    return {
        "name": name,
        "kind": name.partition(":")[0],
        "nodes": sorted(nodes),
        "state": known.state.value,
        "mode": known.forced or "auto",
        "cause": known.cause.value,
        "since": iso(known.since_ms) if known.since_ms else None,
        "until": iso(known.until_ms) if known.until_ms and known.state is State.OPEN else None,
        "degraded": known.mode or None,
        "trials": list(known.trials),
        "windows_over": known.over,
        "load": round(known.load, 4),
        "measured": {
            "calls": figures.calls,
            "failures": figures.failures,
            "failure_rate": figures.failure_rate,
            "rate": figures.rate,
            "p95_seconds": figures.p95,
        },
        "thresholds": {
            "window_seconds": breaker.window,
            "failures": breaker.failures,
            "failure_rate": breaker.failure_rate,
            "rate": rate,
            "p95_seconds": latency,
        },
    }
