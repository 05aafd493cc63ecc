"""Step 1, submit: do again what an ended task was asked to do, with changes if they are wanted.

The inputs go over as the very bytes that were sent, secrets included; they come from the worker's
part of the record and are never shown. Knows nothing of HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from async_nodes.core import strict_json
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.retry import RetryPolicy
from async_nodes.dispatch.request import (
    FIELDS,
    Faults,
    SubmitRequest,
    invalid,
    merged_policy,
    raw_inputs,
)
from async_nodes.nodes.registry import UnknownNodeError
from async_nodes.nodes.spec import REDACTED

if TYPE_CHECKING:
    from async_nodes.nodes import NodeSpec
    from async_nodes.storage.layout import Document

EDITABLE: Final = tuple(name for name in FIELDS if name != "node")
"""What a retry may change. A deadline is not carried over: it may have passed."""

LOOK_AGAIN: Final = 1.0
"""Seconds after which a task that has not ended is worth another look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """Hold what a task was asked to do.

    Attributes:
        inputs: the bytes that were sent.
        scope: values that travelled with the task.
        request: the attributes of `SubmitRequest` but node and inputs.

    """

    task_id: str
    node: str
    inputs: bytes
    scope: Mapping[str, Any]
    request: Mapping[str, Any]


class _Private(msgspec.Struct):
    node: str
    retry: dict[str, Any] | None = None
    scope: dict[str, Any] | None = None
    inputs: msgspec.Raw = msgspec.Raw(b"")


_private = msgspec.json.Decoder(_Private)


def original_of(document: Document) -> Original:
    """Return what an ended task was asked to do.

    Raises:
        AsyncNodesError: ``task_not_finished``.

    """
    record = json.loads(document.json)
    if not document.state.terminal:
        raise not_finished(record["task_id"], document)
    private = _private.decode(document.private)
    start = document.inputs_at
    shown = document.raw[start : start + document.inputs_len]
    return Original(
        task_id=record["task_id"],
        node=private.node,
        inputs=shown or bytes(private.inputs),
        scope=private.scope or {},
        request={
            "priority": record["priority"],
            "timeout_ms": int(document.timeout),
            "retry": RetryPolicy(**private.retry) if private.retry else None,
            "ttl_ms": int(document.ttl),
            "tags": tuple(record["tags"]),
            "metadata": record["metadata"],
        },
    )


def not_finished(task_id: str, document: Document) -> AsyncNodesError:
    """Return the error for a task that is wanted to have ended."""
    state = document.state.value
    return AsyncNodesError(
        "task_not_finished",
        f"the task is {state}",
        retry_after=LOOK_AGAIN,
        task_id=task_id,
        state=state,
        version=document.version,
    )


def revised(
    original: Original, raw: bytes, nodes: Mapping[str, NodeSpec], *, now_ms: int
) -> SubmitRequest:
    """Return the request of a task that does the same again, but for what a body changes.

    Args:
        original: what was asked.
        raw: the body, a JSON object with some of `EDITABLE`. ``inputs`` replaces all of them; a
            secret one that reads ``[redacted]``, as records show it, stays what it was.
        nodes: the registry.
        now_ms: the time that a deadline has to lie after.

    Raises:
        AsyncNodesError: ``not_json``; ``invalid_request``, ``unknown_node`` or ``invalid_inputs``
            with every fault in ``errors``.

    """
    body = strict_json.loads(raw)
    if not isinstance(body, dict):
        raise invalid("the body must be a JSON object", "")
    spec = nodes.get(original.node)
    if spec is None:
        raise UnknownNodeError(original.node, nodes)
    faults = Faults()
    if "node" in body:
        faults.add(invalid("a retry keeps its node: submit a new task to run another", "/node"))
    values = faults.read(body, EDITABLE)
    if "inputs" in body:
        inputs, sent = _revealed(values.get("inputs"), raw_inputs(raw), original, spec, faults)
    else:
        inputs, sent = json.loads(original.inputs), original.inputs
    if inputs is not None:
        faults.check_inputs(spec, inputs)
    faults.check_times(values, now_ms)
    faults.raise_any()
    policy = values.pop("retry", None)
    if policy is not None:
        values["retry"] = merged_policy(original.request["retry"] or spec.retry, policy)
    members = {**original.request, **values, "inputs": inputs}
    return SubmitRequest(spec=spec, raw_inputs=sent, **members)


def _revealed(
    inputs: dict[str, Any] | None, sent: bytes, original: Original, spec: NodeSpec, faults: Faults
) -> tuple[dict[str, Any] | None, bytes]:
    """Return edited inputs, as values and as JSON, with the secrets that they leave as they were.

    None for inputs that have a fault already.
    """
    hidden = [name for name in spec.redact if inputs and inputs.get(name) == REDACTED]
    if inputs is None or not hidden:
        return inputs, sent
    old = json.loads(original.inputs)
    for name in hidden:
        if name not in old:
            pointer = "/inputs" + strict_json.pointer_to([name])
            detail = f"the task had no input {name!r} that could stay as it was"
            faults.add(AsyncNodesError("invalid_inputs", detail, pointer=pointer))
            return None, sent
    whole = {name: old[name] if name in hidden else value for name, value in inputs.items()}
    return whole, strict_json.dumps(whole)
