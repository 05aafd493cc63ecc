"""How a worker hears of cancels: one subscription per worker, and a look back after a gap."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import redis

from async_nodes.storage.redis_client import client

_log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
SILENT_POLLS = 5
"""After so many polls without a word the server is asked; after twice as many it counts as hung."""

_PAUSE_FIRST, _PAUSE_MOST = 0.05, 1.0


class CancelListener:
    """Call back for every cancel that concerns this worker.

    Runs in a `threading` thread, which is a greenlet in a process that gevent has patched.

    Args:
        url: the store, as `storage.redis_client` takes it.
        channel: the worker's control channel.
        on_cancel: called with task id and fence.
        on_gap: called after every (re)connection: words said meanwhile were missed.

    """

    def __init__(
        self,
        url: str,
        channel: str,
        *,
        on_cancel: Callable[[str, str], None],
        on_gap: Callable[[], None],
    ) -> None:
        self._url = url
        self._channel = channel
        self._on_cancel = on_cancel
        self._on_gap = on_gap
        self._stopping = False
        self._hearing = False
        self._thread = threading.Thread(target=self._run, name="cancels", daemon=True)

    def start(self) -> None:
        """Start listening."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening within a poll."""
        self._stopping = True

    def _run(self) -> None:
        pause = _PAUSE_FIRST
        while not self._stopping:
            self._hearing = False
            try:
                self._listen()
            except (redis.RedisError, OSError) as error:
                if self._hearing or pause == _PAUSE_FIRST:
                    pause = _PAUSE_FIRST
                    _log.warning(
                        "Cancels cannot be heard until Redis is back: %s",
                        error,
                        extra={"action": "cancels_deaf"},
                    )
                time.sleep(pause)
                pause = min(pause * 2, _PAUSE_MOST)

    def _listen(self) -> None:
        heard = client(self._url, timeout=5.0)
        with heard, heard.pubsub() as subscription:  # type: ignore[no-untyped-call]
            subscription.subscribe(self._channel)
            silent = 0
            while not self._stopping:
                message = subscription.get_message(timeout=POLL_SECONDS)
                silent = 0 if message is not None else silent + 1
                if message is None:
                    if silent == SILENT_POLLS:
                        subscription.ping()
                    elif silent > 2 * SILENT_POLLS:
                        raise redis.TimeoutError("the server is silent")
                    continue
                if message["type"] == "subscribe":
                    self._hearing = True
                    self._on_gap()
                elif message["type"] == "message":
                    self._heard(message["data"])

    def _heard(self, data: bytes) -> None:
        words = data.decode("ascii", "replace").split()
        if len(words) == 3 and words[0] == "cancel":  # noqa: PLR2004 - the message's three words
            self._on_cancel(words[1], words[2])
        else:
            _log.warning("Unknown word on the control channel", extra={"action": "control_unknown"})
