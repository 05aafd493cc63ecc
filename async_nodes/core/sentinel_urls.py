"""Where a server is that Redis Sentinel watches over: one address, and what others make of it.

Pure: nobody is asked anything. The address names the Sentinels, the name under which they watch
the server, and how to speak to either::

    sentinel://user:password@a:26379;b:26379;c:26379/0?master_name=mymaster&sentinel_password=…

kombu spells it as one address per Sentinel, and takes the rest from its transport options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode

from async_nodes.core.redacted import masked
from async_nodes.core.setting_values import FALSE, TRUE, invalid_setting

SCHEME: Final = "sentinel://"
PORT: Final = 26379
ASK_SECONDS: Final = 1.0
"""What one Sentinel may take to answer before the next is asked."""

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:;/?#@\s]+)(?::([0-9]{1,5}))?")
_OURS: Final = (
    "db",
    "master_name",
    "min_other_sentinels",
    "sentinel_password",
    "sentinel_ssl",
    "sentinel_username",
    "ssl",
    "virtual_host",
)
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """Hold an address, taken apart.

    Attributes:
        sentinels: host (an IPv6 one in brackets) and port of each.
        name: under which they watch the server.
        database: its number on the server.
        user, password: for the server; None for none.
        sentinel_user, sentinel_password: for the Sentinels.
        others: how many other Sentinels one must know of to be believed.
        tls, sentinel_tls: whether the server, and the Sentinels, speak TLS.
        options: of each connection, in redis-py's names, such as ``ssl_ca_certs``.

    """

    sentinels: tuple[tuple[str, int], ...]
    name: str
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_user: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    others: int = 0
    tls: bool = False
    sentinel_tls: bool = False
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def url(self) -> str:
        """Return the address in this module's spelling."""
        hosts = ";".join(f"{host}:{port}" for host, port in self.sentinels)
        query: dict[str, object] = {"master_name": self.name}
        if self.others:
            query["min_other_sentinels"] = self.others
        if self.sentinel_user is not None:
            query["sentinel_username"] = self.sentinel_user
        if self.sentinel_password is not None:
            query["sentinel_password"] = self.sentinel_password
        if self.tls:
            query["ssl"] = "true"
        if self.sentinel_tls != self.tls:
            query["sentinel_ssl"] = str(self.sentinel_tls).lower()
        who = _credentials(self.user, self.password)
        return f"{SCHEME}{who}{hosts}/{self.database}?{urlencode({**query, **self.options})}"

    def server_url(self, host: str, port: int) -> str:
        """Return the address of the server that a Sentinel has named, as redis-py takes it."""
        who = _credentials(self.user, self.password)
        place = f"[{host}]" if ":" in host else host
        return f"{_scheme(self.tls)}://{who}{place}:{port}/{self.database}{self._query()}"

    def sentinel_urls(self) -> list[str]:
        """Return the address of each Sentinel, as redis-py takes it."""
        who = _credentials(self.sentinel_user, self.sentinel_password)
        query = self._query() if self.sentinel_tls else ""
        scheme = _scheme(self.sentinel_tls)
        return [f"{scheme}://{who}{host}:{port}/0{query}" for host, port in self.sentinels]

    @property
    def kombu_url(self) -> str:
        """Return the address as kombu and Celery spell it, one for each Sentinel."""
        who = _credentials(self.user, self.password)
        each = (f"{SCHEME}{who}{host}:{port}/{self.database}" for host, port in self.sentinels)
        return ";".join(each)

    def transport_options(self) -> dict[str, Any]:
        """Return what kombu and Celery's backend have to be told beside the address."""
        asking: dict[str, Any] = {
            "socket_connect_timeout": ASK_SECONDS,
            "socket_timeout": ASK_SECONDS,
        }
        if self.sentinel_user is not None:
            asking["username"] = self.sentinel_user
        if self.sentinel_password is not None:
            asking["password"] = self.sentinel_password
        if self.sentinel_tls:
            asking |= {"ssl": True, **self.tls_options()}
        return {
            "master_name": self.name,
            "min_other_sentinels": self.others,
            "sentinel_kwargs": asking,
        }

    def tls_options(self) -> dict[str, Any]:
        """Return the TLS options for kombu and Celery's backend; nothing without TLS."""
        if not self.tls:
            return {}
        given: dict[str, Any] = {
            name: value for name, value in self.options.items() if name.startswith("ssl_")
        }
        if "ssl_check_hostname" in given:
            given["ssl_check_hostname"] = given["ssl_check_hostname"].lower() in TRUE
        return {"ssl_cert_reqs": "required", **given}

    def _query(self) -> str:
        options = self.options
        if not self.tls:
            options = {name: v for name, v in options.items() if not name.startswith("ssl_")}
        return f"?{urlencode(options)}" if options else ""


def is_sentinel(url: object) -> bool:
    """Tell whether an address names Sentinels."""
    return isinstance(url, str) and url.strip().startswith(SCHEME)


def parse_sentinel(
    url: str,
    transport_options: Mapping[str, Any] | None = None,
    *,
    tls: Mapping[str, Any] | bool | None = None,
) -> SentinelAddress:
    """Take an address apart, in this module's spelling or kombu's.

    Args:
        url: the address.
        transport_options: kombu's, for what the address does not say.
        tls: kombu's ``broker_use_ssl``, for the same.

    Raises:
        AsyncNodesError: ``invalid_setting``, without repeating a password.

    """
    given = dict(transport_options or {})
    asking = given.get("sentinel_kwargs") or {}
    rest, _, query = url.strip().partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    user, password, hosts, path = _parts(rest, url)
    name = options.get("master_name") or given.get("master_name") or ""
    if not name:
        raise _refused("must name the server that the Sentinels watch: ?master_name=mymaster", url)
    kept = {word: value for word, value in options.items() if word not in _OURS}
    if isinstance(tls, Mapping):
        beside = {word: value for word, value in tls.items() if isinstance(value, str | bool)}
        kept = {**{word: str(value) for word, value in beside.items()}, **kept}
    speaks_tls = _flag(options, "ssl", bool(tls) or any(w.startswith("ssl_") for w in kept), url)
    return SentinelAddress(
        sentinels=hosts,
        name=str(name),
        database=_number(options.get("db") or options.get("virtual_host") or path or "0", url),
        user=user,
        password=password,
        sentinel_user=options.get("sentinel_username", asking.get("username")),
        sentinel_password=options.get("sentinel_password", asking.get("password")),
        others=_number(
            str(options.get("min_other_sentinels", given.get("min_other_sentinels", 0))), url
        ),
        tls=speaks_tls,
        sentinel_tls=_flag(options, "sentinel_ssl", speaks_tls, url),
        options=MappingProxyType(kept),
    )


def _parts(rest: str, url: str) -> tuple[str | None, str | None, tuple[tuple[str, int], ...], str]:
    """Return user, password, Sentinels and path of what stands before the query."""
    user = password = None
    path, hosts = "", []
    for text in rest.removesuffix(";").split(";"):
        place, _, below = text.removeprefix(SCHEME).partition("/")
        who, _, place = place.rpartition("@")
        if who and user is None and password is None:
            name, colon, secret = who.partition(":")
            user = unquote(name) or None
            password = unquote(secret) if colon else None
        found = _HOST.fullmatch(place)
        port = int(found[2] or PORT) if found else 0
        if found is None or not 0 < port <= _HIGHEST_PORT:
            raise _refused(
                "must name Sentinels as sentinel://host:26379;host:26379/0?master_name=mymaster",
                url,
            )
        hosts.append((found[1], port))
        path = path or below.strip("/")
    return user, password, tuple(hosts), path


def _scheme(tls: bool) -> str:  # noqa: FBT001 - of one question, inside this module
    return "rediss" if tls else "redis"


def _credentials(user: str | None, password: str | None) -> str:
    if user is None and password is None:
        return ""
    secret = "" if password is None else ":" + quote(password, safe="")
    return f"{quote(user or '', safe='')}{secret}@"


def _flag(options: Mapping[str, str], name: str, default: bool, url: str) -> bool:  # noqa: FBT001
    word = options.get(name, "").lower()
    if word and word not in TRUE | FALSE:
        raise _refused(f"says {name}={word}, which is neither true nor false,", url)
    return word in TRUE if word else default


def _number(text: str, url: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise _refused(f"holds {text!r} where a number is wanted", url)
    return int(text)


def _refused(why: str, url: str) -> Exception:
    return invalid_setting("ASYNC_NODES_REDIS_URL", f"{why}, not {masked(url)!r}")
