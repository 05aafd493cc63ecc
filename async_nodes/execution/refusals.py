"""Attempts that a breaker refused do not count against a task's retry policy: nothing was tried.

A policy of a single attempt stays what it is, an answer at once; and a task is refused so often at
most, should nobody ever mend what is behind the breaker.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Callable

    from async_nodes.core.ports import Claim
    from async_nodes.core.retry import RetryPolicy

CODE: Final = "breaker_open"
MOST: Final = 50
"""Refusals of one task: at the usual 30 s, for half an hour."""


def without(
    claim: Claim, error: BaseException, policy: RetryPolicy, *, read: Callable[[str], Any]
) -> Claim:
    """Return a claim whose `spent` counts what was tried, for the decision about another attempt.

    Args:
        claim: the attempt that has failed.
        error: what it failed with.
        policy: the task's retry policy.
        read: returns a task's record from the store. It is asked only where the answer matters.

    """
    is_refused = isinstance(error, AsyncNodesError) and error.code == CODE
    if claim.spent <= 1 or not (is_refused or claim.spent >= policy.max_attempts):
        return claim
    try:
        record = read(claim.task_id)
    except AsyncNodesError:
        return claim  # the stricter count
    before = 0 if record is None else _refused(record.json)
    if is_refused and before + 1 >= MOST:
        return claim
    return replace(claim, spent=max(claim.spent - before - is_refused, 1))


def _refused(document: bytes) -> int:
    attempts = json.loads(document).get("attempts", ())
    return sum((one.get("error") or {}).get("code") == CODE for one in attempts)
