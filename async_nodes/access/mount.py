"""Step 5, expose: our routes as a part of a Flask app that is there already.

    app.register_blueprint(async_nodes.blueprint(url_prefix="/jobs"))

The routes are then below ``/jobs/v1/…``. The host serves them with whatever server it has: under
gevent as our own web process does, with threads by a connection for each stream.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from flask import Blueprint
from gevent.monkey import is_module_patched

from async_nodes.access.app import areas, equip
from async_nodes.access.guard import EVERYBODY, Guard, is_loopback
from async_nodes.access.keyring import Keyring
from async_nodes.access.services import Services
from async_nodes.access.streams.hub import Hub
from async_nodes.access.streams.thread_hub import ThreadHub
from async_nodes.access.streams.turnstile import Turnstile
from async_nodes.core.api_keys import Caller
from async_nodes.core.errors import AsyncNodesError
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking, open_shared
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage.redis_store import WEB_PATIENCE

if TYPE_CHECKING:
    from async_nodes.nodes.registry import Registry
    from async_nodes.storage.redis_store import RedisStore

TITLE = "async-nodes-mounted"


def blueprint(
    settings: Settings | None = None,
    *,
    url_prefix: str = "",
    name: str = "async_nodes",
    nodes: Registry | None = None,
    host_decides: bool = False,
) -> Blueprint:
    """Return all of our routes as one blueprint; the store is opened by the first request.

    Args:
        settings: those of the environment when omitted (a module ``settings`` is the host's).
        url_prefix: where the routes are, ``/jobs`` for example; also what all links begin with.
        name: of the blueprint, for a host that mounts several.
        nodes: the registry; that of the settings when omitted.
        host_decides: who may call is seen to by the host, in a ``before_request`` of its app.
            Otherwise it is as with our own web process: with ``ASYNC_NODES_API_KEY`` whoever has
            the key, without it programs on the same machine.

    Raises:
        AsyncNodesError: ``invalid_setting``, ``unknown_setting`` or ``invalid_node``.

    """
    settings = Settings.for_host() if settings is None else settings
    nodes = registry(settings.imports) if nodes is None else nodes
    base = url_prefix.rstrip("/")
    made = Blueprint(name, __name__, url_prefix=url_prefix or None)
    opening = Opening(settings, nodes, base)
    keyring = Keyring(opening) if settings.api_keys else None
    guard = HostGuard(settings) if host_decides else MountedGuard(settings, keyring)
    equip(made, guard, Turnstile(settings.max_streams), base=base)
    for area in areas(settings, opening, nodes):
        made.register_blueprint(area)
    return made


class MountedGuard(Guard):
    """Decide about requests to an app whose address is not ours to know."""

    def check_sender(self, address: str | None) -> None:
        """Refuse, without a key, who is not on this machine.

        Raises:
            AsyncNodesError: ``unauthorized``.

        """
        if self.keyless and not is_loopback(address or ""):
            raise AsyncNodesError(
                "unauthorized", "set ASYNC_NODES_API_KEY, or let the host decide who may call"
            )


class HostGuard(Guard):
    """Leave it to the host who may call."""

    def check_origin(self, *, host: str | None, origin: str | None, fetch_site: str | None) -> None:
        """Let everybody pass."""

    def caller(self, authorization: str | None) -> Caller:
        """Return somebody who may do everything."""
        return EVERYBODY


class Opening:
    """Open the store when it is first needed, once per process; callable as a `Provider`.

    A host may load the app and fork afterwards: connections made before would be shared.
    """

    def __init__(self, settings: Settings, nodes: Registry, base: str) -> None:
        self._settings = settings
        self._nodes = nodes
        self._base = base
        self._lock = threading.Lock()
        self._services: Services | None = None

    def __call__(self) -> Services:
        """Return the services.

        Raises:
            AsyncNodesError: what `scripts_for` raises.
            StoreUnavailable: the store does not answer.

        """
        if self._services is None:
            with self._lock:
                if self._services is None:
                    self._services = self._open()
        return self._services

    def _open(self) -> Services:
        settings, celery = self._settings, make_app(self._settings)
        store: RedisStore
        hub: Hub | ThreadHub
        if is_module_patched("socket"):
            store = open_shared(settings, celery, worker=False, title=TITLE)
            hub = Hub(settings, store)
        else:
            store = open_blocking(settings, celery, title=TITLE, patience=WEB_PATIENCE)
            hub = ThreadHub(settings.store_url, store.keys)
        services = Services.assemble(settings, store, hub, self._nodes, base=self._base)
        _at_exit(hub.close, store.close)
        return services


def _at_exit(*closing: Callable[[], None]) -> None:
    def close() -> None:
        for one in closing:
            with suppress(Exception):  # the interpreter ends: nobody is there to be told
                one()

    atexit.register(close)
