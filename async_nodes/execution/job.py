"""What a worker reads from a claim: the node, its inputs and how its failures are tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    private = _decoder.decode(claim.private)
    spec = registry[private.node]
    policy = RetryPolicy(**private.retry) if private.retry else spec.retry or RetryPolicy()
    return Job(
        spec=spec,
        inputs=claim.inputs or bytes(private.inputs),
        policy=policy,
        scope=ScopeContext.from_headers(private.scope or {}),
        traceparent=private.traceparent or "",
    )


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
