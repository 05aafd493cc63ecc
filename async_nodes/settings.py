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
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from async_nodes.core.errors import AsyncNodesError

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
# A Celery name that settings.py does not declare is read as JSON where it is JSON (4, true, null);
# what holds text by nature stays text, so that a password may be 1234.
TEXT: Final = re.compile(
    r"_(URL|BACKEND|USER|USERNAME|PASSWORD|KEY|NAME|PREFIX|HOST|VHOST|QUEUE|EXCHANGE|SERIALIZER"
    r"|FORMAT|DATEFMT|ID|TOKEN)$"
)
SECRET: Final = re.compile(r"(api_key|password|secret|secret_access_key|security_key|token)$")
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"0", "false", "no", "off"})


# -- the object ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Hold every setting, checked.

    Attributes:
        redis_url: where broker and store are, in redis-py's spelling; None when nobody said, and
            the embedded server is meant.
        host, port: where the web process listens (port 0: any free one).
        data_dir: absolute path for the embedded server's data.
        imports: modules that define nodes.
        lease_seconds: how long a worker's silence is believed to be life, at least 3.
        transport: ``stock`` (kombu's) or ``fast`` (ours).
        shutdown_seconds: how long a stopping worker waits for its running tasks.
        egress_allow: ``host:port`` entries that nodes may call though they are not public.
        key_prefix: what every Redis key begins with.
        metrics_port: where workers serve ``/metrics``; None for nowhere.
        api_key: the one key, or None: loopback only.
        soft_time_limit, time_limit: seconds, defaults of a node (``CELERY_TASK_*_TIME_LIMIT``).
        celery: Celery's settings by Celery's own names (``broker_url``, …), read-only.

    """

    redis_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: str = field(default_factory=lambda: default_data_dir(os.environ))
    imports: tuple[str, ...] = ()
    lease_seconds: float = 15.0
    transport: str = "stock"
    shutdown_seconds: float = 20.0
    egress_allow: tuple[str, ...] = ()
    key_prefix: str = "an"
    metrics_port: int | None = None
    api_key: str | None = field(default=None, repr=False)
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
        ours = {
            name.removeprefix(OURS).lower(): value
            for name, value in values.items()
            if name.startswith(OURS) and value is not None
        }
        key_file = ours.pop("api_key_file", None)
        if key_file is not None:
            if "api_key" in ours:
                raise invalid(OURS + "API_KEY", "set it or ASYNC_NODES_API_KEY_FILE, not both")
            ours["api_key"] = read_key(key_file)
        ours.setdefault("data_dir", default_data_dir(environ))
        ours["data_dir"] = str(Path(ours["data_dir"]).expanduser().absolute())
        celery = {
            name.removeprefix(CELERY).lower(): value
            for name, value in values.items()
            if name.startswith(CELERY)
        }
        ours["redis_url"] = store_url(values, environ)
        for name in ("imports", "egress_allow"):
            words = ours.get(name, ())
            ours[name] = read_tuple(words) if isinstance(words, str) else tuple(words)
        for name in ("soft_time_limit", "time_limit"):
            if celery.get(f"task_{name}") is not None:
                ours[name] = celery[f"task_{name}"]
        return cls(celery=MappingProxyType(celery), **ours)

    @property
    def broker_url(self) -> str:
        """Return the broker's address in kombu's spelling."""
        return str(self.celery.get("broker_url") or DEFAULT_BROKER_URL)

    @property
    def store_url(self) -> str:
        """Return the store's address in redis-py's spelling: `redis_url`, else the broker's."""
        return self.redis_url or redis_py_url(self.broker_url)

    def with_redis_url(self, url: str) -> Settings:
        """Return these settings for the server at ``url``, as for one that was just started."""
        addresses = {"broker_url": kombu_url(url), "result_backend": kombu_url(url)}
        celery = MappingProxyType({**self.celery, **addresses})
        return replace(self, redis_url=redis_py_url(url), celery=celery)

    def shown(self) -> dict[str, Any]:
        """Return the values for a person to read: plain JSON types, secrets masked."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        shown: dict[str, Any] = without_secrets(values)
        return shown


SETTING_NAMES: Final = frozenset(
    OURS + f.name.upper()
    for f in fields(Settings)
    if f.name not in {"celery", "soft_time_limit", "time_limit"}
) | {OURS + "API_KEY_FILE"}


def check(settings: Settings) -> None:
    """Refuse a value that cannot work.

    Raises:
        AsyncNodesError: ``invalid_setting``, naming the setting.

    """
    for name, valid, wanted in RULES:
        value = getattr(settings, name)
        if value is not None and not holds(valid, value):
            shown = "the value given" if name == "api_key" else repr(value)
            raise invalid(OURS + name.upper(), f"{wanted}, not {shown}")
    limits = (settings.soft_time_limit, settings.time_limit)
    if not holds(lambda pair: 0 < pair[0] < pair[1], limits):
        message = (
            f"must be above 0 and below CELERY_TASK_TIME_LIMIT, not {limits[0]} and {limits[1]}"
        )
        raise invalid("CELERY_TASK_SOFT_TIME_LIMIT", message)


def holds(rule: Callable[[Any], bool], value: object) -> bool:
    """Tell whether ``value`` passes ``rule``; one of another type does not."""
    try:
        return rule(value)
    except (AttributeError, TypeError):
        return False


def is_port(value: object) -> bool:
    """Tell whether ``value`` is a TCP port, 0 for any."""
    return type(value) is int and 0 <= value <= 65_535  # noqa: PLR2004 - the highest port


def is_host_and_port(value: str) -> bool:
    """Tell whether ``value`` reads ``host:port``, an IPv6 host in brackets."""
    found = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})", value)
    return found is not None and int(found[1]) > 0 and is_port(int(found[1]))


def is_module_name(value: str) -> bool:
    """Tell whether ``value`` can be imported by that name."""
    return all(part.isidentifier() for part in value.split("."))


# Setting, test, what is wanted.
RULES: Final[tuple[tuple[str, Callable[[Any], bool], str], ...]] = (
    ("host", lambda v: bool(v.strip()) and not set(v) & set(" /@"), "must be a host or address"),
    ("port", is_port, "must be 0 to 65535"),
    ("metrics_port", is_port, "must be 0 to 65535"),
    ("imports", lambda v: all(map(is_module_name, v)), "must name modules, comma separated"),
    ("lease_seconds", lambda v: 3 <= v <= 3600, "must be 3 to 3600"),  # noqa: PLR2004 - as it says
    ("shutdown_seconds", lambda v: 0 <= v <= 86_400, "must be 0 to 86400"),  # noqa: PLR2004
    ("transport", lambda v: v in {"fast", "stock"}, "must be fast or stock"),
    (
        "egress_allow",
        lambda v: all(map(is_host_and_port, v)),
        "must be host:port entries, comma separated",
    ),
    (
        # Braces would move a key to another shard.
        "key_prefix",
        lambda v: re.fullmatch(r"[A-Za-z0-9_.:-]{1,32}", v) is not None,
        "must be 1 to 32 letters, digits or . _ : -",
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
    refuse_unknown((n for n in (*declared, *given) if n.startswith(OURS)), SETTING_NAMES)
    values = {**declared, **{n: parse(n, t, like=declared.get(n)) for n, t in given.items()}}
    url = values.get(OURS + "REDIS_URL")
    for name in ("CELERY_BROKER_URL", "CELERY_RESULT_BACKEND"):
        if url and name not in given:
            values[name] = kombu_url(url)
        elif is_redis(values.get(name)):
            values[name] = kombu_url(values[name])
    return values


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
    return redis_py_url(broker) if broker and chosen else None


def parse(name: str, text: str, *, like: object = None) -> Any:
    """Return ``text``, the value of variable ``name``, in the type of the declared value ``like``.

    Lists are comma separated or JSON, mappings are JSON. A name without a declared type is read by
    our own types, or for Celery's names as JSON where it is JSON.

    Raises:
        AsyncNodesError: ``invalid_setting``: the text is not of that type.

    """
    text = text.strip()
    kind = OUR_TYPES.get(name) or type(like)
    reader = READERS.get(kind)
    if reader is None:
        return text if name.startswith(OURS) else guess(name, text)
    try:
        return reader(text)
    except ValueError:
        raise invalid(name, f"must be {WANTED[kind]}, not {text!r}") from None


def guess(name: str, text: str) -> Any:
    """Return ``text`` as the JSON value it spells, unless ``name`` holds text by nature."""
    if TEXT.search(name):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def read_bool(text: str) -> bool:
    """Read true/false in the spellings people use."""
    word = text.lower()
    if word not in TRUE | FALSE:
        raise ValueError(text)
    return word in TRUE


def read_float(text: str) -> float:
    """Read a finite number."""
    number = float(text)
    if number - number != 0:  # infinite or not a number
        raise ValueError(text)
    return number


def read_list(text: str) -> list[Any]:
    """Read a JSON list or comma separated words."""
    if text.startswith("["):
        value = json.loads(text)
        if not isinstance(value, list):
            raise ValueError(text)
        return value
    return [word.strip() for word in text.split(",") if word.strip()]


def read_tuple(text: str) -> tuple[Any, ...]:
    """Read what `read_list` reads."""
    return tuple(read_list(text))


def read_mapping(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)  # noqa: TRY004 - the text is wrong, not the caller's type
    return value


READERS: Final[Mapping[type, Callable[[str], Any]]] = {
    bool: read_bool,
    int: int,
    float: read_float,
    list: read_list,
    tuple: read_tuple,
    dict: read_mapping,
    str: str,
}
WANTED: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a comma separated list or JSON list",
    tuple: "a comma separated list or JSON list",
    dict: "a JSON object",
    str: "text",
}
# Ours whose declared value does not show the type.
OUR_TYPES: Final[Mapping[str, type]] = {
    "ASYNC_NODES_API_KEY": str,
    "ASYNC_NODES_API_KEY_FILE": str,
    "ASYNC_NODES_DATA_DIR": str,
    "ASYNC_NODES_EGRESS_ALLOW": tuple,
    "ASYNC_NODES_HOST": str,
    "ASYNC_NODES_IMPORTS": tuple,
    "ASYNC_NODES_KEY_PREFIX": str,
    "ASYNC_NODES_LEASE_SECONDS": float,
    "ASYNC_NODES_METRICS_PORT": int,
    "ASYNC_NODES_PORT": int,
    "ASYNC_NODES_REDIS_URL": str,
    "ASYNC_NODES_SHUTDOWN_SECONDS": float,
    "ASYNC_NODES_TRANSPORT": str,
}


def read_key(path: str) -> str:
    """Return the key in the file ``path`` without the newline an editor leaves."""
    try:
        key = Path(path).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise invalid(OURS + "API_KEY_FILE", f"cannot be read: {error}") from error
    if not key:
        raise invalid(OURS + "API_KEY_FILE", f"names an empty file, {path}")
    return key


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
    refuse_unknown(ours, (CELERY + name.upper() for name in known))


def invalid(name: str, why: str) -> AsyncNodesError:
    """Return the error for a value that cannot work."""
    return AsyncNodesError("invalid_setting", f"{name} {why}")


# -- addresses -------------------------------------------------------------------------------------

TCP: Final = frozenset({"redis", "rediss"})
SOCKET: Final = frozenset({"unix", "redis+socket"})
SENTINEL: Final = "sentinel"
CERTIFICATE_WORDS: Final = {
    "CERT_REQUIRED": "required",
    "CERT_OPTIONAL": "optional",
    "CERT_NONE": "none",
}


def is_redis(url: object) -> bool:
    """Tell whether ``url`` is an address that `kombu_url` can spell."""
    return isinstance(url, str) and url.partition("://")[0] in TCP | SOCKET


def kombu_url(url: str) -> str:
    """Return the address as kombu and Celery spell it.

    A unix socket becomes ``redis+socket:///path?virtual_host=DB``. Options in the query that are
    not about TLS are dropped: kombu takes those from ``broker_transport_options``. Sentinel
    addresses are kombu's own and stay as they are.

    Raises:
        AsyncNodesError: ``invalid_setting``: not an address of a Redis server.

    """
    if url.startswith(SENTINEL + "://"):
        return url
    parts, options = address(url)
    database = database_of(parts, options)
    if parts.scheme in SOCKET:
        path = quote(unquote(parts.path))
        return f"redis+socket://{credentials(parts)}{path}?virtual_host={database}"
    options = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if parts.scheme == "rediss":
        # Celery refuses to guess; redis-py's own default is to check.
        options.setdefault("ssl_cert_reqs", "required")
    return f"{parts.scheme}://{parts.netloc}/{database}" + query(options)


def redis_py_url(url: str) -> str:
    """Return the address as redis-py spells it: ``unix:///path?db=DB`` for a unix socket.

    Raises:
        AsyncNodesError: ``invalid_setting``: not an address of one Redis server.

    """
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


def address(url: str) -> tuple[SplitResult, dict[str, str]]:
    """Split an address and its options, or refuse it without repeating a password."""
    refused = invalid(
        OURS + "REDIS_URL",
        "and the Celery addresses must be redis://host:port/db, rediss://host:port/db, "
        f"unix:///path?db=db or redis+socket:///path?virtual_host=db, not {masked(url)!r}",
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
        raise invalid(OURS + "REDIS_URL", f"names database {text!r}, which is not a number")
    return int(text)


def credentials(parts: SplitResult) -> str:
    """Return ``user:password@`` of an address as it was written, or nothing."""
    return parts.netloc.rpartition("@")[0] + "@" if "@" in parts.netloc else ""


def query(options: Mapping[str, str]) -> str:
    """Return ``options`` as the query of an address, or nothing."""
    return f"?{urlencode(options)}" if options else ""


def masked(url: str) -> str:
    """Return an address without its password, for logs and messages."""
    return re.sub(r"(://[^/?#@:]*):[^@/]*(?:/[^@]*)?@", r"\1:***@", url)


def without_secrets(value: Any, name: str = "") -> Any:
    """Return a copy of ``value``, of the setting ``name``, in JSON types and without passwords."""
    if isinstance(value, Mapping):
        return {key: without_secrets(item, str(key)) for key, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [without_secrets(item, name) for item in value]
    if value is not None and SECRET.search(name):
        return "***"
    return masked(value) if isinstance(value, str) else value
