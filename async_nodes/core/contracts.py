"""The contract between the layers: one event envelope with four required fields.

The access layer turns a request into TASK_DISPATCH; the execution layer takes that in and gives
TASK_COMPLETED or TASK_FAILED out. Two spellings are read, one is written:

    {"event_type": "TASK_DISPATCH", "trace_id": …, "timeout_ms": …, "retry_policy": {…},
     "payload": {"task_id": …, "priority": …}, "deadline": …, "ack_timeout_ms": …,
     "max_dispatches": …}
    {"event": "TASK_DISPATCH", "payload": {"job_id": …, "priority": …},
     "meta": {"deadline": …, "ack_timeout_ms": …, "max_retries": …}}

The second is the specification's own sample, which leaves the trace, the time-out and the retry
policy to the reader. Its ``max_retries`` bounds how often an unacknowledged message is sent again
(acknowledged means claimed by a worker), not how often a failed node is tried again.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, cast

from async_nodes.core import priority
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy

ACK_TIMEOUT_MS = 5_000
MAX_DISPATCHES = 10
TIMEOUT_MS = 300_000
LONGEST_MS = 86_400_000

_TRACE = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ContractType(StrEnum):
    """Name what an envelope says."""

    DISPATCH = "TASK_DISPATCH"
    COMPLETED = "TASK_COMPLETED"
    FAILED = "TASK_FAILED"


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Ask for a task to be run; `priority` is 0 (most urgent) to 9."""

    task_id: str
    priority: int = priority.DEFAULT
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """Tell that a task succeeded, with its output, any JSON value."""

    task_id: str
    attempt: int = 1
    output: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Tell that a task failed, with the record's ``error`` object."""

    task_id: str
    error: Mapping[str, Any]
    attempt: int = 1


Payload = Dispatch | Completed | Failed
_PAYLOADS: Mapping[ContractType, type[Payload]] = {
    ContractType.DISPATCH: Dispatch,
    ContractType.COMPLETED: Completed,
    ContractType.FAILED: Failed,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Hold one contract event.

    Attributes:
        event_type, trace_id, timeout_ms, retry_policy: the four required fields; the time-out is
            that of one attempt, in milliseconds.
        payload: what the event is about.
        deadline_ms: milliseconds since 1970 by which all has to be over, 0 for never.
        ack_timeout_ms: how long a message may be out of its list and unclaimed.
        max_dispatches: how often it is sent again before the task fails.

    """

    event_type: ContractType
    trace_id: str
    timeout_ms: int
    retry_policy: RetryPolicy
    payload: Payload
    deadline_ms: int = 0
    ack_timeout_ms: int = ACK_TIMEOUT_MS
    max_dispatches: int = MAX_DISPATCHES

    def to_json(self) -> dict[str, Any]:
        """Return the envelope as a JSON object, in the one spelling that is written."""
        body = {field.name: getattr(self.payload, field.name) for field in fields(self.payload)}
        return {
            "event_type": self.event_type.value,
            "trace_id": self.trace_id,
            "timeout_ms": self.timeout_ms,
            "retry_policy": self.retry_policy.to_json(),
            "payload": {name: value for name, value in body.items() if name != "node" or value},
            "deadline": iso(self.deadline_ms) if self.deadline_ms else None,
            "ack_timeout_ms": self.ack_timeout_ms,
            "max_dispatches": self.max_dispatches,
        }

    def encode(self) -> bytes:
        """Return the envelope as compact UTF-8 JSON.

        Raises:
            AsyncNodesError: ``result_not_json``: the output or the error is not JSON.

        """
        try:
            text = json.dumps(
                self.to_json(), separators=(",", ":"), ensure_ascii=False, allow_nan=False
            )
        except (TypeError, ValueError) as error:
            raise AsyncNodesError("result_not_json", str(error)) from error
        return text.encode()


def decode(
    raw: bytes | str,
    *,
    new_trace_id: Callable[[], str] = lambda: secrets.token_hex(16),
    timeout_ms: int = TIMEOUT_MS,
) -> Envelope:
    """Return the envelope in either spelling.

    Args:
        raw: JSON text.
        new_trace_id: source of the trace id that the sample's spelling leaves out.
        timeout_ms: time-out of an attempt where that spelling names none.

    Raises:
        AsyncNodesError: ``not_json``; ``invalid_request`` with a pointer to the wrong field.

    """
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AsyncNodesError("not_json", f"an envelope is JSON: {error}") from error
    envelope = _object(value, "")
    if "event" in envelope:
        return _from_sample(envelope, new_trace_id, timeout_ms)
    return _from_own(envelope)


def iso(milliseconds: int) -> str:
    """Return milliseconds since 1970 as ISO 8601 in UTC, such as ``2024-06-15T14:22:00.000Z``."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def epoch_ms(text: object, pointer: str, *, round_up: bool = False) -> int:
    """Return an ISO 8601 time with a zone as milliseconds since 1970.

    A part of a millisecond is left out, or with `round_up` counted as a whole one.

    Raises:
        AsyncNodesError: ``invalid_request`` at `pointer`.

    """
    try:
        moment = datetime.fromisoformat(cast("str", text))
    except (TypeError, ValueError):
        raise _invalid(pointer, f"must be an ISO 8601 time, not {text!r}") from None
    if moment.tzinfo is None:
        raise _invalid(pointer, f"must name its zone (Z or +08:00); {text!r} does not")
    elapsed = moment - _EPOCH
    milliseconds = (elapsed.microseconds + 999 * round_up) // 1000
    return (elapsed.days * 86_400 + elapsed.seconds) * 1000 + milliseconds


# -- the two spellings -----------------------------------------------------------------------------

_OWN = frozenset(field.name for field in fields(Envelope)) - {"deadline_ms"} | {"deadline"}
_REQUIRED = ("event_type", "trace_id", "timeout_ms", "retry_policy")


def _from_own(value: Mapping[str, Any]) -> Envelope:
    _refuse_unknown(value, _OWN, "")
    for name in (*_REQUIRED, "payload"):
        if name not in value:
            raise _invalid(f"/{name}", "is required")
    kind = _kind(value["event_type"], "/event_type")
    deadline = value.get("deadline")
    return Envelope(
        event_type=kind,
        trace_id=_trace_id(value["trace_id"]),
        timeout_ms=_number(value["timeout_ms"], "/timeout_ms", 1),
        retry_policy=_policy(value["retry_policy"]),
        payload=_payload(kind, _object(value["payload"], "/payload")),
        deadline_ms=0 if deadline is None else epoch_ms(deadline, "/deadline"),
        ack_timeout_ms=_number(value.get("ack_timeout_ms", ACK_TIMEOUT_MS), "/ack_timeout_ms", 1),
        max_dispatches=_number(value.get("max_dispatches", MAX_DISPATCHES), "/max_dispatches"),
    )


def _from_sample(
    value: Mapping[str, Any], new_trace_id: Callable[[], str], timeout_ms: int
) -> Envelope:
    _refuse_unknown(value, {"event", "payload", "meta"}, "")
    kind = _kind(value["event"], "/event")
    payload = dict(_object(value.get("payload"), "/payload"))
    if "job_id" in payload:
        payload.setdefault("task_id", payload.pop("job_id"))
    meta = _object(value.get("meta", {}), "/meta")
    known = {"deadline", "ack_timeout_ms", "max_retries", *_REQUIRED[1:]}
    _refuse_unknown(meta, known, "/meta")
    return _from_own(
        {
            "event_type": kind.value,
            "trace_id": meta.get("trace_id") or new_trace_id(),
            "timeout_ms": meta.get("timeout_ms", timeout_ms),
            "retry_policy": meta.get("retry_policy", {}),
            "payload": payload,
            "deadline": meta.get("deadline"),
            "ack_timeout_ms": meta.get("ack_timeout_ms", ACK_TIMEOUT_MS),
            "max_dispatches": meta.get("max_retries", MAX_DISPATCHES),
        }
    )


# -- the fields ------------------------------------------------------------------------------------


def _kind(value: object, pointer: str) -> ContractType:
    try:
        return ContractType(cast("str", value))
    except ValueError:
        raise _invalid(pointer, f"must be {', '.join(ContractType)}, not {value!r}") from None


def _trace_id(value: object) -> str:
    if not isinstance(value, str) or not _TRACE.fullmatch(value):
        raise _invalid("/trace_id", f"must be 1 to 64 of A-Z a-z 0-9 . _ -, not {value!r}")
    return value


def _number(value: object, pointer: str, least: int = 0) -> int:
    if type(value) is not int or not least <= value <= LONGEST_MS:
        raise _invalid(pointer, f"must be a whole number {least}..{LONGEST_MS}, not {value!r}")
    return value


def _policy(value: object) -> RetryPolicy:
    known = {field.name: field.default for field in fields(RetryPolicy)}
    given = _object(value, "/retry_policy")
    _refuse_unknown(given, known, "/retry_policy")
    for name, setting in given.items():
        if not _same_kind(setting, known[name]):
            raise _invalid(f"/retry_policy/{name}", f"has the wrong type: {setting!r}")
    return RetryPolicy(**given)


def _same_kind(value: object, default: object) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if default is None:
        return value is None or type(value) is int
    return type(value) is int or (isinstance(default, float) and isinstance(value, float))


def _payload(kind: ContractType, value: Mapping[str, Any]) -> Payload:
    wanted = _PAYLOADS[kind]
    names = {field.name for field in fields(wanted)}
    _refuse_unknown(value, names, "/payload")
    for name in ("task_id", "error"):
        if name in names and name not in value:
            raise _invalid(f"/payload/{name}", "is required")
    checked = {name: _CHECKS[name](part) for name, part in value.items()}
    return wanted(**checked)


def _text(value: object, pointer: str) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid(pointer, f"must be a text that is not empty, not {value!r}")
    return value


def _priority(value: object) -> int:
    try:
        return priority.parse(value)
    except AsyncNodesError as error:
        raise _invalid("/payload/priority", error.detail) from None


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "task_id": lambda value: _text(value, "/payload/task_id"),
    "node": lambda value: None if value is None else _text(value, "/payload/node"),
    "priority": _priority,
    "attempt": lambda value: _number(value, "/payload/attempt"),
    "output": lambda value: value,
    "error": lambda value: _object(value, "/payload/error"),
}


def _object(value: object, pointer: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _invalid(pointer, f"must be an object, not {type(value).__name__}")
    return value


def _refuse_unknown(value: Mapping[str, Any], known: Any, pointer: str) -> None:
    for name in value:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise _invalid(f"{pointer}/{name}", f"is not known{hint}")


def _invalid(pointer: str, why: str) -> AsyncNodesError:
    name = pointer.rpartition("/")[2] or "the envelope"
    return AsyncNodesError("invalid_request", f"{name} {why}", pointer=pointer)
