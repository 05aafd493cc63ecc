"""What a worker process is made of, put together once per process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING

from async_nodes.core.breaker import Breaker
from async_nodes.core.log_levels import LEVELS
from async_nodes.dispatch.celery_factory import make_app
from async_nodes.dispatch.connect import open_blocking
from async_nodes.egress.guard import Guard
from async_nodes.execution.attempt import Executor
from async_nodes.execution.breakers import Board
from async_nodes.execution.breaking import Breaking
from async_nodes.execution.bus import BUS
from async_nodes.execution.files import WorkerFiles
from async_nodes.execution.middleware import STANDARD, compose, profiled
from async_nodes.nodes.registry import registry
from async_nodes.settings import Settings
from async_nodes.storage.blobs import Blobs
from async_nodes.storage.breakers import SharedBreakers
from async_nodes.storage.ends import Ends
from async_nodes.telemetry import breaker_metrics, profiling, tracing
from async_nodes.telemetry.profiling import PROFILING

if TYPE_CHECKING:
    from async_nodes.execution.attempt import Host
    from async_nodes.execution.plain_host import PlainHost
    from async_nodes.storage.redis_store import RedisStore


def new_worker_id(kind: str) -> str:
    """Return an id for this life of this process; a restarted worker is another worker."""
    return f"{kind}-{os.getpid()}-{secrets.token_hex(4)}"


def new_fence() -> str:
    """Return a fence: 16 characters that no other claim has."""
    return secrets.token_hex(8)


def executor_for(settings: Settings, store: RedisStore, host: Host) -> Executor:
    """Return what every attempt of this process shares."""
    nodes = registry(settings.imports)
    endpoint = (
        Breaker(
            window=settings.endpoint_breaker_window,
            open_seconds=settings.endpoint_breaker_open_seconds,
        )
        if settings.endpoint_breakers
        else None
    )
    board = Board(SharedBreakers(store), host.aside, endpoint=endpoint)
    breaker_metrics.show(board.conditions)
    breaking = Breaking(board, nodes, host)
    return Executor(
        store=store,
        registry=nodes,
        host=host,
        guard=Guard(frozenset(settings.egress_allow)),
        middleware=STANDARD if PROFILING.profiler is None else compose((STANDARD, profiled)),
        bus=BUS,
        files=WorkerFiles(settings, store),
        blobs=lambda tenant: Blobs(store, tenant),
        log_level=LEVELS[settings.task_log_level],
        expect_end=Ends(store, settings.lease_seconds).expect,
        protect=breaking.protect,
        calls=breaking.calls,
        hedge=breaking.hedge,
    )


def plain_executor(title: str, host: PlainHost) -> tuple[Executor, Callable[[], None]]:
    """Return the executor of a process that runs one body at a time, and how to close it."""
    settings = Settings.load()
    tracing.start(settings.trace_sample, "worker-cpu")
    profiling.start(settings.pyroscope_url, "worker-cpu")
    store = open_blocking(settings, make_app(settings), title=f"async-nodes:{title}")
    return executor_for(settings, store, host), store.close
