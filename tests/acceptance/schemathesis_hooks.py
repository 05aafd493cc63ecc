"""What schemathesis is told beside the document; loaded by it, in its own environment.

Two rules of the interface are about more than one request, so that no schema can say them: the
same idempotency key with another body is refused, and a wait takes the time that it asks for.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import schemathesis

KEY = "Idempotency-Key"
ROOM = 200
"""Characters of a key that may still be made longer; longer ones do not come twice."""

LONGEST_WAIT = 0.05
_numbers = itertools.count(1)
_prefer = re.compile(r"(?<=wait=)[0-9]{1,9}", re.ASCII)


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Make a valid key one that was not used before, and a valid wait a short one."""
    headers, query = case.headers or {}, case.query or {}
    key = headers.get(KEY)
    if isinstance(key, str) and 0 < len(key) < ROOM:
        opening = '"' if key.startswith('"') else ""
        headers[KEY] = f"{opening}{next(_numbers)}{key[len(opening) :]}"
    if isinstance(headers.get("Prefer"), str):
        headers["Prefer"] = _prefer.sub("0", headers["Prefer"])
    wait = query.get("wait")
    if isinstance(wait, int | float) and not isinstance(wait, bool) and math.isfinite(wait):
        query["wait"] = min(wait, LONGEST_WAIT)
