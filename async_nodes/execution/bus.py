"""The event bus: observers of what happens to tasks, by node and type of event.

Part of the step *execute*. Observers look on: what they raise is logged and never reaches the
work, and nothing of a task's fate may hang on them (effects are for that, see `core.effects`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

Listener = Callable[[str, str, Any], None]
"""Called with the node's id, the type of the event and the event."""

_Key = tuple[str | None, str | None]


class EventBus:
    """Pass events on to whoever asked for them, in the publisher's own greenlet or thread."""

    def __init__(self) -> None:
        # Replaced as a whole and never changed, so that `publish` needs no lock and a listener
        # may subscribe or unsubscribe while it is called.
        self._listeners: dict[_Key, tuple[tuple[object, Listener], ...]] = {}
        self._lock = threading.Lock()

    def subscribe(
        self, node_id: str | None, event_type: str | None, listener: Listener
    ) -> Callable[[], None]:
        """Have a listener called for the events of a node and type; None stands for all.

        Returns:
            A function that ends the subscription; calling it again does nothing.

        """
        key, ticket = (node_id, event_type), object()
        with self._lock:
            now = (*self._listeners.get(key, ()), (ticket, listener))
            self._listeners = {**self._listeners, key: now}
        return lambda: self._unsubscribe(key, ticket)

    def publish(self, node_id: str, event_type: str, event: object) -> None:
        """Tell everybody who asked: first by node and type, then by node, by type, of all."""
        listeners = self._listeners
        if not listeners:
            return
        for key in ((node_id, event_type), (node_id, None), (None, event_type), (None, None)):
            for _, listener in listeners.get(key, ()):
                try:
                    listener(node_id, event_type, event)
                except Exception:
                    # An observer's fault is its own; the work goes on.
                    log.exception(
                        "An observer of %s of %s failed",
                        event_type,
                        node_id,
                        extra={"action": "observer_failed", "node": node_id, "event": event_type},
                    )

    def _unsubscribe(self, key: _Key, ticket: object) -> None:
        with self._lock:
            left = tuple(entry for entry in self._listeners.get(key, ()) if entry[0] is not ticket)
            listeners = {**self._listeners, key: left}
            if not left:
                del listeners[key]
            self._listeners = listeners


BUS = EventBus()
"""The bus of this process: modules that define nodes subscribe to it when they are imported."""
