"""The checks for a Dify that is to use this service: can its plugin reach it, and do its work."""

from __future__ import annotations

import ipaddress
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

from async_nodes.cli.doctor.check import Check, Outcome, Patient, SkippedError
from async_nodes.cli.language import tr

_ANSWER = 1.0
PLUGIN = Path(__file__).parents[3] / "dify" / "async_nodes"
"""The plugin's sources in a checkout; an installed package has none."""


def address(patient: Patient) -> Check:
    """Dify address: what the service listens on can be reached from a container."""
    host = urlsplit(patient.client().url).hostname or ""
    listens = patient.known_settings().host
    detail = tr(f"listens on {listens}, asked at {host}", f"监听 {listens},经由 {host} 访问")
    if _is_loopback(listens):
        hint = tr(
            "Dify's plugin daemon in a container cannot reach this: serve with --host 0.0.0.0.",
            "容器中的 Dify 插件守护进程无法访问:请用 --host 0.0.0.0 启动。",
        )
        return Check("Dify address", Outcome.WARN, detail, hint)
    return Check("Dify address", Outcome.OK, detail)


def key(patient: Patient) -> Check:
    """Dify key: the service wants a key, and takes the one that is set here."""
    client = patient.client()
    answer = client.call("GET", "/v1/nodes", timeout=patient.left(_ANSWER))
    if answer.status != HTTPStatus.OK:
        detail = f"HTTP {answer.status}: {answer.document.get('detail', '')}"
        hint = tr(
            "Set ASYNC_NODES_API_KEY to the server's key; Dify needs the same.",
            "请将 ASYNC_NODES_API_KEY 设为服务的密钥;Dify 中填写同一密钥。",
        )
        return Check("Dify key", Outcome.FAIL, detail, hint)
    count = len(answer.document["nodes"])
    detail = tr(f"{count} nodes for the panel", f"面板中有 {count} 个节点")
    if not client.api_key:
        hint = tr(
            "Without a key only this machine is served: set ASYNC_NODES_API_KEY.",
            "未设密钥时只服务本机:请设置 ASYNC_NODES_API_KEY。",
        )
        return Check("Dify key", Outcome.WARN, detail, hint)
    return Check("Dify key", Outcome.OK, detail)


def custom_tools(patient: Patient) -> Check:
    """Dify import: the calls for Dify's custom tools can be imported without a key."""
    client = patient.client()
    path = "/dify/openapi.json"
    answer = client.call("GET", path, timeout=patient.left(_ANSWER))
    if answer.status != HTTPStatus.OK:
        return Check("Dify import", Outcome.FAIL, f"{path}: HTTP {answer.status}")
    server = answer.document["servers"][0]["url"]
    operations = sum(len(item) for item in answer.document["paths"].values())
    detail = tr(f"{operations} calls at {server}", f"{server} 的 {operations} 个调用")
    return Check("Dify import", Outcome.OK, detail)


def package(patient: Patient) -> Check:
    """Dify package: the plugin's sources are sound."""
    from async_nodes.dify.files import UnsoundPlugin, of_folder
    from async_nodes.dify.identity import identity
    from async_nodes.dify.rules import check

    if not PLUGIN.is_dir():
        raise SkippedError(
            tr("no checkout with dify/async_nodes", "没有含 dify/async_nodes 的源码目录")
        )
    try:
        files = of_folder(PLUGIN)
        errors = [one for one in check(files) if not one.advice]
        named = identity(files)
    except UnsoundPlugin as error:
        return Check("Dify package", Outcome.FAIL, str(error))
    if errors:
        hint = "./run dify lint dify/async_nodes"
        return Check("Dify package", Outcome.FAIL, f"{errors[0].file}: {errors[0].text}", hint)
    return Check("Dify package", Outcome.OK, named)


EXAMINATIONS = (address, key, custom_tools, package)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
