"""settings.py, the environment over it, and the frozen object they become."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.app.defaults import SETTING_KEYS
from hypothesis import given
from hypothesis import strategies as st
from kombu import Connection
from redis.connection import parse_url

import async_nodes
import settings as module
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.redacted import masked
from async_nodes.settings import (
    DEFAULT_BROKER_URL,
    OUR_TYPES,
    Settings,
    apply_environment,
    kombu_url,
    redis_py_url,
    refuse_unknown_celery_names,
)

ROOT = Path(async_nodes.__file__).parents[1]


def load(**environ: str) -> Settings:
    return Settings.load(environ)


def refusal(code: str, **environ: str) -> str:
    with pytest.raises(AsyncNodesError) as caught:
        load(**environ)
    assert caught.value.code == code
    return str(caught.value)


def celery_conf(tmp_path: Path, **environ: str) -> dict[str, Any]:
    """Return what a Celery app of a fresh process has in force."""
    code = (
        "import json, celery\n"
        "app = celery.Celery('t', set_as_current=False)\n"
        "app.config_from_object('settings', namespace='CELERY')\n"
        "names = 'broker_url result_backend timezone accept_content task_serializer"
        " result_serializer task_time_limit task_soft_time_limit worker_prefetch_multiplier"
        " worker_concurrency broker_transport_options'.split()\n"
        "print(json.dumps({name: app.conf[name] for name in names}\n"
        "  | {'broker_property': app.conf.broker_url,"
        " 'backend_property': app.conf.result_backend,"
        " 'thread_safe': app.backend.thread_safe}))"
    )
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean, cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    conf: dict[str, Any] = json.loads(done.stdout)
    return conf


# -- Celery's block --------------------------------------------------------------------------------


def test_the_block_is_really_in_force(tmp_path: Path) -> None:
    """Celery uses the addresses, formats, zone and limits of settings.py, not its own defaults."""
    conf = celery_conf(tmp_path)

    assert conf["broker_url"] == conf["broker_property"] == "redis://localhost:6379/1"
    assert conf["result_backend"] == conf["backend_property"] == "redis://localhost:6379/2"
    assert conf["accept_content"] == ["json"]
    assert conf["task_serializer"] == conf["result_serializer"] == "json"
    assert conf["timezone"] == "Asia/Shanghai"
    assert conf["thread_safe"] is True  # read by Celery, though its table does not list it
    assert 0 < conf["task_soft_time_limit"] < conf["task_time_limit"]


def test_every_celery_name_is_known_to_celery() -> None:
    """No CELERY_* name of settings.py is one that Celery would silently ignore."""
    refuse_unknown_celery_names(vars(module), SETTING_KEYS)


def test_a_message_is_never_delivered_again_by_the_clock() -> None:
    """The visibility time-out lies beyond any task's life."""
    options: dict[str, Any] = vars(module)["CELERY_BROKER_TRANSPORT_OPTIONS"]

    assert options["visibility_timeout"] >= 10 * 365 * 86_400
    assert options["socket_timeout"] > 1  # kombu's blocking pop


def test_the_environment_wins_in_the_declared_type(tmp_path: Path) -> None:
    """Numbers, lists and mappings from the environment reach Celery as such."""
    conf = celery_conf(
        tmp_path,
        CELERY_TASK_TIME_LIMIT="99.5",
        CELERY_TASK_SOFT_TIME_LIMIT="60",
        CELERY_WORKER_PREFETCH_MULTIPLIER="7",
        CELERY_ACCEPT_CONTENT="json, yaml",
        CELERY_BROKER_TRANSPORT_OPTIONS='{"socket_timeout": 9}',
        CELERY_WORKER_CONCURRENCY="12",
        CELERY_TIMEZONE="UTC",
    )

    assert (conf["task_time_limit"], conf["task_soft_time_limit"]) == (99.5, 60.0)
    assert conf["worker_prefetch_multiplier"] == 7
    assert conf["accept_content"] == ["json", "yaml"]
    assert conf["broker_transport_options"] == {"socket_timeout": 9}
    assert conf["worker_concurrency"] == 12  # not declared in settings.py
    assert conf["timezone"] == "UTC"


def test_one_redis_address_replaces_both(tmp_path: Path) -> None:
    """ASYNC_NODES_REDIS_URL is the broker and the result backend, in kombu's spelling."""
    conf = celery_conf(tmp_path, ASYNC_NODES_REDIS_URL="unix:///run/x.sock?db=3")

    expected = "redis+socket:///run/x.sock?virtual_host=3"
    assert conf["broker_url"] == conf["broker_property"] == expected
    assert conf["result_backend"] == conf["backend_property"] == expected


def test_explicit_celery_addresses_win_over_the_one_address(tmp_path: Path) -> None:
    """A CELERY_* address in the environment stays, also where Celery reads it by itself."""
    environ = {
        "ASYNC_NODES_REDIS_URL": "redis://store:6379/0",
        "CELERY_BROKER_URL": "unix:///run/b.sock",
    }
    conf = celery_conf(tmp_path, **environ)
    settings = Settings.load(environ)

    broker = "redis+socket:///run/b.sock?virtual_host=0"
    assert conf["broker_url"] == conf["broker_property"] == broker
    assert conf["result_backend"] == "redis://store:6379/0"
    assert settings.celery["broker_url"] == broker
    assert settings.redis_url == settings.store_url == "redis://store:6379/0"


def test_kombus_own_key_prefix_is_refused() -> None:
    """global_keyprefix would move the lists that our scripts write to."""
    text = refusal("invalid_setting", CELERY_BROKER_TRANSPORT_OPTIONS='{"global_keyprefix": "x"}')

    assert "ASYNC_NODES_KEY_PREFIX" in text


# -- names -----------------------------------------------------------------------------------------


def test_a_misspelt_celery_name_is_refused_with_a_suggestion() -> None:
    """CELERY_TASK_SERIALISER is a name that Celery would ignore; here it is an error."""
    with pytest.raises(AsyncNodesError) as caught:
        refuse_unknown_celery_names(["CELERY_TASK_SERIALISER"], SETTING_KEYS)

    assert caught.value.code == "unknown_setting"
    assert "did you mean CELERY_TASK_SERIALIZER?" in str(caught.value)


def test_celerys_process_variables_are_no_settings() -> None:
    """What Celery's own processes pass to their children is let through."""
    load(CELERY_LOG_LEVEL="INFO", CELERY_LOADER="default")

    refuse_unknown_celery_names(["CELERY_LOG_LEVEL", "CELERY_LOADER", "PATH"], SETTING_KEYS)


def test_a_misspelt_name_of_ours_is_refused_with_a_suggestion() -> None:
    """In the environment as in the module."""
    text = refusal("unknown_setting", ASYNC_NODES_LEASE_SECOND="9")

    assert "ASYNC_NODES_LEASE_SECOND, did you mean ASYNC_NODES_LEASE_SECONDS?" in text
    with pytest.raises(AsyncNodesError, match="did you mean ASYNC_NODES_HOST"):
        Settings.load({}, {"ASYNC_NODES_HOSTS": "x"})


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    """A suggestion that is not near would mislead."""
    assert "did you mean" not in refusal("unknown_setting", ASYNC_NODES_ZZZZZZZZZZZZZZZZ="1")


def test_settings_py_declares_every_setting_of_ours() -> None:
    """The file to edit shows all there is."""
    declared = {name for name in vars(module) if name.startswith("ASYNC_NODES_")}

    assert declared == set(OUR_TYPES)


# -- values ----------------------------------------------------------------------------------------


def test_defaults() -> None:
    """An empty environment gives the documented values, and the embedded server."""
    settings = load()

    assert settings.redis_url is None
    assert settings.store_url == DEFAULT_BROKER_URL == module.CELERY_BROKER_URL
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (settings.lease_seconds, settings.shutdown_seconds) == (15.0, 20.0)
    assert (settings.transport, settings.key_prefix) == ("fast", "an")
    assert settings.imports == settings.egress_allow == ()
    assert settings.metrics_port is None
    assert settings.api_key is None
    assert (settings.soft_time_limit, settings.time_limit) == (300.0, 330.0)
    assert settings.data_dir == str(ROOT / ".data")


def test_the_class_and_the_file_agree() -> None:
    """A default stands in two places, so they are compared."""
    plain = Settings(data_dir=load().data_dir)

    for field in dataclasses.fields(Settings):
        if field.name != "celery":
            assert getattr(plain, field.name) == getattr(load(), field.name), field.name


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("PORT", "0", "port", 0),
        ("PORT", " 8080 ", "port", 8080),
        ("HOST", "::1", "host", "::1"),
        ("LEASE_SECONDS", "4.5", "lease_seconds", 4.5),
        ("TRANSPORT", "fast", "transport", "fast"),
        ("SHUTDOWN_SECONDS", "0", "shutdown_seconds", 0.0),
        ("IMPORTS", "a.b, c", "imports", ("a.b", "c")),
        ("IMPORTS", "", "imports", ()),
        ("IMPORTS", '["a", "b"]', "imports", ("a", "b")),
        ("EGRESS_ALLOW", "127.0.0.1:9,[::1]:80", "egress_allow", ("127.0.0.1:9", "[::1]:80")),
        ("KEY_PREFIX", "team-a_an", "key_prefix", "team-a_an"),
        ("METRICS_PORT", "9100", "metrics_port", 9100),
        ("API_KEY", "s3cret", "api_key", "s3cret"),
        ("API_KEY", "1234", "api_key", "1234"),
        ("DATA_DIR", "/var/lib/x", "data_dir", "/var/lib/x"),
        ("REDIS_URL", "  ", "redis_url", None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_value_is_read_in_its_type(name: str, text: str, field: str, value: object) -> None:
    """Each variable is parsed; an empty one counts as absent."""
    assert getattr(load(**{"ASYNC_NODES_" + name: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ASYNC_NODES_PORT", "eighty"),
        ("ASYNC_NODES_PORT", "65536"),
        ("ASYNC_NODES_PORT", "-1"),
        ("ASYNC_NODES_PORT", "80.5"),
        ("ASYNC_NODES_METRICS_PORT", "70000"),
        ("ASYNC_NODES_HOST", "http://x"),
        ("ASYNC_NODES_LEASE_SECONDS", "nan"),
        ("ASYNC_NODES_LEASE_SECONDS", "inf"),
        ("ASYNC_NODES_LEASE_SECONDS", "0"),
        ("ASYNC_NODES_SHUTDOWN_SECONDS", "-1"),
        ("ASYNC_NODES_TRANSPORT", "Fast"),
        ("ASYNC_NODES_IMPORTS", "a b"),
        ("ASYNC_NODES_IMPORTS", "[1"),
        ("ASYNC_NODES_IMPORTS", "[1]"),
        ("ASYNC_NODES_EGRESS_ALLOW", "localhost"),
        ("ASYNC_NODES_EGRESS_ALLOW", "localhost:0"),
        ("ASYNC_NODES_EGRESS_ALLOW", "http://localhost:80"),
        ("ASYNC_NODES_EGRESS_ALLOW", "user@localhost:80"),
        ("ASYNC_NODES_KEY_PREFIX", "a{b}"),
        ("ASYNC_NODES_KEY_PREFIX", "x" * 33),
        ("ASYNC_NODES_API_KEY", "two words"),
        ("ASYNC_NODES_API_KEY_FILE", "/nowhere/at/all"),
        ("ASYNC_NODES_REDIS_URL", "localhost:6379"),
        ("ASYNC_NODES_REDIS_URL", "http://localhost"),
        ("ASYNC_NODES_REDIS_URL", "redis://localhost:port"),
        ("ASYNC_NODES_REDIS_URL", "redis://localhost/one"),
        ("ASYNC_NODES_REDIS_URL", "unix://"),
        ("ASYNC_NODES_REDIS_URL", "unix:///x?db=one"),
        ("CELERY_TASK_TIME_LIMIT", "soon"),
        ("CELERY_TASK_TIME_LIMIT", "1"),  # not above the soft limit
        ("CELERY_TASK_SOFT_TIME_LIMIT", "0"),
        ("CELERY_TASK_ACKS_LATE", "maybe"),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", "[]"),
        ("CELERY_BROKER_TRANSPORT_OPTIONS", "{"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_value_that_cannot_work_is_refused_by_name(name: str, text: str) -> None:
    """The message names a setting and what it must be; nothing starts with a guess."""
    message = refusal("invalid_setting", **{name: text})

    assert message.startswith(("ASYNC_NODES_", "CELERY_"))
    assert (
        " must be " in message
        or " may not " in message
        or "cannot be read" in message
        or ("not a number" in message)
    )


def test_a_wrong_type_in_the_module_is_refused() -> None:
    """What a person writes into settings.py is checked like the environment."""
    for name, value in [("PORT", "8000"), ("LEASE_SECONDS", "x"), ("IMPORTS", [1]), ("PORT", True)]:
        with pytest.raises(AsyncNodesError, match=f"ASYNC_NODES_{name} must be"):
            Settings.load({}, {f"ASYNC_NODES_{name}": value})


def test_lists_in_the_module_become_tuples() -> None:
    """A list, a tuple or comma separated words are the same setting."""
    for value in (["a", "b"], ("a", "b"), "a, b"):
        assert Settings.load({}, {"ASYNC_NODES_IMPORTS": value}).imports == ("a", "b")


def test_the_environment_wins_over_an_edited_module() -> None:
    """Environment > settings.py > defaults."""
    edited = {"ASYNC_NODES_PORT": 9000, "ASYNC_NODES_KEY_PREFIX": "mine"}
    settings = Settings.load({"ASYNC_NODES_PORT": "9001"}, edited)

    assert (settings.port, settings.key_prefix, settings.host) == (9001, "mine", "127.0.0.1")


def test_load_does_not_depend_on_when_the_module_was_imported() -> None:
    """The declared values are kept apart from the environment that was applied at import."""
    namespace: dict[str, Any] = {"ASYNC_NODES_PORT": 9000, "CELERY_TIMEZONE": "Asia/Shanghai"}
    apply_environment(namespace, {"ASYNC_NODES_PORT": "9001", "CELERY_TIMEZONE": "UTC"})

    assert (namespace["ASYNC_NODES_PORT"], namespace["CELERY_TIMEZONE"]) == (9001, "UTC")
    assert Settings.load({}, namespace).port == 9000
    assert Settings.load({}, namespace).celery["timezone"] == "Asia/Shanghai"


def test_text_stays_text_in_names_without_a_declared_type() -> None:
    """A password of digits is not a number; a concurrency is."""
    celery = load(CELERY_REDIS_PASSWORD="1234", CELERY_WORKER_CONCURRENCY="8").celery

    assert (celery["redis_password"], celery["worker_concurrency"]) == ("1234", 8)


def test_settings_are_frozen() -> None:
    """Nobody changes the settings of a running process, not even Celery's part."""
    settings = load()

    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.port = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        settings.celery["timezone"] = "UTC"  # type: ignore[index]


# -- key and secrets -------------------------------------------------------------------------------


def test_the_key_comes_from_a_file(tmp_path: Path) -> None:
    """The trailing newline that editors leave is not part of the key."""
    path = tmp_path / "key"
    path.write_text("s3cret\n")

    assert load(ASYNC_NODES_API_KEY_FILE=str(path)).api_key == "s3cret"
    path.write_text("\n")
    assert "empty file" in refusal("invalid_setting", ASYNC_NODES_API_KEY_FILE=str(path))
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in refusal("invalid_setting", ASYNC_NODES_API_KEY_FILE=str(path))


def test_a_key_and_a_key_file_together_are_refused(tmp_path: Path) -> None:
    """Which one holds would be a guess."""
    path = tmp_path / "key"
    path.write_text("a")
    environ = {"ASYNC_NODES_API_KEY": "b", "ASYNC_NODES_API_KEY_FILE": str(path)}

    assert "ASYNC_NODES_API_KEY_FILE must not be" in refusal("invalid_setting", **environ)


def test_secrets_are_never_shown() -> None:
    """Neither repr, nor what doctor prints, nor an error repeats a key or a password."""
    settings = load(
        ASYNC_NODES_API_KEY="hush1",
        ASYNC_NODES_REDIS_URL="redis://user:hush2@h:1/0",
        CELERY_REDIS_PASSWORD="hush3",
        CELERY_BROKER_TRANSPORT_OPTIONS='{"sentinel_kwargs": {"password": "hush4"}}',
    )
    shown = json.dumps(settings.shown())

    assert "hush" not in shown
    assert "hush1" not in repr(settings)
    assert "redis://user:***@h:1/0" in shown
    assert "hush" not in refusal("invalid_setting", ASYNC_NODES_REDIS_URL="amqp://u:hush@h")
    assert "hush" not in refusal("invalid_setting", ASYNC_NODES_API_KEY="hush hush")


# -- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_url", "kombu", "redis_py"),
    [
        ("redis://localhost:6379/1", "redis://localhost:6379/1", "redis://localhost:6379/1"),
        ("redis://h", "redis://h/0", "redis://h/0"),
        ("redis://h?db=4", "redis://h/4", "redis://h/4"),
        ("redis://:p%40w@h:1/2", "redis://:p%40w@h:1/2", "redis://:p%40w@h:1/2"),
        ("redis://[::1]:1/2", "redis://[::1]:1/2", "redis://[::1]:1/2"),
        (
            "redis://h/1?socket_timeout=5",
            "redis://h/1",  # kombu takes such options elsewhere
            "redis://h/1?socket_timeout=5",
        ),
        ("rediss://h/1", "rediss://h/1?ssl_cert_reqs=required", "rediss://h/1"),
        (
            "rediss://h/1?ssl_cert_reqs=CERT_NONE",
            "rediss://h/1?ssl_cert_reqs=CERT_NONE",
            "rediss://h/1?ssl_cert_reqs=none",
        ),
        ("unix:///a/s", "redis+socket:///a/s?virtual_host=0", "unix:///a/s?db=0"),
        ("unix:///a/s?db=1", "redis+socket:///a/s?virtual_host=1", "unix:///a/s?db=1"),
        (
            "redis+socket:///a/s?virtual_host=7",
            "redis+socket:///a/s?virtual_host=7",
            "unix:///a/s?db=7",
        ),
        ("unix:///a b/s", "redis+socket:///a%20b/s?virtual_host=0", "unix:///a%20b/s?db=0"),
        (
            "unix://u:p@/a/s?db=1",
            "redis+socket://u:p@/a/s?virtual_host=1",
            "unix://u:p@/a/s?db=1",
        ),
    ],
    ids=lambda value: value,
)
def test_addresses_are_spelled_for_both_libraries(
    given_url: str, kombu: str, redis_py: str
) -> None:
    """Both spellings are accepted, and translating twice changes nothing."""
    assert (kombu_url(given_url), redis_py_url(given_url)) == (kombu, redis_py)
    assert (kombu_url(kombu), redis_py_url(redis_py)) == (kombu, redis_py)
    assert kombu_url(redis_py_url(kombu)).partition("?ssl")[0] == kombu.partition("?ssl")[0]


@given(
    path=st.text("abc /%é?#@:", min_size=1, max_size=20).filter(lambda p: p.strip("/ ") == p != ""),
    database=st.integers(0, 15),
)
def test_a_socket_path_survives_both_libraries(path: str, database: int) -> None:
    """redis-py, kombu and Celery's backend all open the very path that was meant."""
    from urllib.parse import quote

    url = f"unix:///{quote(path)}?db={database}"

    by_redis = parse_url(redis_py_url(url))  # type: ignore[no-untyped-call]
    assert (by_redis["path"], by_redis["db"]) == (f"/{path}", database)
    channel = Connection(kombu_url(url)).transport.Channel
    client = Connection(kombu_url(url))
    fake = channel.__new__(channel)
    fake.connection = type("T", (), {"client": client, "default_port": 6379})()
    fake.max_connections = 10
    by_kombu = channel._connparams(fake)
    assert (by_kombu["path"], int(by_kombu["db"])) == (f"/{path}", database)
    app = Celery("t", backend=kombu_url(url), set_as_current=False)
    assert app.backend.connparams["path"] == f"/{path}"
    assert app.backend.connparams["db"] == database


def test_a_started_server_takes_both_places() -> None:
    """with_redis_url is what the embedded server's address is put in with."""
    settings = load().with_redis_url("unix:///s.sock?db=0")

    assert settings.redis_url == settings.store_url == "unix:///s.sock?db=0"
    assert settings.broker_url == "redis+socket:///s.sock?virtual_host=0"
    assert settings.celery["result_backend"] == settings.broker_url


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"CELERY_BROKER_URL": "redis://h/1"}, "redis://h/1"),
        ({"CELERY_BROKER_URL": DEFAULT_BROKER_URL}, DEFAULT_BROKER_URL),
        (
            {"CELERY_BROKER_URL": "redis://h/1", "ASYNC_NODES_REDIS_URL": "unix:///s"},
            "unix:///s?db=0",
        ),
    ],
    ids=["nobody said", "a broker", "the shipped broker, said", "a store of its own"],
)
def test_where_the_store_is(environ: dict[str, str], expected: str | None) -> None:
    """The store goes to the chosen server; the embedded one is for when nobody chose."""
    assert load(**environ).redis_url == expected


def test_masked_keeps_what_is_no_secret() -> None:
    """Only the password goes."""
    assert masked("redis://u:p@h:1/2") == "redis://u:***@h:1/2"
    assert masked("redis://:p@h") == "redis://:***@h"
    assert masked("unix:///a/s?db=1") == "unix:///a/s?db=1"
