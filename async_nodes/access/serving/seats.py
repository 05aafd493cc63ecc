"""Step 5, expose: which of several web processes are there to accept connections.

Works in plain processes and in those patched by gevent.
"""

from __future__ import annotations

import mmap
from typing import Final

_EMPTY: Final = 0
_TAKEN: Final = 1


class Seats:
    """Hold a byte for each process, in memory that they all have mapped.

    Args:
        descriptor: a file of as many bytes.
        processes: how many there are.

    """

    def __init__(self, descriptor: int, processes: int) -> None:
        self._memory = mmap.mmap(descriptor, processes)

    def take(self, number: int) -> None:
        """Write that a process accepts connections."""
        self._memory[number] = _TAKEN

    def empty(self, number: int) -> None:
        """Write that a process is gone."""
        self._memory[number] = _EMPTY

    def is_empty(self, number: int) -> bool:
        """Tell whether nobody accepts what comes to a process's listener."""
        return self._memory[number] == _EMPTY
