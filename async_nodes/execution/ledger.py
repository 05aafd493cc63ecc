"""kombu's ledger of popped messages, made to survive the end of its connection.

kombu 5.7 tries to put unacknowledged messages back through a connection that is closed already,
stumbles over its own missing pieces, and takes the worker with it. Nothing has to be put back in
that case: leases recover what was running, the sweep what was waiting.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis, virtual


class Ledger(redis.QoS):
    """Forget messages quietly when their connection is gone."""

    @property
    def is_cut(self) -> bool:
        """Tell whether the connection these messages came by is closed."""
        transport = self.channel.connection
        return transport is None or transport.client is None

    def restore_unacked(self, client: Any = None) -> Any:
        """Put back what was not acknowledged, where that is possible."""
        if self.is_cut:
            self._delivered.clear()
            return None
        return super().restore_unacked(client)  # type: ignore[no-untyped-call]

    def ack(self, delivery_tag: str) -> None:
        """Take a message out of the ledger; `tidy` does it for those that stay."""
        if self.is_cut:
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().ack(delivery_tag)  # type: ignore[no-untyped-call]

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002
        """Put a message back, or take it out."""
        if self.is_cut:
            virtual.QoS.ack(self, delivery_tag)
        else:
            super().reject(delivery_tag, requeue=requeue)  # type: ignore[no-untyped-call]


def install() -> None:
    """Let kombu's Redis channels of this process use this ledger."""
    redis.Channel.QoS = Ledger
