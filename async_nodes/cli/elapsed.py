"""How long this process has existed, what it was before it became this program included."""

from __future__ import annotations

import os
import time
from pathlib import Path


def process_age() -> float | None:
    """Return seconds since the process began, None where the system does not tell (not Linux).

    ``./run`` becomes this program without a new process, so its set-up is part of the age.
    """
    try:
        # The name in parentheses may hold anything, so count from behind it: field 22 of proc(5).
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, ValueError, IndexError, AttributeError):
        return None
