"""What travels with a task without being an input: immutable snapshots over one context variable.

A `ScopeContext` never changes; `with_value` returns a child that holds its parent, and a look-up
walks the chain (its cost is the depth). Because nothing is ever written in place there is nothing
to lock, to bind or to unbind. A thread and a greenlet start with the empty scope and take one over
with `scope`; an asyncio task starts with its maker's. To another process a scope travels as
headers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from async_nodes.core.errors import AsyncNodesError


class ScopeContext:
    """Hold one key and value, and the snapshot they were added to.

    Values are whatever the caller puts in; only JSON values can travel to another process.
    """

    __slots__ = ("_key", "_parent", "_value")

    def __init__(
        self, parent: ScopeContext | None = None, key: str = "", value: object = None
    ) -> None:
        object.__setattr__(self, "_parent", parent)
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_value", value)

    _parent: ScopeContext | None
    _key: str
    _value: Any

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a ScopeContext does not change; with_value returns a new one")

    def with_value(self, key: str, value: object) -> ScopeContext:
        """Return a child of this snapshot in which `key`, a text that is not empty, has a value.

        Raises:
            ValueError: the key is empty.

        """
        if not key:
            raise ValueError("a scope's key is a text that is not empty")
        return ScopeContext(self, key, value)

    @property
    def parent(self) -> ScopeContext | None:
        """Return the snapshot this one was made from; None for the empty one."""
        return self._parent

    def get(self, key: str, default: Any = None) -> Any:
        """Return the nearest value of `key` on the way to the root, else `default`."""
        return next((value for name, value in self._chain() if name == key), default)

    def __contains__(self, key: object) -> bool:
        return any(name == key for name, _ in self._chain())

    def to_dict(self) -> dict[str, Any]:
        """Return the visible values by key, oldest key first."""
        seen: dict[str, Any] = {}
        for name, value in self._chain():
            seen.setdefault(name, value)
        return dict(reversed(seen.items()))

    def to_headers(self) -> dict[str, Any]:
        """Return the visible values as JSON values, to be sent to another process.

        Raises:
            AsyncNodesError: ``invalid_request``: a value would not come back as it was sent.

        """
        if self._parent is None:
            return {}
        return {key: _as_json(key, value) for key, value in self.to_dict().items()}

    @classmethod
    def from_headers(cls, headers: object) -> ScopeContext:
        """Return the scope that another process sent, a JSON object.

        Raises:
            AsyncNodesError: ``invalid_request``: not an object with keys that are not empty.

        """
        if not isinstance(headers, Mapping):
            raise AsyncNodesError("invalid_request", "a scope is a JSON object", pointer="/scope")
        context = EMPTY
        for key, value in headers.items():
            if not isinstance(key, str) or not key:
                raise AsyncNodesError(
                    "invalid_request", f"a scope has no key {key!r}", pointer="/scope"
                )
            context = context.with_value(key, value)
        return context

    def __reduce__(self) -> tuple[Any, ...]:
        return (ScopeContext.from_headers, (self.to_dict(),))

    def __repr__(self) -> str:
        return f"ScopeContext({self.to_dict()!r})"

    def _chain(self) -> Iterator[tuple[str, Any]]:
        link = self
        while link._parent is not None:
            yield link._key, link._value
            link = link._parent


EMPTY = ScopeContext()
"""The root of every chain."""

_current: ContextVar[ScopeContext] = ContextVar("async_nodes.scope", default=EMPTY)


def current() -> ScopeContext:
    """Return the snapshot in force here."""
    return _current.get()


class scope:  # noqa: N801 - reads as the statement it is
    """Put a snapshot in force for a block.

    Args:
        context: the snapshot; the current one when None.
        values: added on top of it.

    """

    __slots__ = ("_inner", "_token")

    def __init__(self, context: ScopeContext | None = None, **values: object) -> None:
        inner = current() if context is None else context
        for key, value in values.items():
            inner = inner.with_value(key, value)
        self._inner = inner

    def __enter__(self) -> ScopeContext:
        self._token = _current.set(self._inner)
        return self._inner

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def _as_json(key: str, value: object) -> Any:
    """Return a copy of the value as the other side will read it."""
    try:
        copy = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise _refused(key, str(error)) from error
    if copy != value:
        raise _refused(key, f"{value!r} would arrive as {copy!r}")
    return copy


def _refused(key: str, why: str) -> AsyncNodesError:
    return AsyncNodesError(
        "invalid_request",
        f"the scope's {key!r} cannot travel to another process: {why}",
        pointer=f"/scope/{key.replace('~', '~0').replace('/', '~1')}",
    )
