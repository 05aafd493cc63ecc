"""Wait for a task to become what a request waits for (part of the step *expose*).

Looks into the store when the task's channel says that something changed; where there is no
channel, now and then. Never longer than it was given.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING

import gevent

from async_nodes.access.streams.events import CONFIRM_SECONDS, Events, Reader
from async_nodes.access.streams.subscription import CLOSED, Message
from async_nodes.storage.redis_errors import StoreUnavailable

if TYPE_CHECKING:
    from async_nodes.storage.layout import Document
    from async_nodes.storage.redis_store import RedisStore

POLL_SECONDS = 0.5
"""Between two looks while the channel cannot be read."""

_SIGNIFICANT = frozenset({"state", "progress", "done"})  # a chunk leaves the record as it is


def wait_for(
    hub: Events,
    store: RedisStore,
    task_id: str,
    *,
    seconds: float,
    until: Callable[[Document], bool],
) -> Document | None:
    """Return a task as soon as it passes a test, or as it is when the time is up.

    Args:
        hub: tells when to look.
        store: where to look.
        task_id: the task.
        seconds: how long at most; the last look may take the store's own time-out.
        until: the test.

    Returns:
        The task as last read, None when it is gone. When the server stops, at once.

    Raises:
        StoreUnavailable: it could not be read a single time.

    """
    deadline = monotonic() + seconds
    with ExitStack() as stack:
        subscription = _subscribed(hub, task_id, min(seconds, CONFIRM_SECONDS))
        if subscription is not None:
            stack.enter_context(subscription)
        document = store.read(task_id)
        while document is not None and not until(document) and monotonic() < deadline:
            if subscription is not None and not _changed(subscription, deadline):
                subscription = None
            if subscription is None:
                if hub.closed:
                    break
                gevent.sleep(max(min(POLL_SECONDS, deadline - monotonic()), 0.0))
            try:
                document = store.read(task_id)
            except StoreUnavailable:
                subscription = None  # the task as last read is an answer too
        return document


def _subscribed(hub: Events, task_id: str, timeout: float) -> Reader | None:
    if timeout <= 0:
        return None
    try:
        return hub.subscribe(task_id, timeout=timeout)
    except StoreUnavailable:
        return None


def _changed(subscription: Reader, deadline: float) -> bool:
    """Wait until the record may have changed or the time is up; false when nobody will tell."""
    significant = False
    while not significant and (rest := deadline - monotonic()) > 0:
        item = subscription.get(rest)
        while item is not None:  # whatever has gathered is answered by one look
            if item is CLOSED:
                return False
            significant |= not isinstance(item, Message) or item.type in _SIGNIFICANT
            item = subscription.get(0)
    return True
