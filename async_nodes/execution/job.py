"""What a worker reads from a claim: the node, its inputs and how its failures are tried again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from async_nodes.core.context import ScopeContext
from async_nodes.core.redacted import hider
from async_nodes.core.retry import RetryPolicy
from async_nodes.nodes.spec import REDACTED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from async_nodes.core.ports import Claim
    from async_nodes.nodes.spec import NodeSpec


class _Private(msgspec.Struct):
    node: str
    retry: dict[str, Any] | None = None
    scope: dict[str, Any] | None = None
    traceparent: str | None = None
    inputs: msgspec.Raw = msgspec.Raw(b"")


_decoder = msgspec.json.Decoder(_Private)


@dataclass(frozen=True, slots=True)
class Job:
    """Hold what one attempt is to do."""

    spec: NodeSpec
    inputs: bytes
    policy: RetryPolicy
    scope: ScopeContext
    traceparent: str

    @property
    def hide(self) -> Callable[[str], str]:
        """Return what takes the values of redacted inputs out of texts; `str` where none is."""
        if not self.spec.redact:
            return str
        found: list[Callable[[str], str]] = []

        def hide(text: str) -> str:
            if not found:  # most attempts say nothing that would have to be looked through
                inputs = msgspec.json.decode(self.inputs or b"{}")
                secrets = [value for name, value in inputs.items() if name in self.spec.redact]
                found.append(hider(secrets, REDACTED))
            return found[0](text)

        return hide


def job_of(claim: Claim, registry: Mapping[str, NodeSpec]) -> Job:
    """Return the job in a claim.

    Raises:
        AsyncNodesError: ``unknown_node``: this worker does not know the node.

    """
    brought = _brought_often if claim.inputs else _brought  # secret inputs are not remembered
    node, retry, scope, traceparent, inputs = brought(claim.private)
    spec = registry[node]
    return Job(
        spec=spec,
        inputs=claim.inputs or inputs,
        policy=retry or spec.retry or _USUAL_POLICY,
        scope=scope,
        traceparent=traceparent,
    )


_Brought = tuple[str, RetryPolicy | None, ScopeContext, str, bytes]
_USUAL_POLICY: Final = RetryPolicy()


def _brought(raw: bytes) -> _Brought:
    """Return what a task's private part says: node, policy, scope, trace and hidden inputs."""
    private = _decoder.decode(raw)
    return (
        private.node,
        RetryPolicy(**private.retry) if private.retry else None,
        ScopeContext.from_headers(private.scope or {}),
        private.traceparent or "",
        bytes(private.inputs),
    )


_brought_often: Final = lru_cache(maxsize=256)(_brought)
"""The same: tasks that nobody traces differ in their node alone, and nothing in it ever changes."""


@dataclass(frozen=True, slots=True)
class Travelling:
    """Hold what came along with a task from whoever submitted it."""

    scope: ScopeContext
    traceparent: str


def travelling(private: bytes) -> Travelling:
    """Return the scope and the trace in a stored task's private part."""
    read = _decoder.decode(private)
    return Travelling(ScopeContext.from_headers(read.scope or {}), read.traceparent or "")


def node_of(private: bytes) -> str:
    """Return the name of the node that a stored task's private part asks for."""
    return _decoder.decode(private).node
