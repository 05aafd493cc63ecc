"""API keys: what one looks like, whose requests it makes, and what it may do.

A key is ``an_<id>_<secret>``. The id names it to people and in logs; the store has the SHA-256 of
the whole and never the key. The secret is random, 256 bits, so a slow hash would protect nothing.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from async_nodes.core.errors import AsyncNodesError

DEFAULT_TENANT: Final = "default"
TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}", re.ASCII)
NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
PREFIX: Final = "an_"
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH: Final = 8


class Scope(StrEnum):
    """Name what a key may do; none of them contains another.

    read: see tasks, queues, workers, files and schedules; run: submit, retry, cancel, delete, and
    upload; admin: pause, drain, purge, look after dead letters and schedules' queues; metrics: see
    ``/metrics``.
    """

    READ = "read"
    RUN = "run"
    ADMIN = "admin"
    METRICS = "metrics"


EVERYTHING: Final = frozenset(Scope)


@dataclass(frozen=True, slots=True)
class Caller:
    """Hold who sends a request.

    Attributes:
        tenant: whose tasks it sees and makes.
        scopes: what it may do.
        key_id: of its key; empty for the one key of the settings, or none.

    """

    tenant: str = DEFAULT_TENANT
    scopes: frozenset[Scope] = EVERYTHING
    key_id: str = ""


@dataclass(frozen=True, slots=True)
class NewKey:
    """Hold a key at the one moment when it is known: it is to be shown once and then forgotten."""

    key_id: str
    text: str

    def __repr__(self) -> str:
        return f"NewKey({self.key_id!r})"


def make_key() -> NewKey:
    """Return a new key."""
    key_id = "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))
    return NewKey(key_id, f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}")


def digest(key: str) -> bytes:
    """Return what stands for a key in the store and in memory, 32 bytes."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def checked_tenant(text: str) -> str:
    """Return a tenant's name.

    Raises:
        AsyncNodesError: ``invalid_request``: it does not fit a key or a record.

    """
    if not TENANT.fullmatch(text):
        raise AsyncNodesError(
            "invalid_request",
            "a tenant is 1 to 32 of A-Z a-z 0-9 . _ - and begins with a letter or digit, "
            f"not {text!r}",
        )
    return text
