"""Beside the way: which addresses a node may call.

Decides about a URL and about every address its host name resolves to; never connects. The check
is made on what `getaddrinfo` answers, so each spelling of an address (decimal, octal, hex, short
IPv4 forms, full-width digits) is judged by what it means. The caller must connect to the
addresses returned here and must not resolve again, or a second DNS answer could differ.

Not detectable: a NAT64 prefix of the network's own inside 2000::/3 (RFC 7050).
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, quote, urlsplit

from async_nodes.core.errors import RetryableError, TerminalError

SCHEMES = {"http": 80, "https": 443}
MAX_URL = 8_192
MAX_PORT = 65_535

_FORBIDDEN = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\\]")
_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9_])?")
# Characters that keep their meaning in a path or query; everything else is percent-encoded.
_SAFE = "/:?#[]@!$&'()*+,;=%-._~|{}\"<>^`"

_V4_REFUSED = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; holds 100.100.100.200 (Alibaba metadata)
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's wire server: a public number with a private meaning
        "169.254.0.0/16",  # link-local; holds 169.254.169.254 (metadata)
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF assignments; holds 192.0.0.192 (Oracle metadata)
        "192.0.2.0/24",
        "192.88.99.0/24",  # 6to4 relay
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Only global unicast is considered at all: this leaves out ::, ::1, v4-mapped, NAT64 (64:ff9b::/96
# and 64:ff9b:1::/48), fc00::/7 (fd00:ec2::254 is AWS metadata), fe80::/10, fec0::/10, ff00::/8.
_V6_GLOBAL = ipaddress.IPv6Network("2000::/3")
_V6_REFUSED = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # IETF assignments; holds 2001::/32 (Teredo)
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
    )
)


class Address(NamedTuple):
    """One checked answer of name resolution: what `socket.socket` and `connect` take."""

    family: int
    sockaddr: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """Hold the parts of a checked URL.

    Attributes:
        scheme: ``http`` or ``https``.
        host: lower-case ASCII name or address, without brackets.
        port: the port to connect to.
        path: path and query as sent in the request line.

    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Return what two URLs must share for secrets to travel along a redirect."""
        return (self.scheme, self.host, self.port)

    @property
    def netloc(self) -> str:
        """Return ``host:port`` as the allow list spells it."""
        return _netloc(self.host, self.port)


class Guard:
    """Refuse addresses that are not public.

    Args:
        allow: ``host:port`` entries that are let through unchecked, compared with the URL as it
            is written (``localhost:9999`` does not allow ``127.0.0.1:9999``); IPv6 in brackets.

    """

    def __init__(self, allow: frozenset[str] = frozenset()) -> None:
        self._allow = frozenset(entry.strip().lower() for entry in allow)

    def check(self, url: str) -> Target:
        """Return the parts of a URL that may be called, before any name is resolved.

        Raises:
            TerminalError: ``egress_refused`` for another scheme, user info, control characters
                or anything that is not plainly host and port.

        """
        if len(url) > MAX_URL:
            _refuse(f"the URL is longer than {MAX_URL} characters")
        if _FORBIDDEN.search(url):
            _refuse("the URL holds a space, backslash or control character")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            _refuse(f"the URL is not valid: {error}")
        scheme = parts.scheme.lower()
        if scheme not in SCHEMES:
            _refuse(f"only http and https URLs may be called, not {scheme or 'a relative one'!r}")
        if "@" in parts.netloc:
            _refuse("the URL holds user information; send credentials in a header")
        if port == 0 or parts.netloc.endswith(":"):
            _refuse("the URL's port is not valid")
        return Target(
            scheme=scheme, host=_host(parts), port=port or SCHEMES[scheme], path=_path(parts)
        )

    def resolve(self, host: str, port: int) -> list[Address]:
        """Return the addresses to connect to, all of them checked.

        Raises:
            TerminalError: ``egress_refused`` unless every answer is a public address or exactly
                ``host:port`` is allowed.
            RetryableError: ``egress_failed`` when the name cannot be resolved.

        """
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            message = f"the name {host!r} could not be resolved: {error}"
            raise RetryableError(message, code="egress_failed") from error
        addresses = [Address(family, sockaddr) for family, _, _, _, sockaddr in answers]
        if not addresses:
            raise RetryableError(f"the name {host!r} has no address", code="egress_failed")
        if _netloc(host.lower(), port) not in self._allow:
            for address in addresses:
                if not is_public(str(address.sockaddr[0])):
                    # Without the address: refusals must not map a private network's names.
                    _refuse(f"{_netloc(host, port)} is not a public address")
        return addresses


def is_public(text: str) -> bool:
    """Tell whether an IP address (with or without a zone) is globally reachable unicast."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not any(address in network for network in _V4_REFUSED)
    return (
        address in _V6_GLOBAL
        and address.is_global
        and not any(address in network for network in _V6_REFUSED)
    )


def _host(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            _refuse("the URL's IPv6 address is not valid")
        if address.scope_id is not None:
            _refuse("the URL's IPv6 address holds a zone")
        return str(address)
    try:
        # The same mapping that browsers use for full-width digits and dots.
        host = host.encode("idna").decode("ascii").lower().removesuffix(".")
    except UnicodeError:
        _refuse("the URL's host name is not valid")
    if not _HOST_NAME.fullmatch(host):
        _refuse("the URL's host name is not valid")
    return host


def _path(parts: SplitResult) -> str:
    path = parts.path or "/"
    return quote(f"{path}?{parts.query}" if parts.query else path, safe=_SAFE)


def _netloc(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _refuse(reason: str) -> NoReturn:
    raise TerminalError(reason, code="egress_refused")
