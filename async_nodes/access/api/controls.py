"""Step 5, expose: the routes that pause, resume, drain and purge queues and nodes.

Each may be repeated: it answers what is in force now, and how many tasks it has touched.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, g, request

from async_nodes.access.api.answers import body_of_request, in_json
from async_nodes.access.guard import check_content_type
from async_nodes.core import strict_json
from async_nodes.core.contracts import iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.priority import KINDS, LISTS
from async_nodes.dispatch.request import invalid, unknown
from async_nodes.nodes.registry import UnknownNodeError
from async_nodes.storage.controls import (
    Control,
    Controls,
    Done,
    Mode,
    node_scope,
    queue_scope,
)
from async_nodes.storage.listing import Filters

if TYPE_CHECKING:
    from async_nodes.access.services import Provider, Services
    from async_nodes.nodes import Registry

LONGEST_REASON: Final = 200
_WORDS: Final = {Mode.PAUSE: "paused", Mode.DRAIN: "draining"}

Action = Callable[[Controls, Sequence[str], Filters, str | None], Done]
"""Does what a route says to some scopes, whose tasks pass the filters; the last is the reason."""


def blueprint(provider: Provider, nodes: Registry) -> Blueprint:
    """Return the routes."""
    made = Blueprint("controls", __name__)

    def of_queue(action: str) -> Callable[[str], Response]:
        def act_on_queue(name: str) -> Response:
            lists = lists_of(name)
            scopes = [queue_scope(one) for one in lists]
            return act(provider(), action, scopes, Filters(lists=lists))

        return act_on_queue

    def of_node(action: str) -> Callable[[str], Response]:
        def act_on_node(name: str) -> Response:
            services = provider()
            check_node(services, nodes, name)
            return act(services, action, [node_scope(name)], Filters(nodes=(name,)))

        return act_on_node

    for action in ACTIONS:
        for kind, made_for in (("queue", of_queue), ("node", of_node)):
            rule, name = f"/v1/{kind}s/<name>/{action}", f"{action}_{kind}"
            made.add_url_rule(rule, name, made_for(action), methods=["POST"])
    return made


def act(services: Services, action: str, scopes: Sequence[str], filters: Filters) -> Response:
    """Do something to scopes and answer what is in force for them now."""
    controls = Controls(services.store)
    done = ACTIONS[action](controls, scopes, filters, requested_reason())
    services.admission.forget()
    states = state_of(controls, scopes)
    shown = [{"scope": scope, **states[scope]} for scope in scopes]
    return in_json({"scopes": shown, "touched": done.touched, "more": done.more})


def _pause(
    controls: Controls, scopes: Sequence[str], _filters: Filters, reason: str | None
) -> Done:
    for scope in scopes:
        controls.put(scope, Mode.PAUSE, reason)
    return Done(sum(controls.held(scopes)), more=False)


def _resume(
    controls: Controls, scopes: Sequence[str], _filters: Filters, _reason: str | None
) -> Done:
    for scope in scopes:
        controls.end(scope)
    return controls.release(scopes)


def _drain(
    controls: Controls, scopes: Sequence[str], _filters: Filters, reason: str | None
) -> Done:
    for scope in scopes:
        controls.put(scope, Mode.DRAIN, reason)
    return controls.release(scopes)  # what a pause before has held is to be worked off too


def _purge(
    controls: Controls, _scopes: Sequence[str], filters: Filters, _reason: str | None
) -> Done:
    return controls.purge(g.tenant, filters)


ACTIONS: Final[Mapping[str, Action]] = {
    "pause": _pause,
    "resume": _resume,
    "drain": _drain,
    "purge": _purge,
}


# -- what is meant ---------------------------------------------------------------------------------


def lists_of(name: str) -> tuple[str, ...]:
    """Return the lists that a queue's name stands for: one, or the three of a kind.

    Raises:
        AsyncNodesError: ``not_found``, with the name that may have been meant.

    """
    if name in LISTS:
        return (name,)
    if name in KINDS:
        return tuple(one for one in LISTS if one.startswith(f"{name}."))
    close = difflib.get_close_matches(name[:64], (*LISTS, *KINDS), n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(LISTS)}"
    more: dict[str, Any] = {"suggestion": close[0]} if close else {}
    raise AsyncNodesError("not_found", f"there is no queue {name[:64]!r}; {hint}", **more)


def check_node(services: Services, nodes: Registry, name: str) -> None:
    """Refuse a node that nobody knows; one that was removed while paused is still known by that.

    Raises:
        AsyncNodesError: ``not_found``, with the name that may have been meant.

    """
    if name in nodes:
        return
    controls, scope = Controls(services.store), node_scope(name)
    if scope not in controls.all() and not any(controls.held([scope])):
        unknown_node = UnknownNodeError(name[:100], nodes)
        raise AsyncNodesError("not_found", unknown_node.detail, **unknown_node.extra)


def requested_reason() -> str | None:
    """Return why, as the request's body says, None when it does not.

    Raises:
        AsyncNodesError: ``not_json`` or ``invalid_request``.

    """
    raw = body_of_request()
    if not raw:
        return None
    check_content_type(request.content_type)
    given = strict_json.loads(raw)
    if not isinstance(given, dict):
        raise invalid("the body is a JSON object", "")
    for name in given:
        if name != "reason":
            raise unknown(name, ("reason",))
    reason = given.get("reason")
    if reason is not None and not (isinstance(reason, str) and 1 <= len(reason) <= LONGEST_REASON):
        raise invalid(f"reason is a text of 1 to {LONGEST_REASON} characters", "/reason")
    return reason


# -- what is shown ---------------------------------------------------------------------------------


def state(control: Control | None) -> dict[str, Any]:
    """Return what is in force, as it is shown of queues and nodes."""
    return {
        "state": "open" if control is None else _WORDS[control.mode],
        "since": None if control is None else iso(control.since_ms),
        "reason": None if control is None else control.reason,
    }


def state_of(controls: Controls, scopes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what is in force for some scopes, and how many tasks each holds."""
    known, held = controls.all(), controls.held(scopes)
    return {
        scope: {**state(known.get(scope)), "held": count}
        for scope, count in zip(scopes, held, strict=True)
    }


def node_states(provider: Provider, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return what is in force for nodes; ``unknown`` while the store does not answer."""
    scopes = {name: node_scope(name) for name in names}
    try:
        found = state_of(Controls(provider().store), list(scopes.values()))
    except AsyncNodesError:
        nothing = {"state": "unknown", "since": None, "reason": None, "held": None}
        return dict.fromkeys(scopes, nothing)
    return {name: found[scope] for name, scope in scopes.items()}
