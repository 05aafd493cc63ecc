"""Read the settings once, into one frozen object.

Core level: every step of the way is handed a `Settings`; nothing else reads the environment. May
know the standard library only. What Celery knows by name is checked where Celery is imported, with
`refuse_unknown_celery_names`.

Precedence: environment, then the module ``settings`` (the file to edit), then the defaults of
`Settings`. An empty variable counts as absent, which is what ``${NAME:-}`` in a compose file means.
"""

from __future__ import annotations

import difflib
import importlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.files import FileLimits
from async_nodes.core.log_levels import LEVELS
from async_nodes.core.redacted import without_secrets
from async_nodes.core.redis_urls import is_redis, kombu_url, redis_py_url, with_password
from async_nodes.core.sentinel_urls import is_sentinel, parse_sentinel
from async_nodes.core.setting_values import invalid_setting, parse, read_tuple

__all__ = [
    "Settings",
    "apply_environment",
    "kombu_url",
    "redis_py_url",
    "refuse_unknown_celery_names",
]

CELERY: Final = "CELERY_"
OURS: Final = "ASYNC_NODES_"

DEFAULT_BROKER_URL: Final = "redis://localhost:6379/1"
DEFAULT_RESULT_BACKEND: Final = "redis://localhost:6379/2"

# Variables of that prefix which Celery's own processes read or set; they are no settings.
CELERY_PROCESS_VARIABLES: Final = frozenset(
    {
        "CELERY_BENCH",
        "CELERY_BENCH_EVERY",
        "CELERY_CONFIG_MODULE",
        "CELERY_CUSTOM_WORKER_POOL",
        "CELERY_LOADER",
        "CELERY_LOG_FILE",
        "CELERY_LOG_LEVEL",
        "CELERY_LOG_REDIRECT",
        "CELERY_LOG_REDIRECT_LEVEL",
        "CELERY_RDBSIG",
        "CELERY_RDB_HOST",
        "CELERY_RDB_PORT",
        "CELERY_SKIP_CHECKS",
        "CELERY_TRACE_APP",
    }
)
# A setting that Celery 5.7 reads but does not list among its own.
CELERY_UNLISTED: Final = frozenset({"result_backend_thread_safe"})

# Our names and their types; the values declared in settings.py are often None.
OUR_TYPES: Final[Mapping[str, type]] = {
    "ASYNC_NODES_API_KEY": str,
    "ASYNC_NODES_API_KEYS": bool,
    "ASYNC_NODES_API_KEY_FILE": str,
    "ASYNC_NODES_DATA_DIR": str,
    "ASYNC_NODES_EGRESS_ALLOW": tuple,
    "ASYNC_NODES_ENDPOINT_BREAKERS": bool,
    "ASYNC_NODES_ENDPOINT_BREAKER_OPEN_SECONDS": float,
    "ASYNC_NODES_ENDPOINT_BREAKER_WINDOW": float,
    "ASYNC_NODES_FILES_MAX_BYTES": int,
    "ASYNC_NODES_FILE_MAX_BYTES": int,
    "ASYNC_NODES_HOST": str,
    "ASYNC_NODES_IMPORTS": tuple,
    "ASYNC_NODES_KEY_PREFIX": str,
    "ASYNC_NODES_LEASE_SECONDS": float,
    "ASYNC_NODES_LOG_FORMAT": str,
    "ASYNC_NODES_LOG_TASKS": bool,
    "ASYNC_NODES_METRICS_BESIDE": tuple,
    "ASYNC_NODES_METRICS_HOST": str,
    "ASYNC_NODES_MAX_STREAMS": int,
    "ASYNC_NODES_METRICS_PORT": int,
    "ASYNC_NODES_PORT": int,
    "ASYNC_NODES_PROCESSES": int,
    "ASYNC_NODES_PYROSCOPE_URL": str,
    "ASYNC_NODES_REDIS_MAX_CONNECTIONS": int,
    "ASYNC_NODES_REDIS_PASSWORD_FILE": str,
    "ASYNC_NODES_REDIS_SENTINEL_PASSWORD_FILE": str,
    "ASYNC_NODES_REDIS_URL": str,
    "ASYNC_NODES_REDIS_WAIT_REPLICAS": int,
    "ASYNC_NODES_REDIS_WAIT_SECONDS": float,
    "ASYNC_NODES_SHUTDOWN_SECONDS": float,
    "ASYNC_NODES_TASK_LOG_LEVEL": str,
    "ASYNC_NODES_TLS_CERT": str,
    "ASYNC_NODES_TLS_KEY": str,
    "ASYNC_NODES_TRACE_SAMPLE": float,
    "ASYNC_NODES_TRANSPORT": str,
    "ASYNC_NODES_WRITE_SCHEMA": int,
}


@dataclass(frozen=True, slots=True)
class CeleryPlace:
    """Name the settings of Celery's that say where a server is and how to speak to it.

    Attributes:
        url, options, tls: Celery's names of the address and of what belongs to it.

    """

    url: str
    options: str
    tls: str

    def spelled(self, url: str, celery: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a server, by Celery's names.

        Args:
            url: its address; where it is one of Sentinels in kombu's spelling, the rest is in
                `celery`.
            celery: the settings so far.

        """
        if not is_sentinel(url):
            return {self.url: kombu_url(url)}
        address = parse_sentinel(self.whole(url, celery))
        options = {**(celery.get(self.options) or {}), **address.transport_options()}
        said = {self.url: address.kombu_url, self.options: options}
        return {**said, self.tls: address.tls_options()} if address.tls else said

    def whole(self, url: str, celery: Mapping[str, Any]) -> str:
        """Return a server's address with what kombu keeps beside one of Sentinels."""
        if not is_sentinel(url):
            return url
        return parse_sentinel(url, celery.get(self.options), tls=celery.get(self.tls)).url


BROKER: Final = CeleryPlace("broker_url", "broker_transport_options", "broker_use_ssl")
RESULTS: Final = CeleryPlace(
    "result_backend", "result_backend_transport_options", "redis_backend_use_ssl"
)
CELERY_PLACES: Final = (BROKER, RESULTS)


# -- the object ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold every setting, checked.

    Attributes:
        redis_url: where broker and store are, in redis-py's spelling or as Sentinels (see
            `core.sentinel_urls`); None when nobody said, and the embedded server is meant.
        redis_max_connections: how many connections a gevent process may send its commands by;
            None for one that all its greenlets share.
        redis_wait_replicas: how many replicas must have a task before it counts as accepted; None
            for none.
        redis_wait_seconds: how long they are waited for.
        host, port: where the web process listens (port 0: any free one).
        processes: web processes that share the port, looked after by one more; None for a single
            one on its own.
        tls_cert, tls_key: PEM files with which the web process speaks TLS; None for plain HTTP. A
            key that is None is in the certificate's file.
        data_dir: absolute path for the embedded server's data.
        imports: modules that define nodes.
        lease_seconds: how long a worker's silence is believed to be life, at least 1.
        transport: how an I/O worker takes messages: ``fast`` (pop and claim in one script) or
            ``stock`` (kombu).
        task_log_level: what a node logs so severely is kept with its task, a key of
            `core.log_levels.LEVELS`.
        write_schema: the layout in which new tasks are stored; None for this release's own. During
            an upgrade process by process, the one of the release before.
        shutdown_seconds: how long a stopping worker waits for its running tasks.
        egress_allow: ``host:port`` entries that nodes may call though they are not public.
        endpoint_breakers: whether every host that ``llm.chat`` and ``http.request`` call has a
            breaker.
        endpoint_breaker_window: seconds over which such a host's failures are counted.
        endpoint_breaker_open_seconds: how long calls of it are refused.
        file_max_bytes, files_max_bytes: bytes that one file, and all files of a tenant, may have.
        key_prefix: what every Redis key begins with.
        metrics_port: where workers serve ``/metrics``, and the first of several web processes;
            None for nowhere.
        metrics_host: where those ports listen.
        pyroscope_url: the Pyroscope server that profiles go to, None for none.
        log_format: ``console`` for people, ``json`` for machines.
        log_tasks: whether each change of a task's state is a line in the log.
        trace_sample: the share of requests without a trace of their own that are traced, 0 to 1;
            None for no spans at all.
        metrics_beside: ``name=host:port`` of processes whose metrics the web process shows too.
        api_key: a key that may do everything, or None.
        api_keys: whether the keys of ``async-nodes keys`` count. With neither: loopback only.
        max_streams: event streams of one key that may be open in one web process.
        soft_time_limit, time_limit: seconds, defaults of a node (``CELERY_TASK_*_TIME_LIMIT``).
        celery: Celery's settings by Celery's own names (``broker_url``, …), read-only.

    """

    redis_url: str | None = None
    redis_max_connections: int | None = None
    redis_wait_replicas: int | None = None
    redis_wait_seconds: float = 0.3
    host: str = "127.0.0.1"
    port: int = 8000
    processes: int | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    data_dir: str = field(default_factory=lambda: default_data_dir(os.environ))
    imports: tuple[str, ...] = ()
    lease_seconds: float = 15.0
    transport: str = "fast"
    task_log_level: str = "info"
    write_schema: int | None = None
    shutdown_seconds: float = 20.0
    egress_allow: tuple[str, ...] = ()
    endpoint_breakers: bool = True
    endpoint_breaker_window: float = 10.0
    endpoint_breaker_open_seconds: float = 30.0
    file_max_bytes: int = 64 << 20
    files_max_bytes: int = 1 << 30
    key_prefix: str = "an"
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    metrics_beside: tuple[str, ...] = ()
    trace_sample: float | None = None
    pyroscope_url: str | None = None
    log_format: str = "console"
    log_tasks: bool = False
    api_key: str | None = field(default=None, repr=False)
    api_keys: bool = False
    max_streams: int = 5_000
    soft_time_limit: float = 300.0
    time_limit: float = 330.0
    celery: Mapping[str, Any] = field(
        default_factory=lambda: MappingProxyType({}), repr=False, hash=False
    )

    def __post_init__(self) -> None:
        """Refuse values that cannot work, by the name a person would have to change."""
        check(self)

    @classmethod
    def load(
        cls, environ: Mapping[str, str] = os.environ, module: object | None = None
    ) -> Settings:
        """Read the settings of ``environ`` over those of ``module`` (default: ``settings``).

        Raises:
            AsyncNodesError: ``unknown_setting`` (with a suggestion) or ``invalid_setting``.

        """
        declared = declarations(importlib.import_module("settings") if module is None else module)
        values = resolve(declared, environ)
        celery = {
            name.removeprefix(CELERY).lower(): value
            for name, value in values.items()
            if name.startswith(CELERY)
        }
        limits = {
            name: celery[f"task_{name}"]
            for name in ("soft_time_limit", "time_limit")
            if celery.get(f"task_{name}") is not None
        }
        return cls(celery=MappingProxyType(celery), **limits, **our_fields(values, environ))

    @classmethod
    def for_host(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the settings inside an app that is not ours: from the environment alone.

        A module named ``settings`` is that app's own business. Raises what `load` raises.
        """
        return cls.load(environ, SimpleNamespace())

    @property
    def broker_url(self) -> str:
        """Return the broker's address in kombu's spelling."""
        return str(self.celery.get("broker_url") or DEFAULT_BROKER_URL)

    @property
    def file_limits(self) -> FileLimits:
        """Return what files may take."""
        return FileLimits(self.file_max_bytes, self.files_max_bytes)

    @property
    def store_url(self) -> str:
        """Return the store's address in redis-py's spelling: `redis_url`, else the broker's."""
        return self.redis_url or redis_py_url(self.broker_url)

    def with_redis_url(self, url: str) -> Settings:
        """Return these settings for the server at ``url``, as for one that was just started."""
        celery = dict(self.celery)
        url = BROKER.whole(url, celery)
        for place in CELERY_PLACES:
            celery |= place.spelled(url, celery)
        return replace(self, redis_url=redis_py_url(url), celery=MappingProxyType(celery))

    def shown(self) -> dict[str, Any]:
        """Return the values for a person to read: plain JSON types, secrets masked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown: dict[str, Any] = without_secrets(values)
        return shown


def check(settings: Settings) -> None:
    """Refuse a value that cannot work.

    Raises:
        AsyncNodesError: ``invalid_setting``, naming the setting.

    """
    for name, valid, wanted in RULES:
        value = getattr(settings, name)
        if value is not None and not holds(valid, value):
            shown = "the value given" if name == "api_key" else repr(value)
            raise invalid_setting(OURS + name.upper(), f"{wanted}, not {shown}")
    if settings.tls_key is not None and settings.tls_cert is None:
        raise invalid_setting("ASYNC_NODES_TLS_KEY", "needs ASYNC_NODES_TLS_CERT beside it")
    limits = (settings.soft_time_limit, settings.time_limit)
    if not holds(lambda pair: 0 < pair[0] < pair[1], limits):
        message = (
            f"must be above 0 and below CELERY_TASK_TIME_LIMIT, not {limits[0]} and {limits[1]}"
        )
        raise invalid_setting("CELERY_TASK_SOFT_TIME_LIMIT", message)


def holds(rule: Callable[[Any], bool], value: object) -> bool:
    """Tell whether ``value`` passes ``rule``; one of another type does not."""
    try:
        return rule(value)
    except (AttributeError, TypeError):
        return False


def is_host(value: str) -> bool:
    """Tell whether ``value`` can be the name or the address of a host."""
    return bool(value.strip()) and not set(value) & set(" /@")


def is_port(value: object) -> bool:
    """Tell whether ``value`` is a TCP port, 0 for any."""
    return type(value) is int and 0 <= value <= 65_535  # noqa: PLR2004 - the highest port


def is_host_and_port(value: str) -> bool:
    """Tell whether ``value`` reads ``host:port``, an IPv6 host in brackets."""
    found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})", value)
    return found is not None and int(found[1]) > 0 and is_port(int(found[1]))


def is_size(value: object) -> bool:
    """Tell whether ``value`` is a number of bytes, up to 1 TiB."""
    return type(value) is int and 1 <= value <= 1 << 40


def is_module_name(value: str) -> bool:
    """Tell whether ``value`` can be imported by that name."""
    return all(part.isidentifier() for part in value.split("."))


# Setting, test, what is wanted.
RULES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("host", is_host, "must be a host or address"),
    ("port", is_port, "must be 0 to 65535"),
    ("processes", lambda v: type(v) is int and 1 <= v <= 64, "must be 1 to 64"),  # noqa: PLR2004
    ("metrics_port", is_port, "must be 0 to 65535"),
    ("metrics_host", is_host, "must be a host or address"),
    ("log_format", lambda v: v in {"console", "json"}, "must be console or json"),
    (
        "pyroscope_url",
        lambda v: re.fullmatch(r"https?://[^\s/@]+(/\S*)?", v) is not None,
        "must be an address like http://pyroscope:4040",
    ),
    ("trace_sample", lambda v: 0 <= v <= 1, "must be 0 to 1"),
    (
        "metrics_beside",
        lambda v: all(
            re.fullmatch(r"[a-z0-9_ -]+=.+", e) and is_host_and_port(e.partition("=")[2]) for e in v
        ),
        "must be name=host:port entries, comma separated",
    ),
    ("imports", lambda v: all(map(is_module_name, v)), "must be modules, comma separated"),
    ("lease_seconds", lambda v: 1 <= v <= 3600, "must be 1 to 3600"),  # noqa: PLR2004 - as it says
    ("shutdown_seconds", lambda v: 0 <= v <= 86_400, "must be 0 to 86400"),  # noqa: PLR2004
    ("transport", lambda v: v in {"fast", "stock"}, "must be fast or stock"),
    ("task_log_level", lambda v: v in LEVELS, f"must be one of {', '.join(LEVELS)}"),
    (
        "redis_max_connections",
        lambda v: type(v) is int and 1 <= v <= 1000,  # noqa: PLR2004 - as it says
        "must be 1 to 1000",
    ),
    (
        "redis_wait_replicas",
        lambda v: type(v) is int and 1 <= v <= 100,  # noqa: PLR2004 - as it says
        "must be 1 to 100",
    ),
    (
        "redis_wait_seconds",
        lambda v: 0.01 <= v <= 0.7,  # noqa: PLR2004 - as it says
        "must be 0.01 to 0.7: a request waits for the store for 0.8 s in all",
    ),
    (
        "endpoint_breaker_window",
        lambda v: 0.1 <= v <= 3600,  # noqa: PLR2004 - as it says
        "must be 0.1 to 3600",
    ),
    (
        "endpoint_breaker_open_seconds",
        lambda v: 0.1 <= v <= 3600,  # noqa: PLR2004 - as it says
        "must be 0.1 to 3600",
    ),
    (
        "max_streams",
        lambda v: type(v) is int and 1 <= v <= 1_000_000,  # noqa: PLR2004 - as it says
        "must be 1 to 1000000",
    ),
    ("file_max_bytes", is_size, "must be 1 to 1099511627776 bytes"),
    ("files_max_bytes", is_size, "must be 1 to 1099511627776 bytes"),
    (
        "egress_allow",
        lambda v: all(map(is_host_and_port, v)),
        "must be host:port entries, comma separated",
    ),
    (
        # Braces would move a key to another shard; `storage.keys` has the same rule.
        "key_prefix",
        lambda v: re.fullmatch(r"[A-Za-z0-9_-]{1,32}", v) is not None,
        "must be 1 to 32 letters, digits or _ -",
    ),
    (
        # It has to travel in a header.
        "api_key",
        lambda v: re.fullmatch(r"[!-~]{1,512}", v) is not None,
        "must be 1 to 512 visible ASCII characters without spaces",
    ),
)


# -- reading ---------------------------------------------------------------------------------------


def apply_environment(
    namespace: MutableMapping[str, Any], environ: Mapping[str, str] | None = None
) -> None:
    """Put the environment's values over the ones declared in ``namespace``, a module's globals.

    The declared ones stay readable under ``DECLARED``, for `Settings.load` with another
    environment.

    Raises:
        AsyncNodesError: ``unknown_setting`` or ``invalid_setting``.

    """
    declared = {name: value for name, value in namespace.items() if is_setting(name)}
    namespace["DECLARED"] = MappingProxyType(declared)
    namespace.update(resolve(declared, os.environ if environ is None else environ))
    if environ is None:
        # Celery reads these two from the environment itself, past the module, and does not know
        # redis-py's spelling of a unix socket.
        for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
            if os.environ.get(name, "").strip():
                os.environ[name] = namespace[name]


def declarations(module: object) -> Mapping[str, Any]:
    """Return what ``module`` (a module, or a mapping) declares, before any environment."""
    names: Mapping[str, Any] = module if isinstance(module, Mapping) else vars(module)
    declared: Mapping[str, Any] = names.get("DECLARED", names)
    return {name: value for name, value in declared.items() if is_setting(name)}


def is_setting(name: str) -> bool:
    """Tell whether ``name`` belongs to Celery's or to our settings."""
    return name.startswith((CELERY, OURS)) and name not in CELERY_PROCESS_VARIABLES


def resolve(declared: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the values in force: ``environ`` over ``declared``, the one Redis address spread."""
    given = {name: text for name, text in environ.items() if is_setting(name) and text.strip()}
    refuse_unknown((n for n in (*declared, *given) if n.startswith(OURS)), OUR_TYPES)
    values = {
        **declared,
        **{n: parse(n, t, like=OUR_TYPES.get(n, declared.get(n))) for n, t in given.items()},
    }
    if "global_keyprefix" in (values.get("CELERY_BROKER_TRANSPORT_OPTIONS") or ()):
        why = "may not hold global_keyprefix: set ASYNC_NODES_KEY_PREFIX, which every key obeys"
        raise invalid_setting("CELERY_BROKER_TRANSPORT_OPTIONS", why)
    values[OURS + "REDIS_URL"] = url = whole_address(values)
    return {**values, **celery_addresses(url, values, given)}


def celery_addresses(
    url: str | None, values: Mapping[str, Any], given: Iterable[str]
) -> dict[str, Any]:
    """Return Celery's settings about its servers: `url`, but for what is `given` by itself."""
    celery = {name.removeprefix(CELERY).lower(): value for name, value in values.items()}
    found: dict[str, Any] = {}
    for place in CELERY_PLACES:
        own = celery.get(place.url)
        if url and CELERY + place.url.upper() not in given:
            found |= place.spelled(url, celery)
        elif isinstance(own, str) and is_redis(own):
            found |= place.spelled(own, celery)
    return {CELERY + name.upper(): value for name, value in found.items()}


def whole_address(values: Mapping[str, Any]) -> str | None:
    """Return `ASYNC_NODES_REDIS_URL` with the passwords that are kept in files."""
    url: str | None = values.get(OURS + "REDIS_URL")
    for name in ("REDIS_PASSWORD_FILE", "REDIS_SENTINEL_PASSWORD_FILE"):
        path = values.get(OURS + name)
        if not path:
            continue
        if not url:
            raise invalid_setting(OURS + name, "needs ASYNC_NODES_REDIS_URL beside it")
        secret = read_secret(path, OURS + name)
        if name == "REDIS_PASSWORD_FILE":
            url = with_password(url, secret)
        elif is_sentinel(url):
            url = replace(parse_sentinel(url), sentinel_password=secret).url
        else:
            raise invalid_setting(OURS + name, "is for an address of Sentinels")
    return url


def our_fields(values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of `Settings` that the ``ASYNC_NODES_*`` values in force stand for."""
    ours = {
        name.removeprefix(OURS).lower(): value
        for name, value in values.items()
        if name.startswith(OURS) and value is not None
    }
    key_file = ours.pop("api_key_file", None)
    if key_file is not None:
        if "api_key" in ours:
            raise invalid_setting(
                OURS + "API_KEY", "is set, so ASYNC_NODES_API_KEY_FILE must not be"
            )
        ours["api_key"] = read_secret(key_file, OURS + "API_KEY_FILE")
    for name in ("redis_password_file", "redis_sentinel_password_file"):
        ours.pop(name, None)  # in the address by now
    for name in ("imports", "egress_allow", "metrics_beside"):
        words = ours.get(name, ())
        ours[name] = read_tuple(words) if isinstance(words, str) else tuple(words)
    data_dir = Path(ours.get("data_dir") or default_data_dir(environ))
    ours["data_dir"] = str(data_dir.expanduser().absolute())
    ours["redis_url"] = store_url(values, environ)
    return ours


def store_url(values: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Return where the store is, None when nobody chose a server.

    A broker address that is in the environment, or is not the shipped one, was chosen, so the
    store goes there too: on one server a submit is one transaction.
    """
    url = values.get(OURS + "REDIS_URL")
    if url:
        return redis_py_url(url)
    broker = values.get("CELERY_BROKER_URL")
    chosen = environ.get("CELERY_BROKER_URL", "").strip() or broker != DEFAULT_BROKER_URL
    if not broker or not chosen:
        return None
    celery = {name: values.get(CELERY + name.upper()) for name in (BROKER.options, BROKER.tls)}
    return redis_py_url(BROKER.whole(broker, celery))


def read_secret(path: str, name: str) -> str:
    """Return what is in the file ``path`` without the newline an editor leaves.

    Raises:
        AsyncNodesError: ``invalid_setting``, naming the setting ``name``: it cannot be read, or
            nothing is in it.

    """
    try:
        secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise invalid_setting(name, f"cannot be read: {error}") from error
    if not secret:
        raise invalid_setting(name, f"names an empty file, {path}")
    return secret


def default_data_dir(environ: Mapping[str, str]) -> str:
    """Return ``.data`` in a checkout, else the user's data directory (XDG)."""
    root = Path(__file__).resolve().parents[1]
    if (root / "run").is_file() and (root / "setup.cfg").is_file():
        return str(root / ".data")
    home = environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111
    return str(Path(home) / "async-nodes")


# -- refusing --------------------------------------------------------------------------------------


def refuse_unknown(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first of ``names`` that is not in ``known``.

    Raises:
        AsyncNodesError: ``unknown_setting``, with the nearest known name if one is near.

    """
    known = frozenset(known)
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
            hint = f", did you mean {near[0]}?" if near else ""
            raise AsyncNodesError("unknown_setting", f"there is no setting {name}{hint}")


def refuse_unknown_celery_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a ``CELERY_*`` name that Celery does not know; Celery itself would ignore it.

    Args:
        names: names as in ``settings`` or the environment, with the prefix; others are passed over.
        known: Celery's own names (``celery.app.defaults.SETTING_KEYS``): lower case, no prefix.

    Raises:
        AsyncNodesError: ``unknown_setting``, with the nearest known name if one is near.

    """
    ours = (name for name in names if name.startswith(CELERY) and is_setting(name))
    refuse_unknown(ours, (CELERY + name.upper() for name in CELERY_UNLISTED.union(known)))
