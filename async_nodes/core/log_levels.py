"""The levels of a task's log lines: their names on the wire, and how severe each is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """Return the name of a level as in `logging`, the next lower one's for those in between."""
    names = [name for name, least in LEVELS.items() if level >= least]
    return names[-1] if names else "debug"
