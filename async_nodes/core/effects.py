"""Effects as data: what a transition asks the shell to do, carried out by one handler table."""

from __future__ import annotations

from enum import StrEnum


class Effect(StrEnum):
    """Ask the shell for something.

    All but COMPENSATE are carried out inside the store's script, in the same transaction as the
    change of state; COMPENSATE runs the node's own clean-up in a worker.
    """

    PERSIST = "persist"
    PUBLISH = "publish"
    DISPATCH = "dispatch"
    TIMER = "timer"
    COMPENSATE = "compensate"
    DEAD_LETTER = "dead_letter"
