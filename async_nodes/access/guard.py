"""Step 5, expose: who may call, and what. With keys, or without and then this machine only.

Without a key a web page in a browser on this machine could still reach the port; it gives itself
away by its Host (a name that was made to point here), its Origin or its Sec-Fetch-Site, and it
cannot send JSON without asking first. Pure functions over header texts.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from async_nodes.core.api_keys import Caller, Scope, digest
from async_nodes.core.errors import AsyncNodesError
from async_nodes.settings import Settings

if TYPE_CHECKING:
    from async_nodes.access.keyring import Keyring

EVERYBODY: Final = Caller()
"""Who may do everything: the holder of the settings' key, and this machine where there is none."""

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/dify/openapi.json"})
"""What a load balancer asks: answered to anybody, under any Host."""

PAGES: Final = re.compile(r"/|/docs/?|/docs/[^/]+")
"""What tells how to ask: a browser has no key to send with an address."""

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s\[\]@/:]+)(?::([0-9]{1,5}))?", re.ASCII)
_BEARER = re.compile(r"bearer +([!-~]+) *", re.ASCII | re.IGNORECASE)
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json\s*(?:;.*)?", re.ASCII | re.IGNORECASE)


class Guard:
    """Decide about requests for one process.

    Args:
        settings: the one key, or none.
        keyring: the keys of the store, where they are asked for.

    Raises:
        AsyncNodesError: ``invalid_setting``: no key, but a host that others can reach.

    """

    def __init__(self, settings: Settings, keyring: Keyring | None = None) -> None:
        refuse_open_door(settings)
        self._digest = digest(settings.api_key) if settings.api_key else None
        self._keyring = keyring

    @property
    def keyless(self) -> bool:
        """Tell whether programs on this machine need no key."""
        return self._digest is None and self._keyring is None

    def generation(self) -> int:
        """Return another number whenever an answer of `caller` may have changed."""
        if self._keyring is None:
            return 0
        self._keyring.refresh()
        return self._keyring.generation

    def check_sender(self, _address: str | None) -> None:
        """Let everybody pass who reached us: without a key we listen on loopback only."""

    def caller(self, authorization: str | None) -> Caller:
        """Return whose request this is.

        Raises:
            AsyncNodesError: ``unauthorized``.
            StoreUnavailable: the keys of the store could not be read yet.

        """
        if self.keyless:
            return EVERYBODY
        found = _BEARER.fullmatch(authorization) if authorization else None
        key = found[1] if found else ""
        # Digests have one length, so the comparison tells nothing about the key's.
        if self._digest is not None and hmac.compare_digest(digest(key), self._digest):
            return EVERYBODY
        known = self._keyring.caller(key) if self._keyring is not None and key else None
        if known is None:
            wrong = "the key is not valid" if authorization else "there is no Authorization header"
            raise AsyncNodesError("unauthorized", wrong)
        return known

    def check_origin(self, *, host: str | None, origin: str | None, fetch_site: str | None) -> None:
        """Refuse what a web page of another site sends to a server without a key.

        Raises:
            AsyncNodesError: ``forbidden_origin``.

        """
        if not self.keyless:
            return
        if not host or not is_loopback(_host_of(host)):
            raise _forbidden("the Host header names no loopback address")
        if origin is not None and not _same_origin(origin, host):
            raise _forbidden("the request comes from a page of another origin")
        if fetch_site is not None and fetch_site.strip().lower() == "cross-site":
            raise _forbidden("the request comes from a page of another site")


def check_scope(caller: Caller, method: str, path: str) -> None:
    """Refuse what a caller's key may not do.

    Raises:
        AsyncNodesError: ``forbidden_scope``.

    """
    scope = scope_of(method, path)
    if scope not in caller.scopes:
        raise AsyncNodesError("forbidden_scope", f"the key has no scope {scope!s}")


def scope_of(method: str, path: str) -> Scope:
    """Return what a key must allow for a request to one of our paths."""
    if path == "/metrics":
        return Scope.METRICS
    if method in _SAFE:
        return Scope.READ
    return Scope.ADMIN if _OPERATOR.match(path) else Scope.RUN


_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPERATOR: Final = re.compile(r"/v1/(?:queues|nodes|workers|dead-letters|breakers)(?:/|$)")
"""What an operator looks after: its changes touch everybody's tasks."""


def check_content_type(content_type: str | None) -> None:
    """Refuse a body that is not declared as JSON.

    Raises:
        AsyncNodesError: ``not_acceptable_type``.

    """
    if content_type is None or not _JSON.fullmatch(content_type.strip()):
        raise AsyncNodesError("not_acceptable_type")


def refuse_open_door(settings: Settings) -> None:
    """Refuse to listen where others can reach a server without a key.

    Raises:
        AsyncNodesError: ``invalid_setting``.

    """
    has_keys = settings.api_key is not None or settings.api_keys
    if not has_keys and not is_loopback(settings.host.strip("[]")):
        raise AsyncNodesError(
            "invalid_setting",
            f"ASYNC_NODES_HOST is {settings.host}, which others can reach, and there is no key: "
            "set ASYNC_NODES_API_KEY (or ASYNC_NODES_API_KEY_FILE, or ASYNC_NODES_API_KEYS for "
            "those of `async-nodes keys`), or listen on 127.0.0.1",
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine and nobody else, going by its text alone."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _same_origin(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin.strip())
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not is_loopback(parts.hostname or ""):
        return False
    default = 443 if parts.scheme == "https" else 80
    return (parts.hostname, port or default) == (_host_of(host), _port_of(host) or default)


def _host_of(authority: str) -> str:
    found = _AUTHORITY.fullmatch(authority.strip())
    return found[1].strip("[]").lower() if found else ""


def _port_of(authority: str) -> int | None:
    found = _AUTHORITY.fullmatch(authority.strip())
    return int(found[2]) if found and found[2] else None


def _forbidden(detail: str) -> AsyncNodesError:
    return AsyncNodesError("forbidden_origin", detail)
