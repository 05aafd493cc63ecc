"""What all processes know of the breakers (step *store*): counts, conditions, the one trial.

A condition is written by compare-and-set on its version, so that of several processes that judge
the same window one does it. When the store was emptied, whoever knows a condition writes it again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from async_nodes.core.breaker import SLICES, Condition
from async_nodes.core.windows import Counts
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

KEPT_SLICES: Final = 2 * SLICES
"""The window that goes on and the one before it, which is judged when it is over."""

KEPT_DAYS: Final = 7
"""How long a breaker is remembered that nobody uses."""

MOST_KEPT: Final = 2_000
"""Breakers beyond which a new one is kept only once it is not closed: hosts can be many."""

TRIAL_SECONDS: Final = 5.0
"""How long a trial's silence is believed; the process that makes it says that it goes on."""


@dataclass(frozen=True, slots=True)
class Look:
    """Ask for a breaker, and tell what calls did since the last time."""

    name: str
    slice_ms: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Seen:
    """Hold what the store knows of a breaker.

    Attributes:
        condition: None when nobody has written it.
        now_ms: the store's time.
        slices: counts by the slice's number.

    """

    condition: Condition | None
    now_ms: int
    slices: dict[int, Counts]


class Grant(StrEnum):
    """Say whether a call may be made that asks for the trial."""

    TAKEN = "taken"
    BUSY = "busy"
    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Trial:
    """Answer a call that asks for the trial.

    Attributes:
        grant: whether it may be made.
        wait_ms: until an open one may be tried; -1 while it is forced open.
        now_ms: the store's time.
        condition: what is known, None when that was lost.

    """

    grant: Grant
    wait_ms: int
    now_ms: int
    condition: Condition | None


class SharedBreakers:
    """Reach the breakers of all processes.

    Every method raises `StoreUnavailable` when the store does not answer.

    Args:
        store: where they are.

    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def look(self, rows: Sequence[Look]) -> list[Seen]:
        """Add what calls did and return what is known, in one script call."""
        flat: list[str | int] = []
        for row in rows:
            counts = row.counts.encoded() if row.counts.calls else ""
            flat += [row.name, row.slice_ms, KEPT_SLICES, counts]
        return [_seen(verdict) for verdict in self._store.run("breaker", *flat)] if flat else []

    def change(
        self, name: str, expected: int, wanted: Condition, *, token: str = ""
    ) -> Condition | None:
        """Write a condition that was made from another one.

        Args:
            name: of the breaker.
            expected: version of the condition that it was made from.
            wanted: the new one.
            token: of the trial that ends with it.

        Returns:
            None when it is written, else the condition that somebody has written meanwhile.

        """
        text = encoded(wanted)
        raw = self._store.run("breaker_set", name, expected, text, token, KEPT_DAYS, MOST_KEPT)
        return None if raw == b"ok" else decoded(raw)

    def take(self, name: str, token: str) -> Trial:
        """Ask to make the one call that a half-open breaker lets through."""
        return self._trial(name, "take", token)

    def keep(self, name: str, token: str) -> None:
        """Say that the call goes on."""
        self._trial(name, "keep", token)

    def give_back(self, name: str, token: str) -> None:
        """Say that the call is over and proves nothing."""
        self._trial(name, "give", token)

    def _trial(self, name: str, what: str, token: str) -> Trial:
        answer = self._store.run("breaker_trial", name, what, token, int(TRIAL_SECONDS * 1000))
        grant, wait, now, raw = answer
        return Trial(Grant(grant.decode()), int(wait), int(now), decoded(raw) if raw else None)

    def all(self) -> dict[str, Condition]:
        """Return every breaker's condition by its name."""
        flat = self._store.link.call("HGETALL", self._store.keys.breakers)
        return {n.decode(): decoded(raw) for n, raw in zip(flat[::2], flat[1::2], strict=True)}

    def one(self, name: str) -> Condition | None:
        """Return a breaker's condition."""
        raw = self._store.link.call("HGET", self._store.keys.breakers, name)
        return decoded(raw) if raw else None

    def now_ms(self) -> int:
        """Return the store's time."""
        seconds, micros = self._store.link.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000


def encoded(condition: Condition) -> str:
    """Return a condition as the scripts read it."""
    return json.dumps(condition.to_json(), separators=(",", ":"))


def decoded(raw: bytes) -> Condition:
    """Return the condition that `encoded` wrote."""
    return Condition.from_json(json.loads(raw))


def _seen(verdict: Sequence[bytes]) -> Seen:
    if verdict[0] != b"ok":
        raise StoreUnavailable(verdict[1].decode("utf-8", "replace"))
    _, raw, now, *flat = verdict
    pairs = zip(flat[::2], flat[1::2], strict=True)
    slices = {int(number): Counts.decoded(counts.decode()) for number, counts in pairs}
    return Seen(decoded(raw) if raw else None, int(now), slices)
