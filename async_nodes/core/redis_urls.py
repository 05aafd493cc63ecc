"""One Redis address in the two spellings that are in use, redis-py's and kombu's.

Pure: nothing is resolved or connected. Unix sockets are where they differ most:
``unix:///path?db=1`` for redis-py, ``redis+socket:///path?virtual_host=1`` for kombu and Celery.
Addresses of Sentinels are in `core.sentinel_urls`: redis-py has no spelling for them, ours stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from async_nodes.core.redacted import masked
from async_nodes.core.sentinel_urls import is_sentinel, parse_sentinel
from async_nodes.core.setting_values import invalid_setting

TCP: Final = frozenset({"redis", "rediss"})
SOCKET: Final = frozenset({"unix", "redis+socket"})
KOMBU_TLS: Final = frozenset(
    {
        "ssl_ca_certs",
        "ssl_ca_path",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_ciphers",
        "ssl_keyfile",
        "ssl_password",
    }
)
"""The TLS options whose values kombu reads from an address."""

CERTIFICATE_WORDS: Final = {
    "CERT_REQUIRED": "required",
    "CERT_OPTIONAL": "optional",
    "CERT_NONE": "none",
}


def is_redis(url: object) -> bool:
    """Tell whether ``url`` is an address that `kombu_url` can spell."""
    return isinstance(url, str) and (url.partition("://")[0] in TCP | SOCKET or is_sentinel(url))


def kombu_url(url: str) -> str:
    """Return the address as kombu and Celery spell it.

    A unix socket becomes ``redis+socket:///path?virtual_host=DB``. Options in the query that are
    not about TLS are dropped: kombu takes those from ``broker_transport_options``.

    Raises:
        AsyncNodesError: ``invalid_setting``: not an address of a Redis server.

    """
    if is_sentinel(url):
        return parse_sentinel(url).kombu_url
    parts, options = address(url)
    database = database_of(parts, options)
    if parts.scheme in SOCKET:
        path = quote(unquote(parts.path))
        return f"redis+socket://{credentials(parts)}{path}?virtual_host={database}"
    options = {name: value for name, value in options.items() if name in KOMBU_TLS}
    if parts.scheme == "rediss":
        # Celery refuses to guess; redis-py's own default is to check.
        options.setdefault("ssl_cert_reqs", "required")
    return f"{parts.scheme}://{parts.netloc}/{database}" + query(options)


def redis_py_url(url: str) -> str:
    """Return the address as redis-py spells it: ``unix:///path?db=DB`` for a unix socket.

    Raises:
        AsyncNodesError: ``invalid_setting``: not an address of a Redis server.

    """
    if is_sentinel(url):
        return parse_sentinel(url).url
    parts, options = address(url)
    database = database_of(parts, options)
    options = {n: v for n, v in options.items() if n not in {"db", "virtual_host"}}
    if "ssl_cert_reqs" in options:
        word = options["ssl_cert_reqs"]
        options["ssl_cert_reqs"] = CERTIFICATE_WORDS.get(word, word)
    if parts.scheme in SOCKET:
        path = quote(unquote(parts.path))
        return f"unix://{credentials(parts)}{path}{query({'db': str(database), **options})}"
    return f"{parts.scheme}://{parts.netloc}/{database}{query(options)}"


def with_password(url: str, password: str) -> str:
    """Return an address with a password that was kept apart from it.

    Raises:
        AsyncNodesError: ``invalid_setting``: it has one already, or is no address.

    """
    if is_sentinel(url):
        found = parse_sentinel(url)
        if found.password is None:
            return replace(found, password=password).url
    else:
        parts, _ = address(url)
        if parts.password is None:
            who = quote(unquote(parts.username or ""), safe="")
            place = parts.netloc.rpartition("@")[2]
            secret = quote(password, safe="")
            return parts._replace(netloc=f"{who}:{secret}@{place}").geturl()
    raise invalid_setting(
        "ASYNC_NODES_REDIS_URL",
        "holds a password, so ASYNC_NODES_REDIS_PASSWORD_FILE must not be set",
    )


def address(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Split an address and its options, or refuse it without repeating a password."""
    refused = invalid_setting(
        "ASYNC_NODES_REDIS_URL",
        "and the Celery addresses must be redis://host:port/db, rediss://host:port/db, "
        "unix:///path?db=db, redis+socket:///path?virtual_host=db or "
        f"sentinel://host:port;host:port/db?master_name=name, not {masked(url)!r}",
    )
    try:
        parts = urlsplit(url.strip())
        _ = parts.port  # not a number: ValueError
    except ValueError:
        raise refused from None
    on_socket = parts.scheme in SOCKET and len(parts.path) > 1 and not parts.hostname
    on_tcp = parts.scheme in TCP and bool(parts.hostname)
    if parts.fragment or not (on_socket or on_tcp):
        raise refused
    return parts, dict(parse_qsl(parts.query))


def database_of(parts: SplitResult, options: Mapping[str, str]) -> int:
    """Return the number of the database that an address names, 0 if none."""
    path = "" if parts.scheme in SOCKET else parts.path.strip("/")
    text = options.get("db") or options.get("virtual_host") or path or "0"
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise invalid_setting(
            "ASYNC_NODES_REDIS_URL", f"names database {text!r}, which is not a number"
        )
    return int(text)


def credentials(parts: SplitResult) -> str:
    """Return ``user:password@`` of an address as it was written, or nothing."""
    return parts.netloc.rpartition("@")[0] + "@" if "@" in parts.netloc else ""


def query(options: Mapping[str, str]) -> str:
    """Return ``options`` as the query of an address, or nothing."""
    return f"?{urlencode(options)}" if options else ""
