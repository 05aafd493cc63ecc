"""What a node's declared protection does around its body: breaker, fallback, hedge.

The record of a task that something else answered says so: its usage has ``fallback: 1``, and its
log the reason.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import OrderedDict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.strict_json import dumps
from async_nodes.execution.breakers import BreakerOpen, is_failure
from async_nodes.execution.hedging import Hedging
from async_nodes.nodes.protection import NO_FALLBACK, Hedge, LastGood, OtherNode
from async_nodes.telemetry import breaker_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from async_nodes.core.ports import Claim
    from async_nodes.execution.breakers import Board
    from async_nodes.execution.job import Job
    from async_nodes.execution.middleware import Middleware, Wrapper
    from async_nodes.nodes import NodeContext, NodeSpec

_log = logging.getLogger(__name__)

KEEP_EVERY: Final = 5.0
"""Seconds after which the same answer to the same inputs is kept again."""

MOST_REMEMBERED: Final = 10_000
_PORTS: Final = {"http": 80, "https": 443}


class Breaking:
    """Carry out what nodes declare.

    Args:
        board: the breakers of the process.
        registry: the nodes by name.
        host: the process; one that can `race` hedges.

    """

    def __init__(self, board: Board, registry: Mapping[str, NodeSpec], host: object) -> None:
        self._board = board
        self._registry = registry
        self._host = host
        self._hedging: dict[str, Hedging] = {}
        self._kept: OrderedDict[str, float] = OrderedDict()

    def protect(self, ctx: NodeContext) -> Wrapper:
        """Return the wrapper of an attempt's body."""

        def wrap(call_next: Middleware) -> Middleware:
            return lambda claim, job: self._run(ctx, call_next, claim, job)

        return wrap

    def calls(self, url: str, tenant: str) -> AbstractContextManager[object]:
        """Return the breaker of a URL's host, to be entered around a call."""
        guarded = self._board.endpoint(address_of(url), tenant)
        return nullcontext() if guarded is None else guarded()

    def _run(self, ctx: NodeContext, call_next: Middleware, claim: Claim, job: Job) -> Any:
        protection = job.spec.protection
        if protection is None:
            return call_next(claim, job)
        fallback = protection.fallback
        try:
            value = self._guarded(ctx, call_next, claim, job)
        except BreakerOpen as refused:
            if fallback is NO_FALLBACK:
                raise
            return self._fall_back(ctx, call_next, claim, job, refused)
        if isinstance(fallback, LastGood):
            self._keep(ctx, job, value, fallback.seconds)
        return value

    def _guarded(self, ctx: NodeContext, call_next: Middleware, claim: Claim, job: Job) -> Any:
        protection, name = job.spec.protection, job.spec.name
        assert protection is not None  # noqa: S101 - `_run` has seen it
        if protection.breaker is None:
            return self._hedged(call_next, claim, job)
        guarded = self._board.node(name, protection.breaker)
        ctx.degraded = guarded.condition.mode
        call = guarded()
        try:
            with call:
                return self._hedged(call_next, claim, job)
        except Exception as error:
            if call.is_trial and is_failure(error) and protection.fallback is not NO_FALLBACK:
                # Somebody has to try; it need not be to that client's cost.
                raise BreakerOpen(guarded.name, 0, why=f"its trial failed: {error}") from error
            raise

    def _hedged(self, call_next: Middleware, claim: Claim, job: Job) -> Any:
        protection, name = job.spec.protection, job.spec.name
        if protection is None or protection.hedge is None or not hasattr(self._host, "race"):
            return call_next(claim, job)
        hedging = self._hedging.get(name)
        if hedging is None:
            hedging = self._hedging.setdefault(name, Hedging(name, protection.hedge))
        return hedging.run(lambda _second: call_next(claim, job), self._host)

    def hedge(self, name: str, call: Callable[[bool], Any], after: float | None) -> Any:
        """Make a call, and a second one beside it if it is slow; see `NodeContext.hedge`."""
        if not hasattr(self._host, "race"):
            return call(False)
        slot = f"endpoint:{address_of(name)}"
        hedging = self._hedging.get(slot)
        if hedging is None:
            if len(self._hedging) > MOST_REMEMBERED:
                self._hedging.clear()
            hedging = self._hedging.setdefault(slot, Hedging(slot, Hedge()))
        return hedging.run(call, self._host, after=after)

    # -- in place of the body ------------------------------------------------------------------

    def _fall_back(
        self, ctx: NodeContext, call_next: Middleware, claim: Claim, job: Job, refused: BreakerOpen
    ) -> Any:
        protection = job.spec.protection
        assert protection is not None  # noqa: S101 - `_run` has seen it
        fallback = protection.fallback
        if isinstance(fallback, OtherNode):
            other = self._registry[fallback.name]
            value = self._by_node(ctx, call_next, claim, replace(job, spec=other), {job.spec.name})
            kind, what = "node", f"the node {other.name}"
        elif isinstance(fallback, LastGood):
            value, age = self._last_good(ctx, job, refused)
            kind, what = "last_good", f"its last good answer, {age:.0f} s old"
        else:
            value, kind, what = fallback, "value", "the value that it declares"
        breaker_metrics.fallbacks(job.spec.name, kind).inc()
        ctx.usage(fallback=1)
        ctx.log.warning(
            "Answered by %s: %s",
            what,
            refused.detail,
            extra={"action": "fallback", "kind": kind, "breaker": refused.extra["breaker"]},
        )
        return value

    def _by_node(
        self, ctx: NodeContext, call_next: Middleware, claim: Claim, job: Job, tried: set[str]
    ) -> Any:
        """Run another node, under its own protection; a circle of fallbacks ends where it began."""
        protection = job.spec.protection
        if protection is None:
            return call_next(claim, job)
        if not isinstance(protection.fallback, OtherNode):
            return self._run(ctx, call_next, claim, job)
        try:
            return self._guarded(ctx, call_next, claim, job)
        except BreakerOpen:
            name = protection.fallback.name
            if name in tried:
                raise
            other = replace(job, spec=self._registry[name])
            return self._by_node(ctx, call_next, claim, other, {*tried, job.spec.name})

    # -- the last good answer ------------------------------------------------------------------

    def _keep(self, ctx: NodeContext, job: Job, value: Any, seconds: float) -> None:
        name, now = _kept_name(job), time.monotonic()
        slot = f"{ctx.tenant}/{name}"
        if now - self._kept.get(slot, float("-inf")) < min(KEEP_EVERY, seconds / 2):
            return
        self._kept[slot] = now
        self._kept.move_to_end(slot)
        if len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)
        try:
            text = dumps({"at": time.time(), "value": value})
            ctx.blobs.put(name, text, seconds=seconds)
        except AsyncNodesError as error:
            # The task has its answer; the next one may be kept.
            _log.warning(
                "A good answer of %s is not kept: %s",
                job.spec.name,
                error.detail,
                extra={"action": "last_good_unkept", "node": job.spec.name},
            )

    def _last_good(self, ctx: NodeContext, job: Job, refused: BreakerOpen) -> tuple[Any, float]:
        try:
            raw = ctx.blobs.get(_kept_name(job))
        except AsyncNodesError:
            raise refused from None
        if not raw:
            raise refused
        kept = json.loads(raw)
        return kept["value"], max(time.time() - kept["at"], 0.0)


def address_of(url: str) -> str:
    """Return the host and port that a URL names; what is no URL is its own address."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return "?"
    return f"{parts.hostname or '?'}:{port}"


def _kept_name(job: Job) -> str:
    what = f"{job.spec.name}\0".encode() + job.inputs
    return f"last-good.{hashlib.sha256(what).hexdigest()}"
