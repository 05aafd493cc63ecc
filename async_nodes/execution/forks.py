"""What a fork inside a body must not do: go on as a second worker.

The child of a fork has copies of everything its parent has: the connections to Redis and, in an
I/O worker, every greenlet, which would pop messages and run bodies a second time whenever the
child waits for something. A child that has work of its own (``multiprocessing``) is to do that
work; one that returns from the body is to end there.
"""

from __future__ import annotations

import os

FORKED = 70  # EX_SOFTWARE


class one_process:  # noqa: N801 - reads as the statement it is
    """End a process that comes out of the block and is not the one that went in."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._pid:
            os._exit(FORKED)


def leave_greenlets_behind() -> None:
    """Give every fork of this process an event loop of its own, on which nobody waits."""
    os.register_at_fork(after_in_child=_take_new_hub)


def _take_new_hub() -> None:
    from gevent._hub_local import set_hub
    from gevent.hub import Hub

    set_hub(Hub(default=False))
