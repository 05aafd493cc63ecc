"""Celery's consumer with shorter pauses and quieter words while the broker is away.

A message that nobody can read ends it no more: whoever can write into a list could otherwise end
every worker that kombu brings messages to.
"""

from __future__ import annotations

import functools
import logging
import warnings
from typing import Any

from celery.exceptions import CPendingDeprecationWarning
from celery.worker.consumer import Consumer as CelerysConsumer

_log = logging.getLogger(__name__)

PAUSE_STEP, PAUSE_MOST = 1.0, 3.0
"""Seconds between two tries to reach the broker; Celery's pauses grow to 30."""


LISTEN_MOST = 0.5
"""Seconds for which a loop of greenlets waits for messages before it sees that it is to stop."""


class Consumer(CelerysConsumer):
    """Come back soon after an outage, and stop soon."""

    def connect(self) -> Any:
        """Connect to the broker."""
        connection = super().connect()
        if self.hub is None:
            connection.drain_events = functools.partial(_drain, connection.drain_events)
        return connection

    def ensure_connected(self, conn: Any) -> Any:
        """Wait until the broker answers."""
        # Private to kombu: a contract test holds it to the version that is installed.
        channel = conn.transport.Channel
        if hasattr(channel, "_brpop_read") and not hasattr(channel, "drops_the_unreadable"):
            conn.transport.Channel = _readable(channel)
        conn.ensure_connection = functools.partial(
            conn.ensure_connection,
            interval_start=PAUSE_STEP,
            interval_step=PAUSE_STEP,
            interval_max=PAUSE_MOST,
        )
        return super().ensure_connected(conn)

    def on_connection_error_after_connected(self, exc: BaseException) -> None:
        """Clean up after a lost connection."""
        with warnings.catch_warnings():
            # Of a default that we have set: leases decide about tasks, not the connection.
            warnings.simplefilter("ignore", CPendingDeprecationWarning)
            super().on_connection_error_after_connected(exc)


@functools.cache
def _readable(channel: type[Any]) -> type[Any]:
    """Return kombu's channel, but for messages that cannot be read: they are dropped."""

    class Readable(channel):
        drops_the_unreadable = True

        def _brpop_read(self, **options: Any) -> Any:
            try:
                return super()._brpop_read(**options)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                _log.warning(
                    "A message that cannot be read is dropped: %s: %s",
                    type(error).__name__,
                    error,
                    extra={"action": "message_unreadable"},
                )
                return True

    return Readable


def _drain(drain_events: Any, timeout: float | None = None, **kwargs: Any) -> Any:
    return drain_events(timeout=min(timeout or LISTEN_MOST, LISTEN_MOST), **kwargs)
