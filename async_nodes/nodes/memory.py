"""Step 3, execute: a bound on the memory that a block may take, in a process of its own.

For the CPU pool, whose processes run one body at a time: the bound is the whole process's.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

_PAGES = Path("/proc/self/statm")


@contextlib.contextmanager
def memory_limit(more: int) -> Iterator[None]:
    """Let the block take at most so many further bytes of address space; Linux only.

    Past that, what asks for memory gets a `MemoryError`. Elsewhere the block is not bounded.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    soft, hard = before
    now = int(_PAGES.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    wanted = now + more
    if soft != resource.RLIM_INFINITY:
        wanted = min(wanted, soft)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
