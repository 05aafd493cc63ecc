"""What a schedule may say, field by field, and what is kept of it.

One table, `FIELDS`, is both the validation and the schema that /openapi.json shows. The task of a
schedule is a submit request and is read as one, when the schedule is made and whenever it fires.
Knows nothing of HTTP or storage.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from async_nodes.core import strict_json
from async_nodes.core.contracts import epoch_ms, iso
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.schedule import (
    SHORTEST_INTERVAL_MS,
    Bounded,
    Every,
    Missed,
    Overlap,
    Schedule,
    Timetable,
    first_tick,
)
from async_nodes.dispatch import cron
from async_nodes.dispatch.request import (
    MAX_METADATA,
    MAX_TAG,
    MAX_TAGS,
    Faults,
    Field,
    invalid,
    parse,
    unknown,
)
from async_nodes.nodes.spec import REDACTED

if TYPE_CHECKING:
    from async_nodes.dispatch.request import SubmitRequest
    from async_nodes.nodes import NodeSpec

TAG: Final = "schedule:"
"""What the tag of a schedule's tasks begins with; its name follows."""

TICK: Final = "scheduled_at"
"""The member of a task's metadata that tells its tick, unless it has one of that name."""

MAX_NAME: Final = MAX_TAG - len(TAG)
NAME_PATTERN: Final = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}"
LONGEST_INTERVAL: Final = 366 * 86_400
MOST_JITTER: Final = 3_600
_SHORTEST: Final = SHORTEST_INTERVAL_MS // 1000
_LAST_MS: Final = 7_258_118_400_000  # the year 2200: a calendar is walked for 50 years from there
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*", re.ASCII)
_LONGEST_ZONE: Final = 64


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what decides about a schedule's ticks. Times in milliseconds.

    Attributes:
        cron: an expression, or None for a steady pace.
        every_ms: between two ticks, 0 with `cron`.
        anchor_ms: what a steady pace counts from.
        base: what the links of its tasks begin with.

    """

    cron: str | None = None
    every_ms: int = 0
    timezone: str = "UTC"
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.ALLOW
    starts_ms: int | None = None
    ends_ms: int | None = None
    jitter_ms: int = 0
    anchor_ms: int = 0
    base: str = ""

    def encode(self) -> bytes:
        """Return the JSON that is stored."""
        return msgspec.json.encode(self)

    def schedule(self, tenant: str, name: str) -> Schedule:
        """Return what decides, put together.

        Raises:
            AsyncNodesError: ``invalid_request``: this process knows no such time zone.

        """
        return Schedule(
            timetable=Bounded(self._timetable(), self.starts_ms, self.ends_ms),
            missed=self.missed,
            jitter_ms=self.jitter_ms,
            seed=f"{tenant}:{name}",
        )

    def _timetable(self) -> Timetable:
        if self.cron is not None:
            return cron.timetable(self.cron, _zone(self.timezone))
        first = self.anchor_ms + self.every_ms if self.starts_ms is None else self.starts_ms
        return Every(self.every_ms, first)

    def ticks_as(self, other: Spec) -> bool:
        """Tell whether the ticks are those of another, but for where a pace counts from."""
        return self._ticks == other._ticks

    @property
    def _ticks(self) -> tuple[object, ...]:
        return (
            self.cron, self.every_ms, self.timezone, self.starts_ms, self.ends_ms, self.jitter_ms
        )  # fmt: skip


_spec = msgspec.json.Decoder(Spec)


def spec_of(raw: bytes) -> Spec:
    """Return the spec that was stored; members of a later release are passed over."""
    return _spec.decode(raw)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a schedule that has no fault.

    Attributes:
        spec: when it ticks, but for `anchor_ms`.
        task: the submit request, JSON.
        shown: the same without secret inputs, empty where it is the same.
        paused: whether it is to wait until it is resumed.

    """

    name: str
    spec: Spec
    task: bytes
    shown: bytes
    paused: bool


class _OnlyTask(msgspec.Struct):
    task: msgspec.Raw = msgspec.Raw(b"")


_only_task = msgspec.json.Decoder(_OnlyTask)


def read(
    raw: bytes,
    nodes: Mapping[str, NodeSpec],
    *,
    now_ms: int,
    timezone: str,
    name: str = "",
    task_before: bytes = b"",
) -> Wanted:
    """Return the schedule in a body.

    Args:
        raw: the body as it arrived.
        nodes: the registry.
        now_ms: the time later than which it has to tick.
        timezone: the one for schedules that name none.
        name: the schedule's, where the address tells it.
        task_before: the task of the schedule that is to be replaced: a secret input that reads
            ``[redacted]``, as schedules show it, stays what it was.

    Raises:
        AsyncNodesError: ``not_json``; ``invalid_request``, ``unknown_node`` or ``invalid_inputs``
            with every fault in ``errors``.

    """
    body = strict_json.loads(raw)
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object", "")
    faults = Faults()
    values = _values(body, faults)
    called = _name_of(values.get("name"), name, faults)
    spec = _spec_from(values, body, timezone, faults)
    if spec is not None:
        _check_ticks(spec, called, now_ms, faults)
    task, shown = _task_from(raw, body, nodes, now_ms, task_before, faults)
    faults.raise_any()
    assert spec is not None  # noqa: S101 - its absence is a fault
    paused = values.get("paused", False)
    return Wanted(name=called, spec=spec, task=task, shown=shown, paused=paused)


def _values(body: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """Return what the good members stand for, by their targets."""
    values: dict[str, Any] = {}
    for member, given in body.items():
        known = FIELDS.get(member)
        if known is None:
            faults.add(unknown(member, FIELDS))
            continue
        try:
            if known.target:
                values[known.target] = known.read(given)
        except AsyncNodesError as fault:
            faults.add(fault)
    return values


def _name_of(given: str | None, address: str, faults: Faults) -> str:
    if not address and given is None:
        faults.add(invalid("name is required", "/name"))
    elif address and given not in (None, address):
        faults.add(invalid(f"name must be that of the address, {address!r}", "/name"))
    return address or given or ""


def _spec_from(
    values: Mapping[str, Any], body: Mapping[str, Any], timezone: str, faults: Faults
) -> Spec | None:
    """Return when it is to tick; None when that has a fault."""
    if (body.get("cron") is None) == (body.get("every") is None):
        faults.add(invalid("either cron or every is required, and not both", "/cron"))
        return None
    members = {"timezone": timezone} | {
        target: values[target]
        for target in Spec.__struct_fields__
        if values.get(target) is not None
    }
    if not {"cron", "every_ms"} & members.keys():
        return None  # it is there and has a fault of its own
    spec = Spec(**members)
    if spec.every_ms and spec.jitter_ms > spec.every_ms:
        faults.add(invalid("jitter must not be longer than every", "/jitter"))
    if spec.starts_ms is not None and spec.ends_ms is not None and spec.ends_ms <= spec.starts_ms:
        faults.add(invalid("ends_at must lie behind starts_at", "/ends_at"))
        return None
    return spec


def _check_ticks(spec: Spec, name: str, now_ms: int, faults: Faults) -> None:
    try:
        timetable = msgspec.structs.replace(spec, anchor_ms=now_ms).schedule("", name).timetable
    except AsyncNodesError as fault:
        faults.add(fault)
        return
    if first_tick(timetable, now_ms) is None:
        place = "/cron" if spec.cron else "/ends_at"
        faults.add(invalid("it would never tick", place))


# -- its task --------------------------------------------------------------------------------------


def _task_from(
    raw: bytes,
    body: Mapping[str, Any],
    nodes: Mapping[str, NodeSpec],
    now_ms: int,
    before: bytes,
    faults: Faults,
) -> tuple[bytes, bytes]:
    """Return the task as it is kept and as it is shown, empty where that is the same."""
    if not isinstance(body.get("task"), dict):
        faults.add(invalid("task is required: what POST /v1/tasks takes", "/task"))
        return b"", b""
    task = bytes(_only_task.decode(raw).task)
    try:
        _check_task(body["task"])
        task = _revealed(task, body["task"], before, nodes)
        request = parse(task, nodes, now_ms=now_ms)
    except AsyncNodesError as error:
        for fault in _within("/task", error):
            faults.add(fault)
        return b"", b""
    return task, _shown(task, request)


def _check_task(task: Mapping[str, Any]) -> None:
    """Refuse what a submit may say and a schedule may not."""
    if task.get("deadline") is not None:
        why = "a schedule's task cannot have a deadline, which is one moment: use timeout_ms"
        raise invalid(why, "/deadline")
    tags, metadata = task.get("tags"), task.get("metadata")
    if isinstance(tags, list) and len(tags) >= MAX_TAGS:
        raise invalid(f"a schedule's task may have {MAX_TAGS - 1} tags", "/tags")
    if isinstance(metadata, dict) and len(strict_json.dumps(metadata)) > MAX_METADATA - MAX_TAG:
        most = MAX_METADATA - MAX_TAG
        raise invalid(f"the metadata of a schedule's task may have {most} bytes", "/metadata")


def _revealed(
    raw: bytes, task: Mapping[str, Any], before: bytes, nodes: Mapping[str, NodeSpec]
) -> bytes:
    """Return a task with the secrets that it leaves as they were."""
    name, inputs = task.get("node"), task.get("inputs")
    spec = nodes.get(name) if isinstance(name, str) else None
    if spec is None or not before or not isinstance(inputs, dict):
        return raw
    hidden = [one for one in spec.redact if inputs.get(one) == REDACTED]
    if not hidden:
        return raw
    old = strict_json.loads(before)
    known = old.get("inputs", {}) if old.get("node") == name else {}
    for one in hidden:
        if one not in known:
            pointer = "/inputs" + strict_json.pointer_to([one])
            why = f"the schedule had no input {one!r} that could stay as it was"
            raise AsyncNodesError("invalid_inputs", why, pointer=pointer)
    whole = {key: known[key] if key in hidden else value for key, value in inputs.items()}
    return strict_json.dumps({**task, "inputs": whole})


def _shown(raw: bytes, request: SubmitRequest) -> bytes:
    redacted = request.spec.redacted(request.inputs)
    if redacted == request.inputs:
        return b""
    return strict_json.dumps({**strict_json.loads(raw), "inputs": redacted})


def _within(place: str, error: AsyncNodesError) -> Iterator[AsyncNodesError]:
    """Return the faults of a part, each at its place in the whole."""
    faults = error.extra.get("errors")
    if not isinstance(faults, list):
        faults = [{"pointer": error.pointer or "", "detail": error.detail}]
    more = {key: value for key, value in error.extra.items() if key != "errors"}
    for fault in faults:
        pointer = place + fault["pointer"]
        yield AsyncNodesError(error.code, fault["detail"], pointer=pointer, **more)
        more = {}


def ticked(request: SubmitRequest, name: str, tick: int) -> SubmitRequest:
    """Return the request of one tick's task: it tells its schedule and its tick."""
    tag = TAG + name
    tags = request.tags if tag in request.tags else (*request.tags, tag)
    metadata = {TICK: iso(tick), **request.metadata}
    return msgspec.structs.replace(request, tags=tags, metadata=metadata)


# -- one reader per field --------------------------------------------------------------------------


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        why = f"name must be 1 to {MAX_NAME} letters, digits, dots, dashes and underscores"
        raise invalid(f"{why}, a letter or digit first", "/name")
    return value


def _cron(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= cron.LONGEST:
        raise invalid(f"cron must be a text of 1 to {cron.LONGEST} characters", "/cron")
    cron.timetable(value, ZoneInfo("UTC"))
    return value


def _every(value: Any) -> int | None:
    return None if value is None else _milliseconds("every", value, _SHORTEST, LONGEST_INTERVAL)


def _jitter(value: Any) -> int:
    return _milliseconds("jitter", value, 0, MOST_JITTER)


def _milliseconds(name: str, value: Any, least: int, most: int) -> int:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= most:
        raise invalid(f"{name} must be a number of seconds, {least} to {most}", f"/{name}")
    milliseconds: int = round(value * 1000)
    return milliseconds


def _timezone(value: Any) -> str:
    if not isinstance(value, str):
        raise invalid("timezone must be a name such as Asia/Shanghai", "/timezone")
    _zone(value)
    return value


def _zone(name: str) -> ZoneInfo:
    try:
        # Names are paths below the place where time zones are kept.
        if len(name) <= _LONGEST_ZONE and _ZONE.fullmatch(name):
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    raise invalid(f"there is no time zone {name[:_LONGEST_ZONE]!r}: name it as IANA does, such as "
                  "Asia/Shanghai", "/timezone")  # fmt: skip


def _moment(name: str) -> Callable[[Any], int | None]:
    def read(value: Any) -> int | None:
        if value is None:
            return None
        try:
            moment = epoch_ms(value, f"/{name}")
        except OverflowError:
            moment = -1
        except AsyncNodesError as error:
            raise invalid(f"{name} {error.detail[:200]}", f"/{name}") from error
        if not 0 <= moment < _LAST_MS:
            raise invalid(f"{name} must lie between the years 1970 and 2200", f"/{name}")
        return moment

    return read


def _one_of(name: str, words: type[Missed | Overlap]) -> Callable[[Any], Missed | Overlap]:
    def read(value: Any) -> Missed | Overlap:
        try:
            return words(value)
        except ValueError:
            raise invalid(f"{name} must be one of {', '.join(words)}", f"/{name}") from None

    return read


def _paused(value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid("paused must be true or false", "/paused")
    return value


def _when() -> Iterator[Field]:
    yield Field(
        "cron",
        "cron",
        _cron,
        {
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": cron.LONGEST,
            "description": "Five fields (minute, hour, day of month, month, day of week), names "
            f"of months and days, or one of {', '.join(cron.NAMED)}. Either this or every.",
        },
    )
    yield Field(
        "every",
        "every_ms",
        _every,
        {
            "type": ["number", "null"],
            "minimum": _SHORTEST,
            "maximum": LONGEST_INTERVAL,
            "description": "Seconds from one tick to the next.",
        },
    )
    yield Field(
        "timezone",
        "timezone",
        _timezone,
        {
            "type": "string",
            "minLength": 1,
            "description": "Whose wall clocks cron goes by, an IANA name; CELERY_TIMEZONE when "
            "left out.",
        },
    )
    for name, what in (("starts_at", "From when on it ticks"), ("ends_at", "When it has ended")):
        yield Field(
            name,
            name.replace("_at", "_ms"),
            _moment(name),
            {
                "type": ["string", "null"],
                "format": "date-time",
                "description": f"{what}; with zone.",
            },
        )
    yield Field(
        "jitter",
        "jitter_ms",
        _jitter,
        {
            "type": "number",
            "minimum": 0,
            "maximum": MOST_JITTER,
            "default": 0,
            "description": "Seconds by which a tick is fired late at most, to spread many.",
        },
    )


def _what() -> Iterator[Field]:
    yield Field(
        "task",
        "",
        lambda value: value,
        {"description": "What each tick submits; without a deadline."},
    )
    yield Field(
        "missed",
        "missed",
        _one_of("missed", Missed),
        {
            "type": "string",
            "enum": [policy.value for policy in Missed],
            "default": Missed.ONCE.value,
            "description": "What becomes of ticks that nobody was there to fire: nothing, one "
            "task for all, or a task for each of the newest 100.",
        },
    )
    yield Field(
        "overlap",
        "overlap",
        _one_of("overlap", Overlap),
        {
            "type": "string",
            "enum": [policy.value for policy in Overlap],
            "default": Overlap.ALLOW.value,
            "description": "skip: no task for a tick while the last tick's task has not ended.",
        },
    )
    yield Field(
        "paused",
        "paused",
        _paused,
        {"type": "boolean", "default": False, "description": "Waits until it is resumed."},
    )


_NAME_FIELD: Final = Field(
    "name",
    "name",
    _name,
    {"type": "string", "pattern": f"^{NAME_PATTERN}$", "description": "Yours; its address too."},
)

FIELDS: Final[Mapping[str, Field]] = MappingProxyType(
    {known.name: known for known in (_NAME_FIELD, *_when(), *_what())}
)
"""Every member of a schedule, in the order of the documentation."""
