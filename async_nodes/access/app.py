"""Step 5, expose: the Flask app. What is done for every request, around the routes.

Each request gets a trace, an id and a tenant; each failure becomes a problem document; each answer
is counted, and a line is logged for problems and for what was slow.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import perf_counter
from typing import Any, Final
from urllib.parse import quote

from flask import Blueprint, Flask, Response, g, request
from redis.exceptions import ResponseError
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from async_nodes.access import negotiate, problems
from async_nodes.access.api import (
    batch,
    breakers,
    controls,
    dead_letters,
    files,
    listing,
    logs,
    ops,
    queues,
    results,
    retries,
    routes,
    schedules,
    usage,
    workers,
)
from async_nodes.access.guard import OPEN_PATHS, PAGES, Guard, check_scope
from async_nodes.access.keyring import Keyring
from async_nodes.access.lane.handover import left_in
from async_nodes.access.services import Provider, Services
from async_nodes.access.streams import feed
from async_nodes.access.streams.events import Events
from async_nodes.access.streams.turnstile import Turnstile
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.request import MAX_REQUEST
from async_nodes.nodes.registry import Registry, registry
from async_nodes.settings import Settings
from async_nodes.storage.commit import verdict_of
from async_nodes.storage.redis_errors import OutcomeUnknown, StoreUnavailable
from async_nodes.storage.redis_store import RedisStore
from async_nodes.telemetry import metrics
from async_nodes.telemetry.logs import UNDER_WAY
from async_nodes.telemetry.tracing import TRACING

SLOW_SECONDS: Final = 1.0
MAX_LOGGED_PATH: Final = 200
ONLY_POST: Final = frozenset({"/v1/tasks/batch", "/v1/dead-letters/requeue"})
"""Paths that would be read as a task's for other methods."""

log = logging.getLogger(__name__)


def create_app(
    settings: Settings, store: RedisStore, hub: Events, *, nodes: Registry | None = None
) -> Flask:
    """Return the app over an open store.

    Args:
        settings: host, key and imports.
        store: the tasks.
        hub: the events of watched tasks; the caller starts and closes it.
        nodes: the registry; that of the settings when omitted.

    Raises:
        AsyncNodesError: ``invalid_setting``: no key, but a host that others can reach.
        StoreUnavailable: the store does not answer.

    """
    nodes = registry(settings.imports) if nodes is None else nodes
    services = Services.assemble(settings, store, hub, nodes)
    return build_app(settings, lambda: services, nodes=nodes)


def build_app(settings: Settings, provider: Provider, *, nodes: Registry) -> Flask:
    """Return the app over services that may not be there yet.

    Args:
        settings: host and key.
        provider: gives the services, or raises ``store_unavailable``.
        nodes: the registry.

    """
    app = Flask("async_nodes", static_folder=None)
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    guard = Guard(settings, Keyring(provider) if settings.api_keys else None)
    equip(app, guard, Turnstile(settings.max_streams))
    for area in areas(settings, provider, nodes):
        app.register_blueprint(area)
    return app


def areas(settings: Settings, provider: Provider, nodes: Registry) -> Iterator[Blueprint]:
    """Yield the routes, one blueprint per area."""
    for area in (routes, batch, listing, results, retries, feed, logs, dead_letters, usage):
        yield area.blueprint(provider)
    yield files.blueprint(provider, settings.file_limits)
    for area in (queues, workers):
        yield area.blueprint(provider)
    yield controls.blueprint(provider, nodes)
    yield breakers.blueprint(provider, nodes)
    yield schedules.blueprint(settings, provider, nodes)
    yield ops.blueprint(settings, provider, nodes)


def equip(target: Flask | Blueprint, guard: Guard, turnstile: Turnstile, *, base: str = "") -> None:
    """Put around the routes of an app, or of a part of one, what is done for every request.

    Args:
        target: the app, or the blueprint that is mounted into another one.
        guard: sees who sends a request.
        turnstile: counts the streams.
        base: what our addresses begin with.

    """

    @target.before_request
    def begin() -> Response | None:
        # One more than is allowed: Werkzeug cuts a chunked body at its bound without a word.
        request.max_content_length = MAX_REQUEST + 1
        g.base = base
        _begin(guard)
        return _other_method()

    def count_streams(response: Response) -> Response:
        if response.mimetype != negotiate.EVENT_STREAM or request.method == "HEAD":
            return response
        try:
            response.call_on_close(turnstile.enter((g.tenant, g.key_id)))
        except AsyncNodesError as error:
            response.close()
            return _problem(error)
        return response

    target.after_request(_end)  # the last one registered is the first one called
    target.after_request(count_streams)
    target.register_error_handler(AsyncNodesError, _problem)
    target.register_error_handler(HTTPException, _http_problem)
    target.register_error_handler(ResponseError, _redis_problem)
    target.register_error_handler(Exception, _unexpected)


def _begin(guard: Guard) -> None:
    """Give the request its names, and see who sends it."""
    headers = request.headers
    begun = left_in(request.environ)
    if begun is None:
        g.started = perf_counter()
        g.request_id = negotiate.request_id(headers.get("X-Request-ID"))
        g.traceparent = negotiate.traceparent(headers.get("traceparent"))
    else:  # by the fast lane, which has told the store of these names
        g.started, g.request_id, g.traceparent = begun.started, begun.request_id, begun.traceparent
    UNDER_WAY.set({"trace_id": g.traceparent[3:35], "request_id": g.request_id})
    path = request.path.removeprefix(g.base)
    if path in OPEN_PATHS:
        return
    guard.check_origin(
        host=headers.get("Host"),
        origin=headers.get("Origin"),
        fetch_site=headers.get("Sec-Fetch-Site"),
    )
    guard.check_sender(request.remote_addr)
    if PAGES.fullmatch(path):
        return
    caller = guard.caller(headers.get("Authorization"))
    g.tenant, g.key_id = caller.tenant, caller.key_id
    if request.url_rule is not None:  # what is not there is told to everybody who may ask
        check_scope(caller, request.method, path)


def _other_method() -> Response | None:
    """Answer for a method that a path does not have although its like, a task's path, does.

    Raises:
        MethodNotAllowed: it is not OPTIONS.

    """
    if request.method == "POST" or request.path.removeprefix(g.base) not in ONLY_POST:
        return None
    allowed = ["OPTIONS", "POST"]
    if request.method != "OPTIONS":
        raise MethodNotAllowed(allowed)
    return Response(headers={"Allow": ", ".join(allowed)})


def _end(response: Response) -> Response:
    """Echo the names, count the answer and log it if somebody may want to know."""
    headers = response.headers
    headers["X-Request-ID"] = g.request_id
    headers["traceparent"] = g.traceparent
    headers["X-Content-Type-Options"] = "nosniff"
    rule = request.url_rule
    route = rule.rule if rule is not None else "unmatched"
    seconds = perf_counter() - g.started
    metrics.request_duration(route, _method(), str(response.status_code)).observe(seconds)
    if TRACING.spans is not None:
        TRACING.spans.expose((route, _method()), response.status_code, g.traceparent, seconds)
    slow = seconds - g.get("waited", 0.0) > SLOW_SECONDS
    probed = (
        request.path.removeprefix(g.base) in OPEN_PATHS
    )  # every second or so, and it tells its asker
    if (response.status_code >= 400 or slow) and not probed:  # noqa: PLR2004 - the first error
        note(
            _method(),
            request.path,
            response.status_code,
            seconds,
            slow=slow,
            names=(g.request_id, g.traceparent),
            code=g.get("problem", ""),
        )
    return response


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"})


def _method() -> str:
    """Return the method for a metric's label, where made-up ones may not grow without bound."""
    return request.method if request.method in _METHODS else "other"


def note(
    method: str,
    path: str,
    status: int,
    seconds: float,
    *,
    slow: bool,
    names: tuple[str, str],
    code: str = "",
) -> None:
    """Log one line about an answer; nothing in it comes from the client without being encoded.

    Args:
        method: of the request.
        path: of the request.
        status: of the answer.
        seconds: it took.
        slow: whether that is why it is logged.
        names: the request's id and its traceparent.
        code: of the problem, if it is one.

    """
    level = logging.WARNING if status >= 500 or slow else logging.INFO  # noqa: PLR2004
    log.log(
        level,
        "%s %s answered %d%s in %.0f ms",
        method,
        quote(path)[:MAX_LOGGED_PATH],
        status,
        f" {code}" if code else "",
        seconds * 1000,
        extra={
            "action": "http_slow" if slow else "http_problem",
            "request_id": names[0],
            "trace_id": names[1][3:35],
        },
    )


# -- failures --------------------------------------------------------------------------------------


def _problem(error: AsyncNodesError) -> Response:
    if isinstance(error, OutcomeUnknown) and request.method in ("GET", "HEAD"):
        error = StoreUnavailable(error.detail)  # what changes nothing has no outcome
    g.problem = error.code
    tongue = negotiate.language(request.headers.get("Accept-Language"))
    members = problems.document(
        error,
        language=tongue,
        path=request.path,
        trace_id=g.traceparent[3:35],
        base=g.base,
    )
    return Response(
        problems.encode(members),
        status=error.status,
        headers={**problems.headers(error, language=tongue), "Vary": "Accept-Language"},
        content_type=problems.CONTENT_TYPE,
    )


def _http_problem(error: HTTPException) -> Any:
    if error.code is not None and error.code < 400:  # noqa: PLR2004 - a redirect is no problem
        return error
    response = _problem(problems.from_http(error))
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _redis_problem(error: ResponseError) -> Response:
    """Answer for a command that Redis refused: most often it is loading its data, or full."""
    try:
        verdict_of(error)
    except AsyncNodesError as meant:
        if meant.code == "internal":
            return _unexpected(error)
        return _problem(meant)
    return _unexpected(error)


def _unexpected(error: Exception) -> Response:
    """Answer for a fault of ours: the client gets the trace's id, the log everything."""
    log.error(
        "A request failed inside the server",
        exc_info=error,
        extra={
            "action": "http_failed",
            "request_id": g.request_id,
            "trace_id": g.traceparent[3:35],
        },
    )
    return _problem(AsyncNodesError("internal"))
