"""Start a worker: the command behind ``async-nodes worker`` and ``celery -A celery_app worker``."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from typing import TYPE_CHECKING

from celery import signals
from celery.app import defaults
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from async_nodes.core.priority import CLASSES
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.execution.tasks import Installation, check_settings
from async_nodes.execution.title import set_title
from async_nodes.nodes.registry import registry
from async_nodes.settings import CELERY, refuse_unknown_celery_names
from async_nodes.storage import celery_backend
from async_nodes.storage.keys import Keys
from async_nodes.telemetry import logs, task_lines

if TYPE_CHECKING:
    from celery import Celery

    from async_nodes.settings import Settings

POOLS = {"io": "gevent", "cpu": "prefork"}
IO_CONCURRENCY = 300


def default_concurrency(kind: str) -> int:
    """Return how many bodies a worker runs at once: hundreds that wait, one per core that compute.

    CPU workers leave two cores to the I/O worker, Redis and the web process, where there are more.
    """
    return IO_CONCURRENCY if kind == "io" else max(1, (os.cpu_count() or 1) - 2)


def make_worker_app(settings: Settings) -> Celery:
    """Return the Celery app of a worker, with our task, our result backend and checked names.

    Raises:
        AsyncNodesError: ``unknown_setting`` for a CELERY_ name that Celery does not know.

    """
    names = [CELERY + name.upper() for name in settings.celery]
    refuse_unknown_celery_names([*names, *os.environ], defaults.SETTING_KEYS)
    registry(settings.imports)  # a module that cannot be imported is told of before Celery starts
    app = make_app(settings)
    celery_backend.install(app, settings)
    Installation(app, settings)
    return app


def main(
    settings: Settings, kind: str, *, concurrency: int | None = None, log_level: str = "WARNING"
) -> int:
    """Run a worker until it is told to stop.

    Args:
        settings: the process's settings.
        kind: ``io`` (gevent; the process must be patched already) or ``cpu`` (prefork).
        concurrency: bodies at once; `default_concurrency` when None.
        log_level: of the log, Celery's and ours.

    Returns:
        The process's exit status.

    Raises:
        AsyncNodesError: ``invalid_setting`` or ``unpatched``, before anything is started.

    """
    # Celery warns of root because pickle would be dangerous there; we take JSON and nothing else.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # Of a default that we have set: leases decide about tasks, not the broker's connection.
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
    set_title(f"async-nodes worker {kind}")
    level, as_json = logging.getLevelName(log_level), settings.log_format == "json"
    signals.setup_logging.connect(
        lambda **_: logs.configure(level=level, as_json=as_json), weak=False
    )
    task_lines.start(wanted=settings.log_tasks or level <= logging.INFO)
    app = make_worker_app(settings)
    keys = Keys(settings.key_prefix)
    slots = concurrency or default_concurrency(kind)
    check_settings(app.conf, green=POOLS[kind] == "gevent", concurrency=slots)
    worker = app.Worker(
        hostname=f"{kind}-{os.getpid()}@{socket.gethostname()}",
        pool_cls=POOLS[kind],
        concurrency=slots,
        queues=[keys.queue(f"{kind}.{name}") for name in CLASSES],
        loglevel=log_level,
        quiet=True,
        redirect_stdouts=False,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )
    worker.start()
    return int(worker.exitcode or 0)
