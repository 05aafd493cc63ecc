"""Step 5, expose: the web process. gevent's server around the app, from start to orderly end.

It serves from the first moment: while the store does not answer, requests get 503 and ``/readyz``
says why. It stops in order: no new connections, streams told to go elsewhere, requests finished.
Several such processes may serve one port; another one looks after them, and gives each what is in
`inherited`. One of several waits a little for the store before it accepts: the others have it.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

import gevent
from gevent.event import Event
from gevent.monkey import is_module_patched
from gevent.pool import Pool
from prometheus_client import disable_created_metrics
from redis.exceptions import ResponseError
from setproctitle import setproctitle

from async_nodes.access.api import ops
from async_nodes.access.app import build_app
from async_nodes.access.guard import refuse_open_door
from async_nodes.access.lane.fast_lane import FastLane
from async_nodes.access.services import Services
from async_nodes.access.serving import identity, listener, seats, ticket_keys
from async_nodes.access.serving.http import Server
from async_nodes.access.serving.inherited import Inherited
from async_nodes.access.serving.neighbours import Neighbours
from async_nodes.access.serving.own_metrics import serve_metrics
from async_nodes.access.serving.signals import Signals
from async_nodes.access.serving.tls import ServerTls
from async_nodes.access.serving.tls_handshake import Handshakes
from async_nodes.access.streams.hub import Hub
from async_nodes.core import collector
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_shared
from async_nodes.nodes.registry import Registry, registry
from async_nodes.settings import Settings
from async_nodes.storage.redis_connection import PipelinedConnection
from async_nodes.storage.redis_errors import StoreUnavailable
from async_nodes.storage.redis_store import RedisStore
from async_nodes.telemetry import logs, process_metrics, profiling, task_lines, tracing

TITLE: Final = "async-nodes web"
CLIENT_NAME: Final = "async-nodes-web"
MAX_CONNECTIONS: Final = 15_000
SPARE_DESCRIPTORS: Final = 200
OPEN_SECONDS: Final = 2.0
"""How long one of several processes waits for the store before it accepts, and answers 503."""

RETIRE_SECONDS: Final = 2.0
"""How long a process that has a successor goes on with the connections it has: a client that polls
once a second gets an answer that closes its connection, and none that was closed under it."""

_PAUSE_FIRST, _PAUSE_MOST = 0.1, 1.0
_LOOK_SECONDS: Final = 0.05
_NOT_YET: Final = "the task store has not answered since this process began"

log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    *,
    on_ready: Callable[[str, int], None] | None = None,
    fast_lane: bool = True,
    inherited: Inherited | None = None,
) -> int:
    """Run the web process until SIGTERM or SIGINT; a second signal ends it at once.

    Args:
        settings: where to listen, where the store is, how long to finish.
        on_ready: called with host and port once connections are accepted.
        fast_lane: whether ordinary requests are answered before they reach the app.
        inherited: what another process gave to this one of several; a second signal does nothing.

    Returns:
        The exit status, 0.

    Raises:
        AsyncNodesError: ``unpatched``, ``port_busy``, ``invalid_setting`` (no key, but a host
            that others can reach; a certificate that cannot be used), ``invalid_node``,
            ``redis_too_old``, ``unsupported_store``.

    """
    if not is_module_patched("socket"):
        raise AsyncNodesError("unpatched", "the web process needs gevent.monkey.patch_all() first")
    refuse_open_door(settings)
    allow_descriptors(MAX_CONNECTIONS + SPARE_DESCRIPTORS)
    logs.configure(as_json=settings.log_format == "json")
    task_lines.start(wanted=settings.log_tasks)
    disable_created_metrics()  # type: ignore[no-untyped-call] # the library's own omission
    nodes = registry(settings.imports)
    tls = ServerTls.of(settings, ticket_key=_ticket_key(inherited))
    if tls is not None and (inherited is None or inherited.number == 0):  # once is enough
        tls.warn()
    opening = Opening(settings, nodes)
    server = _server(settings, opening, nodes, tls, inherited, fast_lane=fast_lane)
    signals = Signals(
        reload=None if tls is None else lambda: _reload(tls), one_of_many=inherited is not None
    )
    tracing.start(settings.trace_sample, "web")
    profiling.start(settings.pyroscope_url, "web")
    collector.rest()
    process_metrics.watch_collector()
    gevent.spawn(process_metrics.watch_loop, gevent.sleep)
    opening.start()
    if inherited is not None:  # the others accept meanwhile, and have a store
        gevent.wait([signals.stopping, opening.failed, opening.opened], OPEN_SECONDS, count=1)
        seats.Seats(inherited.seats, inherited.processes).take(inherited.number)
    server.start()
    _announce(server, tls, inherited, on_ready)
    gevent.wait([signals.stopping, signals.retiring, opening.failed, opening.opened], count=1)
    if opening.opened.is_set() and inherited is not None:
        inherited.tell_ready()
    gevent.wait([signals.stopping, signals.retiring, opening.failed], count=1)
    if signals.retiring.is_set():
        retire(server, signals.stopping)
    stop(server, opening, seconds=settings.shutdown_seconds)
    tracing.stop()
    profiling.stop()
    if opening.error is not None:
        raise opening.error
    return 0


def _ticket_key(inherited: Inherited | None) -> bytes | None:
    if inherited is None or inherited.tickets < 0:
        return None
    with os.fdopen(inherited.tickets, "rb") as pipe:
        return pipe.read(ticket_keys.LENGTH)


def _reload(tls: ServerTls) -> None:
    try:
        tls.reload()
        tls.warn()
    except AsyncNodesError as error:
        log.error(  # noqa: TRY400 - the file is at fault, not a line of ours
            "The certificate in force stays: %s", error.detail, extra={"action": "tls_not_reloaded"}
        )


def _announce(
    server: Server,
    tls: ServerTls | None,
    inherited: Inherited | None,
    on_ready: Callable[[str, int], None] | None,
) -> None:
    """Say who this process is, and where it serves."""
    if inherited is None:
        setproctitle(TITLE)
        scheme = "http" if tls is None else "https"
        where = listener.shown(server.address)
        log.info("Listening on %s://%s", scheme, where, extra={"action": "web_ready"})
    else:
        setproctitle(f"{TITLE} {inherited.number}")
        log.info(
            "Process %d of %d serves",
            inherited.number,
            inherited.processes,
            extra={"action": "web_ready", "pid": os.getpid()},
        )
    if on_ready is not None:
        on_ready(server.server_host, server.server_port)


def allow_descriptors(wanted: int) -> None:
    """Raise this process's limit of open files as far as it may be raised.

    Most systems begin with 1,024, which a thousand watching clients would use up.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _server(
    settings: Settings,
    opening: Opening,
    nodes: Registry,
    tls: ServerTls | None,
    inherited: Inherited | None,
    *,
    fast_lane: bool,
) -> Server:
    """Return the server, which does not accept yet; raises what `listener.bind` raises."""
    app = build_app(settings, opening, nodes=nodes)
    lane = FastLane(settings, opening) if fast_lane else None
    neighbours = None
    if inherited is None:
        bound = listener.bind(settings.host, settings.port)
    else:
        identity.become(inherited.number)
        bound, neighbours = _taken(inherited)
    server = Server(
        bound,
        app,
        lane=lane,
        neighbours=neighbours,
        tls=None if tls is None else Handshakes(tls),
        spawn=Pool(MAX_CONNECTIONS),
    )
    if inherited is not None and inherited.metrics >= 0:
        own = socket.socket(fileno=inherited.metrics)
        server.companion = serve_metrics(
            own, lambda accept: ops.metrics_page(settings, opening, accept)
        )
    return server


def _taken(inherited: Inherited) -> tuple[socket.socket, Neighbours]:
    """Return this process's listener, and those that it may have to look after."""
    listeners = {
        number: socket.socket(fileno=descriptor)
        for number, descriptor in enumerate(inherited.listeners)
    }
    own = listeners.pop(inherited.number if len(listeners) > 1 else 0)
    for other in listeners.values():
        other.setblocking(False)
    return own, Neighbours(seats.Seats(inherited.seats, inherited.processes), listeners)


def retire(server: Server, stopping: Event) -> None:
    """Leave new connections to a successor, and let those there are end by themselves."""
    log.info("Retiring", extra={"action": "web_retiring"})
    server.retire()
    until = monotonic() + RETIRE_SECONDS
    while server.connections and (left := until - monotonic()) > 0:
        if stopping.wait(min(left, _LOOK_SECONDS)):
            return


def stop(server: Server, opening: Opening, *, seconds: float) -> None:
    """End in order, within a bound: streams at once, requests after they were answered."""
    log.info("Stopping", extra={"action": "web_stopping"})
    server.retire()
    opening.close()
    server.close_idle()
    server.stop(timeout=seconds)
    log.info("Stopped", extra={"action": "web_stopped"})


class Opening:
    """Open the store in the background, and give the services as soon as they are there.

    Attributes:
        opened: set when the services are there.
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
        self.opened = Event()
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
                self.opened.set()
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
