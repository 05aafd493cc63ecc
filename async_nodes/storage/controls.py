"""Pauses and drains: what is in force, who is held by it, and whether a submit is let in.

A pause holds what waits: the scripts hold a task at the moment when a worker would start it. A
drain refuses what is new, which is the business of those who submit, see `Admission`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import NodeState
from async_nodes.storage.listing import Filters, Listing

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

AT_ONCE: Final = 200
"""Tasks that one script releases or cancels: a few milliseconds of the server's time."""

LONGEST: Final = 1.0
"""Seconds that one request may release or purge; the rest is told of."""

FRESH: Final = 1.0
"""Seconds for which `Admission` believes what it has read."""

READ_TIMEOUT: Final = 0.05
"""Seconds that a submit may wait for what is drained; what was known before counts otherwise."""

RETRY_AFTER: Final = 5.0
"""Seconds after which a client that was refused by a drain may ask again."""


class Mode(StrEnum):
    """Name what can be in force."""

    PAUSE = "pause"
    DRAIN = "drain"


@dataclass(frozen=True, slots=True)
class Control:
    """Say that a scope is paused or drained.

    Attributes:
        since_ms: milliseconds since 1970, by the store's clock.
        reason: what whoever did it said.

    """

    mode: Mode
    since_ms: int
    reason: str | None


def queue_scope(list_name: str) -> str:
    """Return the scope of a list such as ``io.high``."""
    return f"queue:{list_name}"


def node_scope(node: str) -> str:
    """Return the scope of a node."""
    return f"node:{node}"


@dataclass(frozen=True, slots=True)
class Done:
    """Tell how many tasks something has touched, and whether there are more."""

    touched: int
    more: bool


class Controls:
    """Pause, drain, release and purge.

    Args:
        store: where the tasks are.
        clock: seconds that only rise.

    """

    def __init__(self, store: RedisStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock

    def all(self, *, timeout: float | None = None) -> dict[str, Control]:
        """Return what is in force, by scope.

        Args:
            timeout: seconds to wait for the store; the connection's own when None.

        """
        flat = self._store.link.call("HGETALL", self._store.keys.controls, timeout=timeout)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {scope.decode(): control_of(raw) for scope, raw in pairs}

    def put(self, scope: str, mode: Mode, reason: str | None = None) -> Control:
        """Pause or drain a scope; said again it changes nothing but the reason, if there is one."""
        said = json.dumps(reason, ensure_ascii=False)
        return control_of(self._store.run("control", scope, mode.value, said))

    def end(self, scope: str) -> None:
        """End whatever is in force; held tasks are for `release`, here or in the next sweep."""
        self._store.run("control", scope, "", "null")

    def held(self, scopes: Sequence[str]) -> list[int]:
        """Return how many tasks each scope holds."""
        keys = self._store.keys
        return [
            int(found)
            for found in self._store.link.call_many([("LLEN", keys.held(one)) for one in scopes])
        ]

    def release(self, scopes: Iterable[str], *, seconds: float = LONGEST) -> Done:
        """Put back what scopes hold that are not paused, the longest held first.

        Args:
            scopes: which.
            seconds: after which the rest is left to the sweeps of the workers.

        """
        until, released, more = self._clock() + seconds, 0, False
        for scope in scopes:
            moved, left = 1, 1
            while moved and left and self._clock() < until:
                _, moved, left = self._store.row("release", (scope, AT_ONCE))
                released += moved
            more = more or left > 0
        return Done(released, more)

    def purge(self, tenant: str, filters: Filters, *, seconds: float = LONGEST) -> Done:
        """Cancel a tenant's tasks that wait, the newest first; running ones go on.

        Args:
            tenant: whose.
            filters: by list or node; the state is Pending in any case.
            seconds: after which the rest is left for another call.

        """
        listing, until, cancelled = Listing(self._store), self._clock() + seconds, 0
        wanted = Filters(states=(NodeState.PENDING,), lists=filters.lists, nodes=filters.nodes)
        cursor: str | None = ""
        while cursor is not None:
            if self._clock() >= until:
                return Done(cancelled, more=True)
            page = listing.find(tenant, wanted, cursor, most=AT_ONCE)
            rows = [word for task_id in page.ids for word in (task_id, tenant.ljust(32))]
            verdicts = self._store.run("purge", *rows) if rows else []
            cancelled += sum(verdict[0] == b"cancelled" for verdict in verdicts)
            cursor = page.next
        return Done(cancelled, more=False)


def control_of(raw: bytes) -> Control:
    """Return what a member of the controls' hash says."""
    known: dict[str, Any] = json.loads(raw)
    return Control(Mode(known["mode"]), int(known["since"]), known.get("reason"))


class Admission:
    """Refuse submits to what is drained, from memory: the store is asked once a second at most.

    Args:
        read: returns what is in force, by scope.
        clock: seconds that only rise.

    """

    def __init__(
        self,
        read: Callable[[], Mapping[str, Control]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._read_at = float("-inf")
        self._drained: Mapping[str, Control] = {}

    @classmethod
    def over(cls, store: RedisStore) -> Admission:
        """Return the admission to an open store."""
        controls = Controls(store)
        return cls(lambda: controls.all(timeout=READ_TIMEOUT))

    def forget(self) -> None:
        """Ask the store at the next submit: something was changed in this process."""
        self._read_at = float("-inf")

    def check(self, list_name: str, node: str) -> None:
        """Refuse a submit while its queue or its node is drained.

        Raises:
            AsyncNodesError: ``draining``.

        """
        if self._clock() - self._read_at >= FRESH:
            self._refresh()
        if not self._drained:
            return
        for scope in (queue_scope(list_name), node_scope(node)):
            control = self._drained.get(scope)
            if control is not None:
                raise _refusal(scope, control)

    def _refresh(self) -> None:
        # Set first: one caller asks, the others go by what is known meanwhile.
        self._read_at = self._clock()
        try:
            known = self._read()
        except AsyncNodesError:
            return  # the submit itself is about to meet the same, and has the better words
        self._drained = {
            scope: control for scope, control in known.items() if control.mode is Mode.DRAIN
        }


def _refusal(scope: str, control: Control) -> AsyncNodesError:
    kind, _, name = scope.partition(":")
    why = f": {control.reason}" if control.reason else ""
    detail = f"the {kind} {name} takes no new tasks{why}"
    return AsyncNodesError("draining", detail, retry_after=RETRY_AFTER, scope=scope)
