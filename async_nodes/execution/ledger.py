"""kombu's ledger of popped messages, made to survive what happens to Redis.

kombu 5.7 tries to put unacknowledged messages back through a connection that is closed already,
and writes to its ledger when Redis is full; it stumbles over either and takes the worker with it.
Nothing depends on the ledger: leases recover what was running, the sweep what was waiting, and
`tidy` clears what stays in here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kombu.transport import redis, virtual
from redis.exceptions import ResponseError


class Ledger(redis.QoS):
    """Keep kombu's books where that is possible, and be quiet where it is not."""

    @property
    def is_cut(self) -> bool:
        """Tell whether the connection these messages came by is closed."""
        transport = self.channel.connection
        return transport is None or transport.client is None

    def append(self, message: Any, delivery_tag: str) -> None:
        """Write down a message that was popped."""
        try:
            redis.QoS.append(self, message, delivery_tag)
        except ResponseError:  # out of memory
            virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        """Cross a message out."""
        try:
            if not self.is_cut:
                redis.QoS.ack(self, delivery_tag)
                return
        except ResponseError:  # a full server refuses every transaction, this one too
            pass
        virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002
        """Put a message back, or cross it out."""
        try:
            if not self.is_cut:
                redis.QoS.reject(self, delivery_tag, requeue=requeue)
                return
        except ResponseError:
            pass
        virtual.QoS.ack(self, delivery_tag)

    def restore_unacked(self, client: Any = None) -> None:
        """Put back what was not acknowledged, at the end of a connection."""
        try:
            if not self.is_cut:
                redis.QoS.restore_unacked(self, client)
        except ResponseError:
            pass
        self._delivered.clear()

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Put nothing back because of its age: a lease tells better."""


class SharedLedger(Ledger):
    """Keep the books for a host's messages too, which are put back by their age as they were.

    One of ours that is put back so finds a record that has moved on, and is refused.
    """

    def restore_visible(self, *args: Any, **kwargs: Any) -> None:
        """Put back what is older than the host's visibility time-out."""
        with suppress(ResponseError):
            redis.QoS.restore_visible(self, *args, **kwargs)


def install(*, shared: bool = False) -> None:
    """Let kombu's Redis channels of this process use this ledger.

    Args:
        shared: whether messages that are not ours go through the same channels.

    """
    redis.Channel.QoS = SharedLedger if shared else Ledger
