"""The usual life of a task, put together outside the server (part of the step *store*).

Most tasks wait for nothing, have no deadline, are popped once, and succeed at the first attempt
without a word in between. Of such a life everything but the moments is known to whoever asks for
the next change, so the bytes are composed here, and the scripts `accept`, `take` and `complete`
only see that nothing unusual has happened, put the moment in, and write. That takes a third of
what deciding on every column takes the server, and a sixth where a call has a single row.

Whatever is unusual they leave to the scripts that decide on everything, `submit` and `finish`;
a test holds both ways to the same bytes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from async_nodes.core.contracts import iso
from async_nodes.core.machine import TABLE
from async_nodes.core.ports import NULL, Claim, Submission
from async_nodes.core.priority import LISTS
from async_nodes.core.states import EventType, NodeState
from async_nodes.storage.layout import (
    AT,
    CONTROL_SIZE,
    HEAD_WIDTH,
    INLINE_OUTPUT,
    SCHEMA,
    STATES,
    control,
    text,
)

if TYPE_CHECKING:
    from async_nodes.core.ports import Ending

USUAL_DISPATCHES: Final = 10
WINDOW: Final = 544
"""Bytes of a record that `take` reads at once: the usual private part ends before. No more than is
needed, because the server hashes every byte that becomes a string of a script."""

OPEN_END: Final = b'"attempts":[],"progress":null,"error":null,"usage":null,"output":null}'
_LISTED: Final = len('"attempts":[')

_RUNNING: Final = TABLE[NodeState.PENDING, EventType.START].target
_SUCCEEDED: Final = TABLE[NodeState.RUNNING, EventType.COMPLETE].target

# The document's head. A moment stands where a piece ends.
HEAD_START: Final = '{"task_id":"'
_PENDING: Final = (
    f'","state":"{NodeState.PENDING}","reason":null,"version":1,"attempt":0,"losses":0,'
    '"created_at":'
)
STARTED: Final = f'{_RUNNING}","reason":null,"version":2,"attempt":1,"losses":0,"created_at":'
_ENDED: Final = f'{_SUCCEEDED}","reason":null,"version":3,"attempt":1,"losses":0,"created_at":'
NOT_ENDED: Final = ',"finished_at":null,"next_attempt_at":null,"expires_at":null,"output_bytes":0,'
EXPIRES: Final = ',"next_attempt_at":null,"expires_at":'
_ID_LENGTH: Final = 28
MOMENT: Final = len('"2026-12-01T00:00:00.000Z"')
STATE_AT: Final = len(HEAD_START) + _ID_LENGTH + len('","state":"')
"""Where the state's name begins in the head."""

CREATED_AT: Final = len(HEAD_START) + _ID_LENGTH + len(_PENDING)
"""Where the time of creation begins in the head of a task that has not been started."""


def _first(**columns: Any) -> tuple[bytes, ...]:
    """Return, by list, the columns up to the time-out."""
    return tuple(
        control(schema=SCHEMA, list=index, **columns)[: AT["timeout"]]
        for index in range(len(LISTS))
    )


FRESH: Final = _first(
    state=STATES.index(NodeState.PENDING), queued=1, version=1, dispatch=1, queued_version=1,
    max_dispatches=USUAL_DISPATCHES,
)  # fmt: skip
"""How the record of a task begins that was accepted and dispatched, and nothing since."""

CLAIMED: Final = _first(
    state=STATES.index(_RUNNING), version=2, attempt=1, spent=1, dispatch=1, queued_version=1,
    started_version=2, max_dispatches=USUAL_DISPATCHES,
)  # fmt: skip
"""How it begins once it is claimed, and nothing since."""

_DONE: Final = _first(
    state=STATES.index(_SUCCEEDED), version=3, attempt=1, spent=1, dispatch=1, queued_version=1,
    started_version=2, max_dispatches=USUAL_DISPATCHES,
)  # fmt: skip

_NUMBER: Final = struct.Struct("<I")
_TWO_NUMBERS: Final = struct.Struct("<2I")
_TIME: Final = struct.Struct("<d")
_TWO_TIMES: Final = struct.Struct("<2d")
_PLACES: Final = struct.Struct("<5I")
_TIMES: Final = struct.Struct("<I2d")

_BEFORE_TTL: Final = bytes(AT["ttl"] - AT["started_at"])
_BEFORE_PLACES: Final = bytes(AT["json_at"] - AT["output_bytes"])
_UNCLAIMED: Final = b" " * (AT["idempotency"] - AT["fence"])
_LAST: Final = bytes(CONTROL_SIZE - AT["apart"])
_STREAM: Final = bytes(AT["json_at"] - AT["stream_bytes"])


# -- submit ----------------------------------------------------------------------------------------


def is_plain(submission: Submission) -> bool:
    """Tell whether a task asks for nothing unusual."""
    return (
        not submission.delay_ms
        and not submission.deadline_ms
        and submission.max_dispatches == USUAL_DISPATCHES
    )


def accept_row(submission: Submission) -> tuple[Any, ...]:
    """Return a task as `accept` takes it: its record in three pieces with moments in between."""
    list_index = LISTS.index(submission.list_name)
    private, tail, tenant = submission.private, submission.tail, submission.tenant
    json_at = CONTROL_SIZE + len(private)
    attempts_end = json_at + HEAD_WIDTH + len(tail) + _LISTED
    places = _PLACES.pack(
        json_at,
        json_at + HEAD_WIDTH + submission.inputs_at,
        submission.inputs_len,
        attempts_end,
        attempts_end + len(OPEN_END) - _LISTED,
    )
    key = submission.idempotency
    middle = (
        _BEFORE_TTL, _TIME.pack(submission.ttl_ms), _BEFORE_PLACES, places, _UNCLAIMED,
        key.ljust(32).encode(), tenant.ljust(32).encode(), _LAST, private,
        HEAD_START.encode(), submission.task_id.encode(), _PENDING_BYTES,
    )  # fmt: skip
    return (
        submission.task_id,
        list_index,
        submission.timeout_ms,
        tenant,
        f"{tenant}:{key}" if key else "",
        submission.fingerprint,
        FRESH[list_index] + _NUMBER.pack(submission.timeout_ms),
        b"".join(middle),
        b"".join((_NOT_STARTED, tail, OPEN_END)),
    )


def _head_end(start: str, pieces: str, *, moments: int) -> bytes:
    """Return the last piece of a head, filled up to the width that all heads have."""
    so_far = len(HEAD_START) + _ID_LENGTH + len(start) + moments * MOMENT
    return pieces.ljust(HEAD_WIDTH - so_far).encode()


_PENDING_BYTES: Final = _PENDING.encode()
_NOT_STARTED: Final = _head_end(_PENDING, f',"started_at":null{NOT_ENDED}', moments=1)


# -- take ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Origin:
    """Hold what a plain end needs of a plain start: the record as it was, and when it was left."""

    raw: bytes
    worker: str
    started_ms: int
    started: bytes


def claim_of(
    raw: bytes, inputs: bytes, fence: str, worker: str, started_ms: int, started: bytes
) -> Claim:
    """Return the right to run that `take` gave.

    Args:
        raw: the beginning of the record as it was before, up to the time of creation or further.
        inputs: the inputs as they stand in the record, empty if `raw` has them in its private part.
        fence: the claim's.
        worker: whose it is.
        started_ms: when it was given.
        started: the same as JSON.

    """
    timeout, created, queued = _TIMES.unpack_from(raw, AT["timeout"])
    (json_at,) = _NUMBER.unpack_from(raw, AT["json_at"])
    id_at = json_at + len(HEAD_START)
    return Claim(
        raw[id_at : id_at + _ID_LENGTH].decode(),
        fence,
        version=2,
        attempt=1,
        spent=1,
        losses=0,
        deaths=0,
        queued_ms=int(queued),
        started_ms=started_ms,
        first_started_ms=started_ms,
        deadline_ms=0,
        timeout_ms=timeout,
        created_ms=int(created),
        tenant=text(raw[AT["tenant"] : AT["tenant"] + 32]),
        private=raw[CONTROL_SIZE:json_at],
        inputs=inputs,
        list_name=LISTS[raw[AT["list"]]],
        origin=Origin(raw, worker, started_ms, started),
    )


def moment(ms: int) -> bytes:
    """Return a time as it stands in the document."""
    return f'"{iso(ms)}"'.encode()


# -- finish ----------------------------------------------------------------------------------------


def is_plain_end(ending: Ending) -> bool:
    """Tell whether an attempt has ended without anything unusual."""
    return (
        ending.event is EventType.COMPLETE
        and ending.usage == NULL
        and ending.progress == NULL
        and len(ending.output) <= INLINE_OUTPUT
    )


def complete_row(origin: Origin, fence: str, output: bytes) -> tuple[Any, ...]:
    """Return an end as `complete` takes it: what is to be written, with moments in between."""
    raw = origin.raw
    json_at, _, _, attempts_end, _ = _PLACES.unpack_from(raw, AT["json_at"])
    list_index = raw[AT["list"]]
    id_at = json_at + len(HEAD_START)
    created_at = json_at + CREATED_AT
    created = raw[created_at : created_at + MOMENT]
    entry = b"".join(
        (b'{"attempt":1,"queued_at":', created, b',"started_at":', origin.started, _FINISHED_AT)
    )
    rest = b"".join((_ENTRY_END, _PAYLOADS, output, b"}"))
    size = 0 if output == NULL else len(output)
    ttl = raw[AT["ttl"] : AT["ttl"] + 8]
    key = raw[AT["idempotency"] : AT["tenant"]]
    tenant = text(raw[AT["tenant"] : AT["apart"]])
    replay = f"{tenant}:{key.decode()}" if key[0] != _BLANK else ""
    attempts_at = attempts_end + len(entry) + MOMENT
    second = (
        ttl, _NUMBER.pack(size), _STREAM, raw[AT["json_at"] : AT["attempts_end"]],
        _TWO_NUMBERS.pack(attempts_at + len(_ENTRY_END), attempts_at + len(rest)),
        fence.encode(), origin.worker.ljust(40).encode(),
        raw[AT["idempotency"] : id_at + _ID_LENGTH], _ENDED_BYTES, created,
        b',"started_at":', origin.started, _FINISHED_AT,
    )  # fmt: skip
    return (
        raw[id_at : id_at + _ID_LENGTH],
        fence,
        CLAIMED[list_index],
        replay,
        origin.worker,
        int(_TIME.unpack(ttl)[0]),
        attempts_end,
        b"".join(
            (
                _DONE[list_index],
                raw[AT["timeout"] : AT["started_at"]],
                _TWO_TIMES.pack(origin.started_ms, origin.started_ms),
            )
        ),
        b"".join(second),
        _SIZES.get(size) or _size_of(size),
        entry,
        rest,
    )


_BLANK: Final = ord(" ")
_FINISHED_AT: Final = b',"finished_at":'
_ENTRY_END: Final = b',"outcome":"succeeded","error":null,"versions":[1,2,3]}'
_PAYLOADS: Final = b'],"progress":null,"error":null,"usage":null,"output":'
_ENDED_BYTES: Final = f'","state":"{_ENDED}'.encode()
_FOUR_MOMENTS: Final = f'","state":"{_ENDED},"started_at":,"finished_at":{EXPIRES}'


def _size_of(size: int) -> bytes:
    """Return the end of an ended task's head."""
    return _head_end(_FOUR_MOMENTS, f',"output_bytes":{size},', moments=4)


_SIZES: Final = {size: _size_of(size) for size in range(256)}
