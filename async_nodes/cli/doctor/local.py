"""The checks of this machine: versions, settings, and that Celery really obeys them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import sys
from importlib import metadata
from typing import Any

from async_nodes.cli.doctor.check import Check, Outcome, Patient
from async_nodes.cli.language import tr
from async_nodes.cli.located import locate
from async_nodes.core.redacted import masked
from async_nodes.settings import CELERY, OURS, Settings, is_setting, refuse_unknown_celery_names
from async_nodes.version import __version__

_OLDEST, _NEWEST = (3, 11), (3, 13)
_SHOWN = ("celery", "kombu", "redis", "gevent", "flask")
#: Seconds; kombu's own default of an hour would run a longer task twice.
_NEVER = 365 * 86_400


def versions(_: Patient) -> Check:
    """versions: this Python and the packages are ones that async_nodes is made for."""
    python = platform.python_version()
    shown = " ".join(f"{name} {metadata.version(name)}" for name in _SHOWN)
    detail = f"async_nodes {__version__}, Python {python}, {shown}"
    if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        hint = tr("Use Python 3.11, 3.12 or 3.13.", "请使用 Python 3.11、3.12 或 3.13。")
        return Check("versions", Outcome.FAIL, detail, hint)
    wrong = _unsatisfied()
    if wrong:
        hint = tr("Run ./run once, or install again.", "请运行一次 ./run,或重新安装。")
        return Check("versions", Outcome.FAIL, ", ".join(wrong), hint)
    return Check("versions", Outcome.OK, detail)


def _unsatisfied() -> list[str]:
    """Return the requirements of async_nodes that this environment does not meet."""
    from packaging.requirements import Requirement

    try:
        wanted = [Requirement(text) for text in metadata.requires("async_nodes") or ()]
    except metadata.PackageNotFoundError:
        return []  # a checkout on the path, not installed: nobody promised anything
    found = []
    for requirement in wanted:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            found.append(tr(f"{requirement.name} is missing", f"缺少 {requirement.name}"))
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            found.append(f"{requirement.name} {installed}, {requirement.specifier}")
    return found


def settings(patient: Patient) -> Check:
    """settings: every name is known and every value can work."""
    from celery.app.defaults import SETTING_KEYS

    loaded = Settings.load()
    refuse_unknown_celery_names((CELERY + name.upper() for name in loaded.celery), SETTING_KEYS)
    source = importlib.import_module("settings").__file__
    given = sorted(n for n in os.environ if is_setting(n) and n.startswith((OURS, CELERY)))
    patient.settings = locate(loaded, os.environ)  # may itself set a variable
    from_environment = ", ".join(given) or tr("nothing", "无")
    detail = tr(
        f"{source}; from the environment: {from_environment}",
        f"{source};来自环境变量:{from_environment}",
    )
    return Check("settings", Outcome.OK, detail)


def celery(patient: Patient) -> Check:
    """celery: the CELERY_ namespace is in force, so that the app has our broker."""
    ours = patient.known_settings()
    if importlib.util.find_spec("celery_app") is not None:
        conf: Any = importlib.import_module("celery_app").app.conf
    else:
        from async_nodes.dispatch.celery_factory import make_app

        conf = make_app(ours).conf
    broker = masked(str(conf.broker_url))
    if conf.broker_url != ours.broker_url:
        detail = tr(
            f"the app's broker is {broker}, the settings say {masked(ours.broker_url)}",
            f"应用的 broker 是 {broker},设置为 {masked(ours.broker_url)}",
        )
        hint = tr(
            'Configure with config_from_object("settings", namespace="CELERY").',
            '请使用 config_from_object("settings", namespace="CELERY")。',
        )
        return Check("celery", Outcome.FAIL, detail, hint)
    serializers = f"{conf.task_serializer}/{conf.result_serializer}"
    return Check("celery", Outcome.OK, f"broker {broker}, {serializers}, {conf.timezone}")


def transport(patient: Patient) -> Check:
    """transport: the options that keep a task from running twice or a pool from starving."""
    ours = patient.known_settings()
    options = dict(ours.celery.get("broker_transport_options") or {})
    timeout = options.get("visibility_timeout", 3600)
    if timeout < _NEVER:
        detail = tr(f"visibility_timeout is {timeout} s", f"visibility_timeout 为 {timeout} 秒")
        hint = tr(
            "A longer task would be delivered twice: set it to 315360000 (ten years).",
            "更长的任务会被重复投递:请设为 315360000(十年)。",
        )
        return Check("transport", Outcome.WARN, detail, hint)
    connections = options.get("max_connections")
    if connections is not None:
        detail = f"max_connections = {connections}"
        hint = tr(
            "Leave it out: each worker sets it to its concurrency and 20 more.",
            "请删除该项:工作进程会按并发数加 20 自行设置。",
        )
        return Check("transport", Outcome.WARN, detail, hint)
    return Check(
        "transport",
        Outcome.OK,
        tr(
            f"{ours.transport}; messages never time out, connections follow the concurrency",
            f"{ours.transport};消息永不超时,连接数随并发数",
        ),
    )
