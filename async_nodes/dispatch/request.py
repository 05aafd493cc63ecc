"""Step 1, submit: what a request may say, field by field, and every fault it has.

One table, `FIELDS`, is both the validation and the schema that /openapi.json shows. Knows nodes
and JSON, nothing of HTTP or storage.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgspec

from async_nodes.core import priority, strict_json
from async_nodes.core.contracts import epoch_ms
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import MAX_ATTEMPTS, MAX_INTERVAL_MS, RetryPolicy
from async_nodes.core.whole import whole, whole_within
from async_nodes.nodes import NodeSpec
from async_nodes.nodes.registry import UnknownNodeError

MAX_TIMEOUT_MS: Final = 86_400_000
MAX_DELAY: Final = 30 * 86_400
MAX_TTL: Final = 30 * 86_400
DEFAULT_TTL: Final = 86_400
MAX_MULTIPLIER: Final = 100
MAX_TAGS: Final = 32
MAX_TAG: Final = 64
MAX_METADATA: Final = 16 << 10
MAX_DEADLINE_MS: Final = 253_402_300_799_999  # the last millisecond of the year 9999
MAX_FAULTS: Final = 50
MAX_REQUEST: Final = 1 << 20
"""Bytes of one task's request."""

MAX_KEY: Final = 255
KEY: Final = "idempotency_key"
"""The member of a batch's item that stands for the header ``Idempotency-Key``."""

_MAX_DETAIL: Final = 300
_KEY: Final = re.compile(r"[ -~]{1,255}", re.ASCII)


class SubmitRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a request that has no fault.

    Attributes:
        spec: the node.
        inputs: as parsed; `raw_inputs` are the client's own bytes of them, without line breaks.
        priority: 0, the most urgent, to 9.
        timeout_ms: per attempt; None for the node's default.
        deadline_ms: milliseconds since 1970, 0 for none.
        retry: the whole policy, or None for the node's default.
        delay_ms, ttl_ms: milliseconds.

    """

    spec: NodeSpec
    inputs: Mapping[str, Any]
    raw_inputs: bytes
    priority: int = priority.DEFAULT
    timeout_ms: int | None = None
    deadline_ms: int = 0
    retry: RetryPolicy | None = None
    delay_ms: int = 0
    ttl_ms: int = DEFAULT_TTL * 1000
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Field:
    """Describe one member of the request.

    Attributes:
        name: the member.
        target: the attribute of `SubmitRequest` that it fills.
        read: returns the attribute's value, or raises ``invalid_request``.
        schema: JSON schema, with a description for people.

    """

    name: str
    target: str
    read: Callable[[Any], Any]
    schema: Mapping[str, Any]


def parse(raw: bytes, nodes: Mapping[str, NodeSpec], *, now_ms: int) -> SubmitRequest:
    """Return the request in a body.

    Args:
        raw: the body as it arrived.
        nodes: the registry.
        now_ms: the time that a deadline has to lie after.

    Raises:
        AsyncNodesError: ``not_json``; ``invalid_request``, ``unknown_node`` or ``invalid_inputs``
            with every fault in ``errors``.

    """
    body = _object_in(raw)
    return _faultless(raw, body, nodes, now_ms) or _examined(raw, body, nodes, now_ms)


def parse_item(
    raw: bytes, nodes: Mapping[str, NodeSpec], *, now_ms: int
) -> tuple[SubmitRequest, str]:
    """Return the request in an item of a batch, and the item's own idempotency key, empty for none.

    Raises:
        AsyncNodesError: what `parse` raises, and ``body_too_large``.

    """
    if len(raw) > MAX_REQUEST:
        raise AsyncNodesError("body_too_large", f"a task may take {MAX_REQUEST} bytes")
    body = _object_in(raw)
    key = _key(body.pop(KEY)) if KEY in body else ""
    return _faultless(raw, body, nodes, now_ms) or _examined(raw, body, nodes, now_ms), key


def _object_in(raw: bytes) -> dict[str, Any]:
    body = strict_json.loads(raw)
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object", "")
    return body


def _key(value: object) -> str:
    if not isinstance(value, str) or not _KEY.fullmatch(value) or not value.strip():
        raise invalid(f"{KEY} must be 1 to {MAX_KEY} visible ASCII characters", f"/{KEY}")
    return value


def _faultless(
    raw: bytes, body: Mapping[str, Any], nodes: Mapping[str, NodeSpec], now_ms: int
) -> SubmitRequest | None:
    """Return the request, or None as soon as anything is wrong with it: the way most go."""
    name = body.get("node")
    spec = nodes.get(name) if isinstance(name, str) else None
    if spec is None:
        return None
    values: dict[str, Any] = {"inputs": {}}
    try:
        for name, given in body.items():
            known = FIELDS.get(name)
            if known is None:
                return None
            if known.target:
                values[known.target] = known.read(given)
        spec.validate(values["inputs"])
    except AsyncNodesError:
        return None
    deadline = values.get("deadline_ms", 0)
    if deadline and deadline <= now_ms + values.get("delay_ms", 0):
        return None
    return _request(raw, spec, values)


def _examined(
    raw: bytes, body: Mapping[str, Any], nodes: Mapping[str, NodeSpec], now_ms: int
) -> SubmitRequest:
    """Return the request, or raise one error with everything that is wrong with it."""
    faults = Faults()
    values = faults.read(body)
    spec = faults.find_node(body, nodes)
    if spec is not None and isinstance(values.get("inputs"), dict):
        faults.check_inputs(spec, values["inputs"])
    faults.check_times(values, now_ms)
    faults.raise_any()
    assert spec is not None  # noqa: S101 - a missing node is a fault
    return _request(raw, spec, values)


def _request(raw: bytes, spec: NodeSpec, values: dict[str, Any]) -> SubmitRequest:
    policy = values.pop("retry", None)
    retry = None if policy is None else merged_policy(spec.retry, policy)
    return SubmitRequest(spec=spec, raw_inputs=raw_inputs(raw), retry=retry, **values)


class Faults:
    """Collect what is wrong with a request, so that a person can mend it in one go."""

    def __init__(self) -> None:
        self._found: list[AsyncNodesError] = []

    def add(self, fault: AsyncNodesError) -> None:
        """Take note of a fault."""
        self._found.append(fault)

    def read(self, body: Mapping[str, Any], offered: Iterable[str] = ()) -> dict[str, Any]:
        """Return the attributes of `SubmitRequest` that the body's good members stand for.

        Args:
            body: what was sent.
            offered: the fields that a wrong one may have been meant for; all when left out.

        """
        for name in body:
            if name not in FIELDS:
                self.add(unknown(name, offered or FIELDS))
        values: dict[str, Any] = {"inputs": {}}
        for name, known in FIELDS.items():
            if name in body and known.target:
                try:
                    values[known.target] = known.read(body[name])
                except AsyncNodesError as fault:
                    self.add(fault)
                    values.pop(known.target, None)
        return values

    def find_node(self, body: Mapping[str, Any], nodes: Mapping[str, NodeSpec]) -> NodeSpec | None:
        """Return the node that the body names."""
        name = body.get("node")
        if not isinstance(name, str) or not name:
            self.add(invalid("node is required: the name of a node", "/node"))
            return None
        spec = nodes.get(name)
        if spec is None:
            self.add(UnknownNodeError(name[:100], nodes))
        return spec

    def check_inputs(
        self,
        spec: NodeSpec,
        inputs: Mapping[str, Any],
        missing: frozenset[str] = frozenset(),
    ) -> None:
        """Add every fault of the inputs: the node's validation stops at its first.

        Args:
            spec: the node.
            inputs: as parsed.
            missing: ids of files that are not there.

        """
        left = dict(inputs)
        while len(self._found) < MAX_FAULTS:
            try:
                spec.inputs.check_files(left, missing)
            except AsyncNodesError as fault:
                name = _input_name(fault.pointer)
                if name in left:
                    self.add(fault)
                    del left[name]
                    continue
                if name is None:
                    self.add(fault)
            break
        for name in spec.schema.get("required", ()):
            if name not in inputs:
                pointer = "/inputs" + strict_json.pointer_to([name])
                detail = f"the input {name!r} is missing"
                self.add(AsyncNodesError("invalid_inputs", detail, pointer=pointer))

    def check_times(self, values: Mapping[str, Any], now_ms: int) -> None:
        """Add what is wrong with a deadline."""
        deadline, delay = values.get("deadline_ms", 0), values.get("delay_ms", 0)
        if not deadline:
            return
        if deadline <= now_ms:
            self.add(invalid("deadline must lie in the future", "/deadline"))
        elif deadline <= now_ms + delay:
            self.add(invalid("deadline is over before the delay is", "/deadline"))

    def raise_any(self) -> None:
        """Raise one error that lists all faults, under their common code if they have one."""
        if not self._found:
            return
        first = self._found[0]
        codes = {fault.code for fault in self._found}
        more = len(self._found) - 1
        detail = first.detail[:_MAX_DETAIL] + (f" (and {more} more)" if more else "")
        raise AsyncNodesError(
            first.code if len(codes) == 1 else "invalid_request",
            detail,
            pointer=first.pointer,
            errors=[
                {"pointer": fault.pointer or "", "detail": fault.detail[:_MAX_DETAIL]}
                for fault in self._found[:MAX_FAULTS]
            ],
            **{k: v for fault in self._found for k, v in fault.extra.items()},
        )


def _input_name(pointer: str | None) -> str | None:
    parts = (pointer or "").split("/")
    return parts[2].replace("~1", "/").replace("~0", "~") if len(parts) > 2 else None  # noqa: PLR2004


class _OnlyInputs(msgspec.Struct):
    inputs: msgspec.Raw = msgspec.Raw(b"{}")


_only_inputs = msgspec.json.Decoder(_OnlyInputs)


def raw_inputs(raw: bytes) -> bytes:
    """Return the client's own bytes of the inputs.

    A line break can only stand between tokens, where a space means the same; without them the
    record stays one line, which is what an event stream needs.
    """
    inputs = bytes(_only_inputs.decode(raw).inputs)
    if b"\n" in inputs or b"\r" in inputs:
        return inputs.replace(b"\n", b" ").replace(b"\r", b" ")
    return inputs


# -- one reader per field --------------------------------------------------------------------------


def _inputs(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AsyncNodesError(
            "invalid_inputs", "the inputs must be a JSON object", pointer="/inputs"
        )
    return value


def _timeout(value: Any) -> int:
    number = whole_within(value, 1, MAX_TIMEOUT_MS)
    if number is None:
        _refuse(f"timeout_ms must be a whole number of 1 to {MAX_TIMEOUT_MS}", "/timeout_ms")
    return number


def _deadline(value: Any) -> int:
    if value is None:
        return 0
    try:
        moment = epoch_ms(value, "/deadline")
    except OverflowError:
        moment = 0
    except AsyncNodesError as error:
        raise invalid(f"deadline {error.detail[:200]}", "/deadline") from error
    return min(max(moment, 1), MAX_DEADLINE_MS)


def _seconds(name: str, least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            _refuse(f"{name} must be a number of seconds, {least} to {most}", f"/{name}")
        milliseconds: int = round(value * 1000)
        return milliseconds

    return read


def _tags(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_TAGS:
        _refuse(f"tags must be a list of at most {MAX_TAGS} texts", "/tags")
    for index, tag in enumerate(value):
        if not isinstance(tag, str) or not 1 <= len(tag) <= MAX_TAG or not tag.isprintable():
            _refuse(f"a tag must be 1 to {MAX_TAG} printable characters", f"/tags/{index}")
    return tuple(value)


def _metadata(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse("metadata must be a JSON object", "/metadata")
    if len(strict_json.dumps(value)) > MAX_METADATA:
        _refuse(f"metadata must be at most {MAX_METADATA} bytes of JSON", "/metadata")
    return dict(value)


_POLICY: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = MappingProxyType(
    {
        "max_attempts": (
            lambda v: whole_within(v, 1, MAX_ATTEMPTS) is not None,
            f"a whole number of 1 to {MAX_ATTEMPTS}",
        ),
        "initial_ms": (
            lambda v: whole_within(v, 0, MAX_INTERVAL_MS) is not None,
            f"a whole number of 0 to {MAX_INTERVAL_MS}",
        ),
        "max_ms": (
            lambda v: whole_within(v, 0, MAX_INTERVAL_MS) is not None,
            f"a whole number of 0 to {MAX_INTERVAL_MS}",
        ),
        "multiplier": (
            lambda v: (
                isinstance(v, int | float) and not isinstance(v, bool) and 1 <= v <= MAX_MULTIPLIER
            ),
            f"a number of 1 to {MAX_MULTIPLIER}",
        ),
        "jitter": (lambda v: isinstance(v, bool), "true or false"),
        "total_ms": (
            lambda v: v is None or whole_within(v, 0) is not None,
            "null or a whole number of 0 or more",
        ),
    }
)
_WHOLE: Final = frozenset({"max_attempts", "initial_ms", "max_ms", "total_ms"})


def _policy(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse("retry_policy must be a JSON object", "/retry_policy")
    for name, given in value.items():
        if name not in _POLICY:
            raise unknown(name, _POLICY, within="/retry_policy")
        holds, wanted = _POLICY[name]
        if not holds(given):
            _refuse(f"retry_policy.{name} must be {wanted}", f"/retry_policy/{name}")
    return {
        name: whole(given) if name in _WHOLE and given is not None else given
        for name, given in value.items()
    }


def merged_policy(default: RetryPolicy | None, given: Mapping[str, Any]) -> RetryPolicy:
    """Return the members given, and for all others those of the default, or the general ones."""
    return RetryPolicy(**{**(default or RetryPolicy()).to_json(), **given})


def unknown(name: str, known: Iterable[str], *, within: str = "") -> AsyncNodesError:
    """Return the fault of a field that is not known, with the one that may have been meant."""
    close = difflib.get_close_matches(name[:100], list(known), n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
    pointer = within + strict_json.pointer_to([name[:100]])
    return invalid(f"there is no field {name[:100]!r}{hint}", pointer)


def invalid(detail: str, pointer: str) -> AsyncNodesError:
    """Return the fault of a field."""
    return AsyncNodesError("invalid_request", detail, pointer=pointer)


def _refuse(detail: str, pointer: str) -> NoReturn:
    raise invalid(detail, pointer)


def _policy_schema() -> dict[str, Any]:
    default = RetryPolicy().to_json()
    kinds = {"multiplier": "number", "jitter": "boolean", "total_ms": ["integer", "null"]}
    bounds: dict[str, dict[str, Any]] = {
        "max_attempts": {"minimum": 1, "maximum": MAX_ATTEMPTS},
        "initial_ms": {"minimum": 0, "maximum": MAX_INTERVAL_MS},
        "max_ms": {"minimum": 0, "maximum": MAX_INTERVAL_MS},
        "multiplier": {"minimum": 1, "maximum": MAX_MULTIPLIER},
        "total_ms": {"minimum": 0},
    }
    members = {
        name: {"type": kinds.get(name, "integer"), "default": value, **bounds.get(name, {})}
        for name, value in default.items()
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": members,
        "description": "How failures are tried again; members left out are the node's own.",
    }


def _what() -> Iterator[Field]:
    yield Field(
        "node", "", lambda value: value, {"type": "string", "description": "The node's name."}
    )
    yield Field(
        "inputs",
        "inputs",
        _inputs,
        {"type": "object", "default": {}, "description": "See the node's schema at /v1/nodes."},
    )
    yield Field(
        "priority",
        "priority",
        priority.parse,
        {
            "oneOf": [
                {"type": "integer", "minimum": 0, "maximum": priority.LEAST_URGENT},
                {"type": "string", "enum": list(priority.NAMED)},
            ],
            "default": priority.DEFAULT,
            "description": "0 is the most urgent.",
        },
    )


def _when() -> Iterator[Field]:
    yield Field(
        "timeout_ms",
        "timeout_ms",
        _timeout,
        {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TIMEOUT_MS,
            "description": "Running time of one attempt; the node's default when left out.",
        },
    )
    yield Field(
        "deadline",
        "deadline_ms",
        _deadline,
        {
            "type": ["string", "null"],
            "format": "date-time",
            "description": "When the task fails if it has not ended, waiting included; with zone.",
        },
    )
    yield Field("retry_policy", "retry", _policy, _policy_schema())
    yield Field(
        "delay",
        "delay_ms",
        _seconds("delay", 0, MAX_DELAY),
        {
            "type": "number",
            "minimum": 0,
            "maximum": MAX_DELAY,
            "default": 0,
            "description": "Seconds before the first attempt.",
        },
    )
    yield Field(
        "ttl",
        "ttl_ms",
        _seconds("ttl", 1, MAX_TTL),
        {
            "type": "number",
            "minimum": 1,
            "maximum": MAX_TTL,
            "default": DEFAULT_TTL,
            "description": "Seconds that the record is kept after the task has ended.",
        },
    )


def _whose() -> Iterator[Field]:
    yield Field(
        "tags",
        "tags",
        _tags,
        {
            "type": "array",
            "maxItems": MAX_TAGS,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG},
            "default": [],
        },
    )
    yield Field(
        "metadata",
        "metadata",
        _metadata,
        {
            "type": "object",
            "default": {},
            "description": f"Yours: stored and shown, at most {MAX_METADATA >> 10} KiB.",
        },
    )


FIELDS: Final[Mapping[str, Field]] = MappingProxyType(
    {known.name: known for known in (*_what(), *_when(), *_whose())}
)
"""Every member of the request, in the order of the documentation."""
