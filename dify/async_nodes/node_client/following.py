"""Wait for a task's end within a time, and hand on what it says meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import gevent
from gevent.queue import Empty, Queue

from node_client.errors import (
    AsyncNodesNotFound,
    AsyncNodesOverloaded,
    AsyncNodesUnauthorized,
    AsyncNodesUnavailable,
)
from node_client.service import Service
from node_client.sse import Event

ENDED = ("Succeeded", "Failed", "Cancelled")
GATHER = 0.1
"""Seconds for which pieces are put together: Dify's pipe is the bottleneck of many calls."""

MOST_TEXT = 64 << 10
"""Characters that are put together: the daemon ends a plugin that writes a line of 5 MiB."""

WAITING = 1000
"""Events that are kept for a Dify that reads slowly; the others wait in the service."""

KEEP_ALIVE = 12.0
"""Seconds of silence after which a call says that it lives."""


class Piece(NamedTuple):
    """Hold what a waiting call passes on: ``text``, ``progress``, ``alive``, and last ``end``."""

    kind: str
    text: str = ""
    record: dict[str, Any] | None = None


def follow(service: Service, task_id: str, seconds: float) -> Iterator[Piece]:
    """Yield what a task says, and last ``end`` with its record, or without one when time is up.

    An ``end`` without a record has the task's last known state as its text.
    """
    until = time.monotonic() + seconds
    heard: Queue[Event | BaseException] = Queue(WAITING)
    reader = gevent.spawn(_read, service, task_id, heard)
    gathered = Gathered()
    spoke = time.monotonic()
    try:
        while (now := time.monotonic()) < until:
            due = gathered.due(spoke + KEEP_ALIVE)
            if now >= due:
                yield gathered.take() or Piece("alive")
                spoke = time.monotonic()
                continue
            try:
                said = heard.get(timeout=min(until, due) - now)
            except Empty:
                continue
            if isinstance(said, BaseException):
                raise said
            if said.name == "done":
                yield from gathered.rest()
                yield Piece("end", record=_json(said))
                return
            for piece in gathered.add(said):
                yield piece
                spoke = time.monotonic()
        yield from gathered.rest()
        yield Piece("end", gathered.state)
    finally:
        reader.kill(block=False)


def _read(service: Service, task_id: str, heard: Queue[Event | BaseException]) -> None:
    """Put a task's events into a queue, over as many connections as it takes."""
    after, pause = "", 0.2
    while True:
        try:
            for event in service.events(task_id, after):
                after, pause = event.id or after, 0.2
                heard.put(event)
                if event.name == "done":
                    return
            record = service.read(task_id)  # a stream without an end, or nothing new
            if record["state"] in ENDED:
                heard.put(Event("done", json.dumps(record), ""))
                return
        except (AsyncNodesNotFound, AsyncNodesUnauthorized) as error:
            heard.put(error)
            return
        except (AsyncNodesOverloaded, AsyncNodesUnavailable):
            pass  # the task goes on without us; the time that is left bounds this
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            heard.put(error)
            return
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


class Gathered:
    """Put pieces of text together, attempt by attempt, for a tenth of a second."""

    def __init__(self) -> None:
        self.text = ""
        self.state = "Pending"
        self._attempt = 0
        self._since = 0.0

    def due(self, otherwise: float) -> float:
        """Return the moment at which the text is to be passed on; `otherwise` without any."""
        return self._since + GATHER if self.text else otherwise

    def add(self, event: Event) -> Iterator[Piece]:
        """Take an event in; yield what must not wait."""
        said = _json(event)
        if event.name == "chunk" and isinstance(said.get("text"), str):
            yield from self._add_text(said["text"], int(said.get("attempt") or 0))
        elif event.name == "progress":
            yield Piece("progress", progress_line(said))
        elif event.name == "state" and said.get("state"):
            self.state = str(said["state"])
            yield Piece("progress", state_line(said))

    def _add_text(self, text: str, attempt: int) -> Iterator[Piece]:
        if not self.text:
            self._since = time.monotonic()
        if self._attempt and attempt > self._attempt:
            self.text += "\n\n"  # what was streamed cannot be taken back; it begins again
        self._attempt = max(self._attempt, attempt)
        self.text += text
        while len(self.text) >= MOST_TEXT:
            piece, self.text = self.text[:MOST_TEXT], self.text[MOST_TEXT:]
            yield Piece("text", piece)

    def take(self) -> Piece | None:
        """Return what was put together, if anything."""
        text, self.text = self.text, ""
        return Piece("text", text) if text else None

    def rest(self) -> Iterator[Piece]:
        """Yield what is left."""
        if (piece := self.take()) is not None:
            yield piece


def progress_line(said: dict[str, Any]) -> str:
    """Return ``40 %: reading`` and the like."""
    fraction, text = said.get("fraction"), said.get("text") or ""
    share = f"{fraction:.0%}".replace("%", " %") if isinstance(fraction, int | float) else ""
    return ": ".join(part for part in (share, text) if part)


def state_line(said: dict[str, Any]) -> str:
    """Return ``Running`` or, from the second time on, ``Running, attempt 2``."""
    attempt = int(said.get("attempt") or 0)
    reason = f" ({said['reason']})" if said.get("reason") else ""
    return f"{said['state']}{reason}" + (f", attempt {attempt}" if attempt > 1 else "")


def _json(event: Event) -> dict[str, Any]:
    """Return what an event says; nothing where a proxy has put something else between them."""
    try:
        found = json.loads(event.data)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
