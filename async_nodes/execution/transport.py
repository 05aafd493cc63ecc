"""Which way an I/O worker takes its messages: the fast one only beside a kombu that it knows.

The fast transport reads and puts back messages in the spelling of one kombu. Beside another the
worker goes the stock way, which asks kombu for everything.
"""

from __future__ import annotations

import logging
import re
from importlib.metadata import version
from typing import Final

_log = logging.getLogger(__name__)

KNOWN: Final = ((5, 7), (5, 8))
"""The first kombu that the fast transport is tested with, and the first that it is not."""


def transport(wanted: str, kombu: str | None = None) -> str:
    """Return ``fast`` or ``stock``: what was wanted, as far as the installed kombu allows it.

    Args:
        wanted: the setting.
        kombu: its version; that of the installed one when None.

    """
    found = version("kombu") if kombu is None else kombu
    if wanted != "fast" or _is_known(found):
        return wanted
    _log.warning(
        "Messages are taken the stock way: the fast transport is not tested with kombu %s, but"
        " from %d.%d to before %d.%d",
        found,
        *KNOWN[0],
        *KNOWN[1],
        extra={"action": "transport_fallback", "kombu": found},
    )
    return "stock"


def _is_known(kombu: str) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", kombu)
    return numbers is not None and KNOWN[0] <= (int(numbers[1]), int(numbers[2])) < KNOWN[1]
