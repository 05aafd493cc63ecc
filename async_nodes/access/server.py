"""Step 5, expose: the web process. gevent's server around the app, from start to orderly end.

It serves from the first moment: while the store does not answer, requests get 503 and ``/readyz``
says why. It stops in order: no new connections, streams told to go elsewhere, requests finished.
"""

from __future__ import annotations

import errno
import logging
import resource
import signal
from collections.abc import Callable
from typing import Any, Final

import gevent
from gevent.event import Event
from gevent.monkey import is_module_patched
from gevent.pool import Pool
from prometheus_client import disable_created_metrics
from redis.exceptions import ResponseError
from setproctitle import setproctitle

from async_nodes.access.app import build_app
from async_nodes.access.fast_lane import FastLane
from async_nodes.access.guard import refuse_open_door
from async_nodes.access.http import Server
from async_nodes.access.hub import Hub
from async_nodes.access.services import Services
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_shared
from async_nodes.nodes.registry import Registry, registry
from async_nodes.settings import Settings
from async_nodes.storage.redis_connection import PipelinedConnection
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.storage.redis_store import RedisStore
from async_nodes.telemetry import logs

TITLE: Final = "async-nodes web"
CLIENT_NAME: Final = "async-nodes-web"
MAX_CONNECTIONS: Final = 15_000
SPARE_DESCRIPTORS: Final = 200
BACKLOG: Final = 1024
_PAUSE_FIRST, _PAUSE_MOST = 0.1, 1.0
_NOT_YET: Final = "the task store has not answered since this process began"

log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    *,
    on_ready: Callable[[str, int], None] | None = None,
    fast_lane: bool = True,
) -> int:
    """Run the web process until SIGTERM or SIGINT; a second signal ends it at once.

    Args:
        settings: where to listen, where the store is, how long to finish.
        on_ready: called with host and port once connections are accepted.
        fast_lane: whether ordinary requests are answered before they reach the app.

    Returns:
        The exit status, 0.

    Raises:
        AsyncNodesError: ``unpatched``, ``port_busy``, ``invalid_setting`` (no key, but a host
            that others can reach), ``invalid_node``, ``redis_too_old``, ``unsupported_store``.

    """
    if not is_module_patched("socket"):
        raise AsyncNodesError("unpatched", "the web process needs gevent.monkey.patch_all() first")
    refuse_open_door(settings)
    allow_descriptors(MAX_CONNECTIONS + SPARE_DESCRIPTORS)
    setproctitle(TITLE)
    logs.configure()
    disable_created_metrics()  # type: ignore[no-untyped-call] # the library's own omission
    nodes = registry(settings.imports)
    opening = Opening(settings, nodes)
    server = listen(settings, opening, nodes, fast_lane=fast_lane)
    stopping = _on_signals()
    opening.start()
    host, port = server.server_host, server.server_port
    shown = f"[{host}]" if ":" in host else host
    log.info("Listening on http://%s:%d", shown, port, extra={"action": "web_ready"})
    if on_ready is not None:
        on_ready(host, port)
    gevent.wait([stopping, opening.failed], count=1)
    stop(server, opening, seconds=settings.shutdown_seconds)
    if opening.error is not None:
        raise opening.error
    return 0


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files as far as it may be raised.

    Most systems begin with 1,024, which a thousand watching clients would use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def listen(
    settings: Settings, opening: Opening, nodes: Registry, *, fast_lane: bool = True
) -> Server:
    """Return the server, accepting connections.

    Raises:
        AsyncNodesError: ``port_busy``, or ``invalid_setting`` for a host that is not ours.

    """
    app = build_app(settings, opening, nodes=nodes)
    host = settings.host.strip("[]")
    lane = FastLane(settings, opening) if fast_lane else None
    server = Server(
        (host, settings.port), app, lane=lane, spawn=Pool(MAX_CONNECTIONS), backlog=BACKLOG
    )
    try:
        server.start()
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            taken = "is in use" if error.errno == errno.EADDRINUSE else "may not be used"
            raise AsyncNodesError("port_busy", f"{host}:{settings.port} {taken}") from error
        raise AsyncNodesError(
            "invalid_setting", f"ASYNC_NODES_HOST: cannot listen on {host}: {error}"
        ) from error
    return server


def stop(server: Server, opening: Opening, *, seconds: float) -> None:
    """End in order, within a bound: streams at once, requests after they were answered."""
    log.info("Stopping", extra={"action": "web_stopping"})
    server.stop_accepting()
    opening.close()
    server.close_idle()
    server.stop(timeout=seconds)
    log.info("Stopped", extra={"action": "web_stopped"})


def _on_signals() -> Event:
    """Return an event that the first signal sets; the second one is not caught any more."""
    stopping = Event()

    def first(number: int, _frame: Any) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, first)
    return stopping


class Opening:
    """Open the store in the background, and give the services as soon as they are there.

    Attributes:
        failed: set when the store answered and can never be used.
        error: why.

    """

    def __init__(self, settings: Settings, nodes: Registry) -> None:
        self._settings = settings
        self._nodes = nodes
        self._store: RedisStore | None = None
        self._services: Services | None = None
        self._why_not = _NOT_YET
        self._greenlet: Any = None
        self.failed = Event()
        self.error: AsyncNodesError | None = None

    def __call__(self) -> Services:
        """Return the services.

        Raises:
            StoreUnavailable: the store has not answered yet.

        """
        if self._services is None:
            raise StoreUnavailable(self._why_not)
        return self._services

    def start(self) -> None:
        """Begin to try, as often as it takes."""
        self._greenlet = gevent.spawn(self._run)

    def close(self) -> None:
        """Stop trying, and end every stream."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
        if self._services is not None:
            self._services.hub.close()

    def _run(self) -> None:
        pause = _PAUSE_FIRST
        while self._services is None:
            try:
                self._services = self._open()
            except (StoreUnavailable, ResponseError) as error:  # such as LOADING
                self._tell(str(error))
            except AsyncNodesError as error:
                self.error = error
                self.failed.set()
                return
            else:
                log.info("The task store answers", extra={"action": "store_open"})
                return
            gevent.sleep(pause)
            pause = min(pause * 2, _PAUSE_MOST)

    def _open(self) -> Services:
        settings = self._settings
        if self._store is None:
            _probe(settings.store_url)
            app = make_app(settings)
            self._store = open_shared(settings, app, worker=False, title=CLIENT_NAME)
        hub = Hub(settings, self._store)
        services = Services.assemble(settings, self._store, hub, self._nodes)
        hub.start()
        return services

    def _tell(self, why: str) -> None:
        if why != self._why_not:  # once per cause, not once per try
            log.warning(
                "The task store does not answer; tasks are refused until it does: %s",
                why,
                extra={"action": "store_awaited"},
            )
        self._why_not = why


def _probe(url: str) -> None:
    """Raise unless the store answers: a store that fails to open leaves its connection behind."""
    probe = PipelinedConnection(url, client_name=CLIENT_NAME)
    try:
        probe.call("PING")
    finally:
        probe.close()
