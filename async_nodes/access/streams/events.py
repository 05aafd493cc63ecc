"""The events of tasks as those who follow them see them, whichever hub brings them (*expose*)."""

from __future__ import annotations

from typing import Protocol, Self

from async_nodes.access.streams.subscription import Message, Signal

CONFIRM_SECONDS = 1.0
"""How long a new reader waits for the server to confirm its channel."""


class Reader(Protocol):
    """Read one channel; a context manager, leaving it is what frees it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def get(self, timeout: float) -> Message | Signal | None:
        """Return the next message or signal, None when none came within `timeout` seconds."""

    def close(self) -> None:
        """Leave; twice does no harm."""


class Events(Protocol):
    """Give readers of channels."""

    @property
    def subscribers(self) -> int:
        """Return how many readers there are in this process."""

    @property
    def closed(self) -> bool:
        """Tell whether the process is about to end."""

    def close(self) -> None:
        """End every reader, for good."""

    def subscribe(self, task_id: str, *, timeout: float = CONFIRM_SECONDS) -> Reader:
        """Return a reader of a task's events that will miss none from now on.

        Raises:
            StoreUnavailable: the server does not confirm it.

        """

    def listen(self, name: str, *, timeout: float = CONFIRM_SECONDS) -> Reader:
        """Return a reader of a channel that `storage.keys` spells; as `subscribe`."""
