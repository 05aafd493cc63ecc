"""Wait for a task's end within a time, and hand on what it says meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import gevent
from gevent.queue import Empty, Queue

from node_client.errors import AsyncNodesNotFound, AsyncNodesUnauthorized, AsyncNodesUnavailable
from node_client.service import Service
from node_client.sse import COMMENT, Event

ENDED = ("Succeeded", "Failed", "Cancelled")
GATHER = 0.1
"""Seconds for which pieces are put together: Dify's pipe is the bottleneck of many calls."""

KEEP_ALIVE = 12.0
"""Seconds of silence after which a call says that it lives."""


class Piece(NamedTuple):
    """Hold what a waiting call passes on: ``text``, ``progress``, ``alive``, and last ``end``."""

    kind: str
    text: str = ""
    record: dict[str, Any] | None = None


def follow(service: Service, task_id: str, seconds: float) -> Iterator[Piece]:
    """Yield what a task says, and last ``end`` with its record, or without one when time is up."""
    until = time.monotonic() + seconds
    heard: Queue[Event | BaseException] = Queue(1000)
    reader = gevent.spawn(_read, service, task_id, heard)
    gathered = Gathered()
    try:
        while (left := until - time.monotonic()) > 0:
            try:
                said = heard.get(timeout=min(left, GATHER if gathered.text else KEEP_ALIVE))
            except Empty:
                yield gathered.take() or Piece("alive")
                continue
            if isinstance(said, BaseException):
                raise said
            if said is COMMENT:
                yield Piece("alive")
            elif said.name == "done":
                yield from gathered.rest()
                yield Piece("end", record=_json(said))
                return
            else:
                yield from gathered.add(said)
        yield from gathered.rest()
        yield Piece("end")
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
        except AsyncNodesUnavailable:
            pass  # the task goes on without us; the time that is left bounds this
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it
            heard.put(error)
            return
        time.sleep(pause)
        pause = min(pause * 2, 5.0)


class Gathered:
    """Put pieces of text together, attempt by attempt."""

    def __init__(self) -> None:
        self.text = ""
        self._attempt = 0

    def add(self, event: Event) -> Iterator[Piece]:
        """Take an event in; yield what must not wait."""
        said = _json(event)
        if event.name == "chunk" and isinstance(said.get("text"), str):
            attempt = int(said.get("attempt") or 0)
            if self._attempt and attempt > self._attempt:
                self.text += "\n\n"  # what was streamed cannot be taken back; it begins again
            self._attempt = max(self._attempt, attempt)
            self.text += said["text"]
        elif event.name == "progress":
            yield Piece("progress", progress_line(said))
        elif event.name == "state" and said.get("state"):
            yield Piece("progress", state_line(said))

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
    found = json.loads(event.data)
    return found if isinstance(found, dict) else {}
