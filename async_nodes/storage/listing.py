"""Find many tasks: walk a tenant's index by time, pass what fits, and show each in brief.

Looking is bounded, per script call and per request, so that a filter which fits nothing holds up
nobody; where a walk stopped is told by a cursor. Knows nothing of HTTP.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.ids import PATTERN
from async_nodes.core.priority import LISTS
from async_nodes.core.states import NodeState
from async_nodes.storage import layout

if TYPE_CHECKING:
    from async_nodes.storage.redis_store import RedisStore

LOOK: Final = 300
"""Records that one script call looks at: two or three milliseconds of the server's time."""

MOST_LOOKED: Final = 5_000
"""Records that one `Listing.find` looks at."""

MOST_BYTES: Final = 8 << 20
"""Bytes of whole documents after which `Listing.documents` stops."""

_AT_ONCE: Final = 10
_PLACE: Final = re.compile(rf"([0-9]{{1,15}})\.({PATTERN.pattern})", re.ASCII)
_SHOWN_APART: Final = ("progress", "error", "usage")
_LEFT_OUT: Final = ("inputs", "metadata")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Say which tasks are wanted; what is empty passes all.

    Attributes:
        states: any of these.
        lists: any of these names of `priority.LISTS`.
        nodes: any of these names.
        tags: all of these.
        after_ms, before_ms: made later and earlier than this, milliseconds since 1970.

    """

    states: tuple[NodeState, ...] = ()
    lists: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    after_ms: int | None = None
    before_ms: int | None = None


class Place(NamedTuple):
    """Where in the index a task is: its time of creation in milliseconds, and its id."""

    score: int
    task_id: str

    @property
    def cursor(self) -> str:
        """Return the text that stands for it; those who get it need not understand it."""
        plain = f"{self.score}.{self.task_id}".encode()
        return base64.urlsafe_b64encode(plain).decode().rstrip("=")

    @classmethod
    def of(cls, cursor: str) -> Place:
        """Return what a cursor stands for.

        Raises:
            AsyncNodesError: ``bad_request``: it is none of ours.

        """
        try:
            padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
            found = _PLACE.fullmatch(base64.b64decode(padded, b"-_", validate=True).decode())
        except (ValueError, binascii.Error):
            found = None
        if found is None:
            raise AsyncNodesError("bad_request", "cursor is not one that a list has answered")
        return cls(int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class Page:
    """Hold what was found.

    Attributes:
        places: of the tasks, newest first.
        next: cursor of the rest, None when there is none. It stays good whatever is submitted or
            deleted meanwhile.

    """

    places: tuple[Place, ...]
    next: str | None

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids, newest first."""
        return tuple(place.task_id for place in self.places)


class Listing:
    """Look at many tasks of a tenant.

    Args:
        store: where they are.

    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def find(
        self,
        tenant: str,
        filters: Filters | None = None,
        cursor: str = "",
        *,
        most: int = 50,
        look: int = MOST_LOOKED,
    ) -> Page:
        """Return the next tasks that pass, newest first.

        Args:
            tenant: whose.
            filters: which.
            cursor: an earlier page's `next`, empty to begin with the newest.
            most: tasks to find.
            look: records to look at; then the page ends, short or empty, with a `next`.

        Raises:
            AsyncNodesError: ``bad_request`` for a cursor that is none.
            StoreUnavailable: the store does not answer.

        """
        wanted = _arguments(filters or Filters())
        last = Place.of(cursor) if cursor else None
        found: list[Place] = []
        while True:
            score, task_id = last or ("", "")
            more, looked, *places = self._store.run(
                "find", tenant, *wanted.times, score, task_id, min(LOOK, look),
                most - len(found), *wanted.rest,
            )  # fmt: skip
            (score, task_id), *passed = zip(places[::2], places[1::2], strict=True)
            found += [Place(int(at), one.decode()) for at, one in passed]
            look -= looked
            if not more:
                return Page(tuple(found), None)
            last = Place(int(score), task_id.decode())
            if len(found) >= most or look <= 0:
                return Page(tuple(found), last.cursor)

    def summaries(
        self, tenant: str, ids: Sequence[str], *, states: Sequence[NodeState] = ()
    ) -> list[dict[str, Any]]:
        """Return tasks in brief, without inputs, output, attempts and metadata.

        Those that the tenant has not, or not any more, are left out, and where states are given
        those in any other: it may have changed since the task was found.
        """
        if not ids:
            return []
        found = self._store.run("brief", tenant, *ids)
        shown = [summary(*parts) for parts in found if parts]
        return [one for one in shown if one["state"] in states] if states else shown

    def documents(
        self,
        tenant: str,
        ids: Sequence[str],
        *,
        states: Sequence[NodeState] = (),
        most_bytes: int = MOST_BYTES,
    ) -> tuple[list[bytes], int]:
        """Return whole public documents, and how many of the ids were looked up.

        The look-up stops once so many bytes are there. Left out is what `summaries` leaves out.
        """
        found: list[bytes] = []
        size = done = 0
        while done < len(ids) and size < most_bytes:
            some = ids[done : done + _AT_ONCE]
            for raw in self._store.link.call_many(
                [("GET", self._store.keys.task(task_id)) for task_id in some]
            ):
                if size >= most_bytes:
                    break
                done += 1
                if not isinstance(raw, bytes) or (states and layout.state_of(raw) not in states):
                    continue
                glance = layout.glance(raw)
                if glance.tenant == tenant:
                    found.append(glance.json)
                    size += len(glance.json)
        return found, done


class _Arguments(NamedTuple):
    """Filters as the script takes them, in two runs."""

    times: tuple[str, str]
    rest: tuple[str | int, ...]


def _arguments(filters: Filters) -> _Arguments:
    after, before = filters.after_ms, filters.before_ms
    times = ("-inf" if after is None else str(after), "+inf" if before is None else str(before))
    states = _numbers([layout.STATES.index(state) for state in filters.states])
    lists = _numbers([LISTS.index(name) for name in filters.lists])
    rest: tuple[str | int, ...] = (states, lists, len(filters.nodes))
    rest += (*filters.nodes, *filters.tags)
    return _Arguments(times, rest)


def _numbers(found: Sequence[int]) -> str:
    return f",{','.join(map(str, found))}," if found else ""


def summary(opening: bytes, ending: bytes) -> dict[str, Any]:
    """Return a task in brief from two pieces of its document.

    Args:
        opening: from the start to the colon after ``"inputs"``.
        ending: from the bracket that closes the attempts; what follows ``"output":`` may be cut.

    """
    shown: dict[str, Any] = json.loads(opening + b"null}")
    for name in _LEFT_OUT:
        del shown[name]
    text, at = ending.decode("utf-8", "replace"), len("]")
    for name in _SHOWN_APART:
        shown[name], at = _DECODER.raw_decode(text, at + len(f',"{name}":'))
    return shown
