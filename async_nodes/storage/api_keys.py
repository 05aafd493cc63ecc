"""The API keys in the store: made, listed and revoked by an operator, read by web processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from async_nodes.core.api_keys import (
    DEFAULT_TENANT,
    NAME,
    Caller,
    NewKey,
    Scope,
    checked_tenant,
    digest,
    make_key,
)
from async_nodes.core.errors import AsyncNodesError

if TYPE_CHECKING:
    from collections.abc import Collection

    from async_nodes.storage.redis_store import RedisStore


@dataclass(frozen=True, slots=True)
class KeptKey:
    """Hold what is known of a key.

    Attributes:
        caller: whose requests it makes, and what it may do.
        sha256: of the key, 32 bytes.
        name: what people call it.
        created_ms: milliseconds since 1970, by the store's clock.

    """

    caller: Caller
    sha256: bytes
    name: str
    created_ms: int


class ApiKeys:
    """Look after the keys of a store.

    Args:
        store: where they are kept.

    """

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def create(
        self, name: str, *, tenant: str = DEFAULT_TENANT, scopes: Collection[Scope]
    ) -> NewKey:
        """Make a key and keep what is needed to recognise it.

        Args:
            name: what people call it, 1 to 100 characters.
            tenant: whose requests it makes.
            scopes: what it may do.

        Raises:
            AsyncNodesError: ``invalid_request``: a name, tenant or set of scopes that is none.
            StoreUnavailable: the store does not answer.

        """
        if not NAME.fullmatch(name):
            raise AsyncNodesError("invalid_request", "a key's name has 1 to 100 characters")
        if not scopes:
            raise AsyncNodesError("invalid_request", "a key needs at least one scope")
        checked_tenant(tenant)
        new, keys = make_key(), self._store.keys
        kept = {
            "sha256": digest(new.text).hex(),
            "tenant": tenant,
            "scopes": sorted(scopes),
            "name": name,
            "created_ms": self._store.now_ms(),
        }
        # The tenant first: whoever has a key has an index that is looked after.
        self._store.link.call("SADD", keys.tenants, tenant)
        self._store.link.call("HSET", keys.api_keys, new.key_id, json.dumps(kept))
        return new

    def all(self, *, timeout: float | None = None) -> list[KeptKey]:
        """Return the keys, the oldest first.

        Args:
            timeout: seconds to wait for the store; the connection's own when None.

        """
        flat = self._store.link.call("HGETALL", self._store.keys.api_keys, timeout=timeout)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return sorted((_kept(key_id, raw) for key_id, raw in pairs), key=lambda one: one.created_ms)

    def revoke(self, key_id: str) -> bool:
        """Forget a key; return whether it was there. Web processes hear of it within a second."""
        return bool(self._store.link.call("HDEL", self._store.keys.api_keys, key_id))


def _kept(key_id: bytes, raw: bytes) -> KeptKey:
    found: dict[str, Any] = json.loads(raw)
    known = {scope.value for scope in Scope}
    # A scope of a later release is none of ours: the key may do what we know of.
    scopes = frozenset(Scope(scope) for scope in found["scopes"] if scope in known)
    caller = Caller(found["tenant"], scopes, key_id.decode())
    return KeptKey(caller, bytes.fromhex(found["sha256"]), found["name"], found["created_ms"])
