"""Step 1, submit: the files that a task's inputs name. They have to be there, and to stay.

Asks the store only for nodes that take files. Knows nothing of HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from async_nodes.core.retry import RetryPolicy
from async_nodes.dispatch.request import Faults, SubmitRequest

if TYPE_CHECKING:
    from async_nodes.core.files import Files
    from async_nodes.nodes.files import File

QUEUED_SECONDS: Final = 86_400.0
"""How long a task without a deadline may wait in a queue, as far as its files are concerned; each
attempt that starts keeps them for longer."""


def keep_files(
    request: SubmitRequest, files: Files, *, now_ms: int, default_timeout_ms: int
) -> None:
    """See to it that a task finds its files, at its start and for as long as its record is kept.

    Args:
        request: of a node that takes files.
        files: the tenant's.
        now_ms: the time of the request.
        default_timeout_ms: of nodes that say nothing.

    Raises:
        AsyncNodesError: ``invalid_inputs`` with the place of each file that is not there.
        StoreUnavailable: the store does not answer.

    """
    found: list[File] = []
    request.spec.validate(request.inputs, found)
    ids = list(dict.fromkeys(file.file_id for file in found))
    if not ids:
        return
    life = life_of(request, now_ms=now_ms, default_timeout_ms=default_timeout_ms)
    known = files.known(ids, seconds=life)
    missing = frozenset(it for it, info in zip(ids, known, strict=True) if info is None)
    if missing:
        faults = Faults()
        faults.check_inputs(request.spec, request.inputs, missing)
        faults.raise_any()


def life_of(request: SubmitRequest, *, now_ms: int, default_timeout_ms: int) -> float:
    """Return how many seconds from now a task may need its files, its kept record included."""
    spec = request.spec
    if request.deadline_ms:
        until_end = (request.deadline_ms - now_ms) / 1000
    else:
        timeout = (request.timeout_ms or default_timeout_ms) / 1000
        if request.timeout_ms is None and spec.timeout is not None:
            timeout = spec.timeout
        policy = request.retry or spec.retry or RetryPolicy()
        until_end = request.delay_ms / 1000 + QUEUED_SECONDS + timeout * policy.max_attempts
    return until_end + request.ttl_ms / 1000
