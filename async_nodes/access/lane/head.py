"""Step 5, expose: the heads of requests that are so ordinary that the fast lane may answer them.

A closed set of names, each once, with values whose meaning is beyond doubt. Everything else is
none of the lane's business: there is no error here, only None. Knows neither sockets nor the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from async_nodes.access import negotiate
from async_nodes.access.guard import Guard
from async_nodes.core.api_keys import Scope
from async_nodes.core.errors import AsyncNodesError

MAX_BODY: Final = 64 << 10
MAX_REMEMBERED: Final = 512
_LONGEST_REMEMBERED: Final = 1024

_LINE = re.compile(rb"([A-Za-z-]+): ?([!-~](?:[ -~]*[!-~])?)")
_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")
_LENGTH = re.compile(r"[1-9][0-9]{0,4}")

_IGNORED: Final = frozenset({"user-agent", "accept-encoding", "accept-language"})
"""Names whose value changes nothing in the answers that the lane gives."""

_ONE_OF: Final = {
    "accept": frozenset({"*/*", "application/json"}),
    "connection": frozenset({"keep-alive"}),
    "content-type": frozenset(
        {"application/json", "application/json;charset=utf-8", "application/json; charset=utf-8"}
    ),
}
_SHARED: Final = _IGNORED | {"host", "accept", "connection", "authorization"}
_TRACED: Final = frozenset({"x-request-id", "traceparent"})
_READ: Final = _SHARED | _TRACED | {"if-none-match"}
_SUBMIT: Final = _SHARED | _TRACED | {"content-type", "content-length", "idempotency-key"}
_ITS_OWN: Final = _TRACED | {"idempotency-key"}
"""Names whose value is another one in each request."""


@dataclass(frozen=True, slots=True)
class Head:
    """Hold what an ordinary head asks for.

    Attributes:
        tenant: whose request it is.
        request_id, traceparent: the client's own; None for names to be made.
        if_none_match: the header.
        length: of the body; 0 without one.
        idempotency_key: empty without one.

    """

    tenant: str
    request_id: str | None = None
    traceparent: str | None = None
    if_none_match: str | None = None
    length: int = 0
    idempotency_key: str = ""


class Heads:
    """Read heads, and remember those that clients send again and again.

    Args:
        guard: decides who may call.

    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._generation = 0
        self._reads: dict[bytes, Head] = {}
        self._submits: dict[bytes, Head] = {}

    def look_at_the_keys(self) -> None:
        """Forget the heads whose keys may open something else by now."""
        generation = self._guard.generation()
        if generation != self._generation:
            self._reads.clear()
            self._submits.clear()
            self._generation = generation

    def of_read(self, lines: bytes) -> Head | None:
        """Return what the header lines of a GET ask for, None unless they are ordinary."""
        return self._reads.get(lines) or self._parsed(lines, _READ, self._reads)

    def of_submit(self, lines: bytes) -> Head | None:
        """Return what the header lines of a POST ask for, None unless they are ordinary."""
        return self._submits.get(lines) or self._parsed(lines, _SUBMIT, self._submits)

    def _parsed(
        self, lines: bytes, allowed: frozenset[str], remembered: dict[bytes, Head]
    ) -> Head | None:
        values = _fields(lines, allowed)
        if values is None:
            return None
        head = self._head(values, allowed)
        # One whose key was wrong is not remembered, and so cannot be told from a new one by time.
        if head is not None and len(lines) <= _LONGEST_REMEMBERED and not _ITS_OWN & values.keys():
            if len(remembered) >= MAX_REMEMBERED:
                remembered.clear()
            remembered[lines] = head
        return head

    def _head(self, values: dict[str, str], allowed: frozenset[str]) -> Head | None:
        length = 0
        if allowed is _SUBMIT:
            digits = values.get("content-length", "")
            if "content-type" not in values or not _LENGTH.fullmatch(digits):
                return None
            length = int(digits)
        host = values.get("host", "")
        if length > MAX_BODY or not _HOST.fullmatch(host):
            return None
        key = values.get("idempotency-key")
        request_id, traceparent = values.get("x-request-id"), values.get("traceparent")
        try:
            self._guard.check_origin(host=host, origin=None, fetch_site=None)
            caller = self._guard.caller(values.get("authorization"))
            if (Scope.RUN if allowed is _SUBMIT else Scope.READ) not in caller.scopes:
                return None
            return Head(
                tenant=caller.tenant,
                request_id=request_id and negotiate.request_id(request_id),
                traceparent=traceparent and negotiate.traceparent(traceparent),
                if_none_match=values.get("if-none-match"),
                length=length,
                idempotency_key=negotiate.idempotency_key(key) if key else "",
            )
        except AsyncNodesError:
            return None


def _fields(lines: bytes, allowed: frozenset[str]) -> dict[str, str] | None:
    """Return the values by lower-case name, None unless every line is plain and allowed."""
    values: dict[str, str] = {}
    for line in lines.split(b"\r\n")[:-1]:
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        name, value = found[1].decode("ascii").lower(), found[2].decode("ascii")
        if name not in allowed or name in values:
            return None
        choices = _ONE_OF.get(name)
        if choices is not None and value.lower() not in choices:
            return None
        values[name] = value
    return values
