"""Step 1 and 3: what a node declares against a dependency that does badly.

A breaker stops calls that would fail, a fallback answers in their place, a hedge makes a second
call beside one that is slow. Plain data: what it means in a worker is in `execution.breaking`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from async_nodes.core.breaker import Breaker
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.strict_json import dumps

LONGEST_KEPT: Final = 30 * 86_400.0
"""Seconds for which a good answer can be kept."""


class _NoFallback:
    """Stand for a fallback that is not declared; None is a value like any other."""

    def __repr__(self) -> str:
        return "NO_FALLBACK"


NO_FALLBACK: Final = _NoFallback()


@dataclass(frozen=True, slots=True)
class OtherNode:
    """Answer by another node, given the same inputs.

    Attributes:
        name: of the node.

    """

    name: str


@dataclass(frozen=True, slots=True)
class LastGood:
    """Answer what the node answered last for the same inputs and the same tenant.

    Attributes:
        seconds: how long an answer is kept, at most 30 days.

    """

    seconds: float = 3_600.0


@dataclass(frozen=True, slots=True)
class Hedge:
    """Make a second call beside one that is slow; the first answer wins, the other is cancelled.

    Only for work that may be done twice.

    Attributes:
        after: seconds until the second call; None: the P95 of the calls before.
        most: share of calls that may have a second one.

    """

    after: float | None = None
    most: float = 0.1


@dataclass(frozen=True, slots=True)
class Protection:
    """Hold what a node declares; a node that declares nothing has none."""

    breaker: Breaker | None
    fallback: Any
    hedge: Hedge | None


def protection(
    name: str, style: str, *, breaker: object, fallback: Any, hedge: object
) -> Protection | None:
    """Return a node's protection, None where it declares nothing.

    Raises:
        AsyncNodesError: ``invalid_node``.

    """
    wrong = _wrong_breaker(breaker) or _wrong_fallback(name, fallback) or _wrong_hedge(hedge, style)
    if wrong:
        raise AsyncNodesError("invalid_node", f"node {name!r}: {wrong}")
    if breaker is None and fallback is NO_FALLBACK and hedge is None:
        return None
    assert breaker is None or isinstance(breaker, Breaker)  # noqa: S101 - see _wrong_breaker
    assert hedge is None or isinstance(hedge, Hedge)  # noqa: S101 - see _wrong_hedge
    return Protection(breaker, fallback, hedge)


def _wrong_breaker(breaker: object) -> str:
    return "" if breaker is None or isinstance(breaker, Breaker) else "breaker must be a Breaker"


def _wrong_fallback(name: str, fallback: Any) -> str:
    if fallback is NO_FALLBACK:
        return ""
    if isinstance(fallback, OtherNode):
        return "it cannot be its own fallback" if fallback.name == name else ""
    if isinstance(fallback, LastGood):
        kept = 0 < fallback.seconds <= LONGEST_KEPT
        return "" if kept else "LastGood keeps an answer for at most 30 days"
    try:
        dumps(fallback)
    except AsyncNodesError as error:
        return f"fallback must be a JSON value, OtherNode or LastGood: {error.detail}"
    return ""


def _wrong_hedge(hedge: object, style: str) -> str:
    if hedge is None:
        return ""
    if not isinstance(hedge, Hedge):
        return "hedge must be a Hedge"
    if style != "function":
        return "only a plain function can be hedged: a stream has begun by the time it is slow"
    if hedge.after is not None and not 0 < hedge.after < math.inf:
        return "hedge: after must be a number of seconds above 0"
    return "" if 0 < hedge.most <= 1 else "hedge: most must be above 0, at most 1"
