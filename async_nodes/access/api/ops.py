"""Step 5, expose: the routes about the service itself. Nodes, health, metrics, documentation."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final
from urllib.parse import urlsplit

from flask import Blueprint, Response, g, request

from async_nodes.access import negotiate, problems
from async_nodes.access.api import docs_pages
from async_nodes.access.api.controls import node_states
from async_nodes.access.openapi import dify
from async_nodes.access.openapi.document import document
from async_nodes.access.services import Provider
from async_nodes.access.serving.identity import identity
from async_nodes.core import strict_json
from async_nodes.core.errors import CATALOGUE, AsyncNodesError, ErrorKind
from async_nodes.core.priority import KINDS
from async_nodes.nodes import NodeSpec, Registry
from async_nodes.nodes.registry import UnknownNodeError
from async_nodes.settings import Settings
from async_nodes.storage.breakers import SharedBreakers
from async_nodes.storage.found import found
from async_nodes.telemetry import metrics
from async_nodes.telemetry.beside import Beside, Labelled
from async_nodes.telemetry.breaker_metrics import BreakerCollector

JSON: Final = "application/json"
PAGE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


def blueprint(settings: Settings, provider: Provider, nodes: Registry) -> Blueprint:
    """Return the routes about the service itself."""
    made = Blueprint("ops", __name__)
    interface = document(nodes)
    described = strict_json.dumps(interface)
    # The pages need no key, so they name none of this service's own nodes.
    made.register_blueprint(docs_pages.blueprint(document(())))

    @made.get("/v1/nodes")
    def list_nodes() -> Response:
        states = node_states(provider, nodes)
        shown = [{**describe(nodes[name], settings), **states[name]} for name in nodes]
        return _json({"nodes": shown})

    @made.get("/v1/nodes/<name>")
    def show_node(name: str) -> Response:
        spec = _find_node(nodes, name)
        return _json({**describe(spec, settings), **node_states(provider, [name])[name]})

    @made.get("/healthz")
    def live() -> Response:
        return _json({"status": "ok", **identity()})

    @made.get("/readyz")
    def ready() -> Response:
        checked = readiness(provider)
        return _json(checked, 200 if checked["status"] == "ready" else 503)

    @made.get("/metrics")
    def measure() -> Response:
        shown = metrics_page(settings, provider, request.headers.get("Accept"))
        return Response(shown.body, content_type=shown.content_type)

    @made.get("/openapi.json")
    def show_openapi() -> Response:
        return Response(described, content_type=JSON) if not g.base else _mounted(interface)

    @made.get("/dify/openapi.json")
    def show_openapi_of_dify() -> Response:
        return _json(dify.document(_address()))

    @made.get("/problems")
    def list_problems() -> Response:
        return _json({"problems": [problems.description(kind) for kind in CATALOGUE.values()]})

    @made.get("/problems/<code>")
    def show_problem(code: str) -> Response:
        return _problem_page(code)

    return made


def describe(spec: NodeSpec, settings: Settings) -> dict[str, Any]:
    """Return a node as ``/v1/nodes`` shows it, but for what is in force for it."""
    return {
        "name": spec.name,
        "kind": spec.kind,
        "description": spec.description,
        "streams": spec.style in ("generator", "asyncgen"),
        "timeout_ms": round((spec.timeout or settings.soft_time_limit) * 1000),
        "retry_policy": spec.retry.to_json() if spec.retry else None,
        "redacts": sorted(spec.redact),
        "inputs": spec.schema,
    }


def _mounted(interface: dict[str, Any]) -> Response:
    """Return the description of an interface whose paths lie below the mount's prefix."""
    return _json({**interface, "servers": [{"url": g.base}]})


def _address() -> str:
    """Return where Dify is to reach the service: as asked for, else as it was reached just now."""
    given = request.args.get("server", "")
    if not given:
        return f"{request.host_url.rstrip('/')}{g.base}"
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        message = f"server must be an address like https://tasks.example.com, not {given[:100]!r}"
        raise AsyncNodesError("invalid_request", message, pointer="/server")
    return given.rstrip("/")


def _find_node(nodes: Registry, name: str) -> NodeSpec:
    spec = nodes.get(name)
    if spec is None:
        unknown = UnknownNodeError(name[:100], nodes)
        raise AsyncNodesError("not_found", unknown.detail, **unknown.extra)
    return spec


def readiness(provider: Provider) -> dict[str, Any]:
    """Return whether tasks would be accepted and run, and what is missing if not."""
    workers: dict[str, float] = {}
    store, nobody = "", "no {} worker is alive"
    try:
        workers = provider().store.workers()
    except AsyncNodesError as error:
        store, nobody = error.detail, "not known while the store does not answer"
    checks: dict[str, dict[str, Any]] = {"store": _check(store)}
    for kind in KINDS:
        live = sum(name.startswith(f"{kind}-") for name in workers)
        checks[kind] = {**_check("" if live else nobody.format(kind)), "workers": live}
    missing = [name for name, check in checks.items() if not check["ok"]]
    status = "not_ready" if missing else "ready"
    return {"status": status, "missing": missing, "checks": checks, **identity()}


def _check(why_not: str = "") -> dict[str, Any]:
    return {"ok": not why_not, "detail": why_not or "ok"}


def metrics_page(settings: Settings, provider: Provider, accept: str | None) -> metrics.Page:
    """Return the metrics of this process and of the store, and of the processes beside it.

    Args:
        settings: which processes those are.
        provider: gives the services.
        accept: which of the two formats is asked for.

    """

    def subscribers() -> int:
        try:
            return provider().hub.subscribers
        except AsyncNodesError:
            return 0

    store = metrics.StoreCollector(ask=lambda: found(provider().store), subscribers=subscribers)
    breakers = BreakerCollector(lambda: SharedBreakers(provider().store).all())
    if not settings.metrics_beside:
        return metrics.page(accept, metrics.REGISTRY, store, breakers)
    own = Labelled("web", metrics.Together(metrics.REGISTRY, store, breakers))
    return metrics.page(accept, own, Beside(settings.metrics_beside))


def _problem_page(code: str) -> Response:
    """Describe an error code: a page for a browser, JSON for a program."""
    kind = problems.known(code)
    if kind is None:
        raise AsyncNodesError("not_found", "there is no problem of this code")
    if not negotiate.wants_page(request.headers.get("Accept")):
        return _varying(_json(problems.description(kind)))
    tongue = negotiate.language(request.headers.get("Accept-Language"))
    response = Response(_page(kind, tongue), content_type="text/html; charset=utf-8")
    response.headers["Content-Language"] = tongue
    response.headers["Content-Security-Policy"] = PAGE_POLICY
    return _varying(response)


def _page(kind: ErrorKind, tongue: str) -> str:
    title, hint = problems.in_language(kind, tongue)
    again = {
        ("en", True): "The same request may succeed later.",
        ("en", False): "Sending the same request again will not help.",
        ("zh", True): "稍后重发同一请求可能成功。",
        ("zh", False): "重发同一请求无济于事。",
    }[tongue, kind.retryable]
    return (
        f'<!doctype html><html lang="{tongue}"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(kind.code)}</title>"
        "<style>body{font:16px/1.6 system-ui,sans-serif;max-width:40rem;margin:10vh auto;"
        "padding:0 1rem;color-scheme:light dark}code{font-size:1.1em}</style>"
        f"<main><p><code>{escape(kind.code)}</code> · HTTP {kind.status}</p>"
        f"<h1>{escape(title)}</h1><p>{escape(hint)}</p><p>{again}</p></main></html>"
    )


def _varying(response: Response) -> Response:
    response.headers["Vary"] = "Accept, Accept-Language"
    return response


def _json(members: Mapping[str, Any], status: int = 200) -> Response:
    response = Response(strict_json.dumps(members), status=status, content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    return response
