"""The one Celery task, and what a Celery worker of ours is made of.

Celery delivers wake-ups and supervises processes; the record decides what they mean. Everything
here is hung onto Celery by its own extension points: a strategy, a request class and signals.
"""

from __future__ import annotations

import _thread
import logging
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery import signals

from async_nodes.core import collector
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.log_levels import LEVELS
from async_nodes.core.priority import LISTS
from async_nodes.dispatch.connect import open_blocking, open_shared
from async_nodes.dispatch.messages import DISPATCH_HEADER, TASK_NAME
from async_nodes.egress.guard import Guard
from async_nodes.execution import ledger
from async_nodes.execution.cancels import CancelListener
from async_nodes.execution.due_schedules import due_schedules
from async_nodes.execution.effects import Effects
from async_nodes.execution.introspection import Introspection
from async_nodes.execution.keeper import Keeper
from async_nodes.execution.plain_host import in_thread
from async_nodes.execution.process import executor_for, new_worker_id
from async_nodes.execution.title import set_title
from async_nodes.execution.transport import transport
from async_nodes.nodes.registry import registry
from async_nodes.storage.ends import Ends
from async_nodes.storage.keys import Keys
from async_nodes.telemetry import (
    page_server,
    process_metrics,
    profiling,
    tracing,
    work_metrics,
)
from async_nodes.telemetry.children import Pipe

if TYPE_CHECKING:
    from celery import Celery, Task

    from async_nodes.execution.io_pool import IoPool
    from async_nodes.settings import Settings

_log = logging.getLogger(__name__)

SPARE_CONNECTIONS = 20
DRAIN_GRACE = 4.0
GREEN_POOLS, FORK_POOLS = ("gevent",), ("prefork", "processes", "solo")


@dataclass(slots=True)
class Worker:
    """Hold what a worker process is made of while it lives."""

    kind: str
    pool: Any
    keeper: Keeper
    cancels: CancelListener


class Installation:
    """Hang our task onto a Celery app.

    Args:
        app: the app.
        settings: the process's settings.
        mounted: whether the app is a host's: its own queues, settings and titles stay as they are,
            and a worker that takes none of our lists has nothing of ours.

    """

    def __init__(self, app: Celery, settings: Settings, *, mounted: bool = False) -> None:
        self._app = app
        self._settings = settings
        self._mounted = mounted
        self._worker: Worker | None = None
        self._worker_id = ""
        self._slots = 0
        self._lists: list[str] = []
        self._idle = False
        self._child: Any = None
        self._pipe: Pipe | None = None
        self._task = self._declare()
        signals.celeryd_init.connect(_or_end(self._on_init), weak=False)
        signals.celeryd_after_setup.connect(_or_end(self._on_setup), weak=False)
        signals.worker_ready.connect(_or_end(self._on_ready), weak=False)
        signals.worker_process_init.connect(_or_end(self._on_child), weak=False)
        signals.worker_shutting_down.connect(self._on_stopping, weak=False)
        signals.worker_shutdown.connect(self._on_stopped, weak=False)

    def _declare(self) -> Task:
        installation = self

        @self._app.task(
            name=TASK_NAME,
            bind=True,
            acks_late=True,
            ignore_result=True,
            max_retries=0,
            soft_time_limit=None,
            time_limit=None,
        )
        def execute(task: Task) -> str:
            return installation.run_in_child(task.request)

        declared: Task = execute
        return declared

    # -- Celery's signals, in the order of a worker's life -----------------------------------

    def _on_init(self, conf: Any, options: dict[str, Any], **_: object) -> None:
        """Check and complete the settings before the pool is made."""
        pool = str(options.get("pool_cls") or options.get("pool") or conf.worker_pool)
        concurrency = int(
            options.get("concurrency") or conf.worker_concurrency or os.cpu_count() or 1
        )
        green = is_green(pool)
        if self._mounted:
            refuse_unpatched(green=green)
        else:
            check_settings(conf, green=green, concurrency=concurrency)
        ledger.install(shared=self._mounted)
        conf.worker_consumer = "async_nodes.execution.consumer:Consumer"
        # A server that changes its role, or is full, ends Celery's wait with an error of its own:
        # no reason to end the worker.
        conf.broker_channel_error_retry = True
        self._slots = concurrency
        self._worker_id = new_worker_id("io" if green else "cpu")
        if green:
            self._task.Strategy = "async_nodes.execution.tasks:io_strategy"
            self._task.installation = self
        else:
            if not self._mounted:
                conf.worker_prefetch_multiplier = 1
            if self._settings.metrics_port is not None:
                self._pipe = Pipe()
            self._task.Request = "async_nodes.execution.cpu_pool:CpuRequest"

    def _on_setup(self, instance: Any, **_: object) -> None:
        """Choose what an I/O worker takes: what it was told to, else what it is made for.

        With the fast transport Celery's own consumer is left with an empty queue of its own, or
        with the host's queues.
        """
        kind = self._worker_id.partition("-")[0]
        keys = Keys(self._settings.key_prefix)
        queues = instance.app.amqp.queues
        if self._mounted:
            chosen = _beside(queues, keys, kind)
            self._idle = not set(chosen) & set(keys.queues)
            if self._idle:
                return
        elif kind == "cpu":
            return
        else:
            chosen = list(queues.consume_from)
            if len(chosen) == len(queues):
                chosen = [name for name in chosen if ".io." in name]
        if kind == "io" and transport(self._settings.transport) == "fast":
            self._lists = [name for name in LISTS if keys.queue(name) in chosen]
            chosen = [name for name in chosen if name not in keys.queues]
            if not chosen:
                chosen = [keys.queue("io.celery")]
                queues.add(chosen[0])
        queues.select(chosen)

    def _on_ready(self, sender: Any, **_: object) -> None:
        """Start what runs beside the work; the children of a CPU worker are forked by now."""
        if self._idle:
            return
        if self._worker_id.startswith("cpu-"):
            self._start_cpu(sender)
        elif self._mounted:
            self.io_pool()  # Celery starts the consumer of a host's queues without asking us
        if self._worker is not None:
            self._title(f"async-nodes worker {self._worker.kind}")  # Celery has set its own by now
            self._worker.cancels.start()
            if self._lists:
                self._start_intake(self._worker.pool)
            self._expose(self._worker.pool)
            if not self._mounted:
                collector.rest()
            _log.info("Worker %s is ready", self._worker_id, extra={"action": "worker_ready"})

    def _expose(self, pool: Any) -> None:
        """Serve the metrics of this worker, where that is asked for."""
        settings = self._settings
        if page_server.expose(settings.metrics_port, host=settings.metrics_host) is None:
            return
        work_metrics.slots.now = self._slots
        work_metrics.slots_used.read = pool.active
        process_metrics.watch_collector()
        if self._pipe is not None:
            self._pipe.listen()
            work_metrics.active_is(pool.active)
        else:
            import gevent

            gevent.spawn(process_metrics.watch_loop, gevent.sleep)

    def _on_child(self, **_: object) -> None:
        """Set up a prefork child, before its first task."""
        from async_nodes.execution.cpu_pool import NICENESS, Child

        if not self._mounted:
            set_title("async-nodes worker cpu child")
            os.nice(NICENESS)
        # Celery's children are daemons, which may have no children; a body may compute in several.
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]  # noqa: SLF001
        self._worker = None
        self._child = Child(self._worker_id, self._pipe)

    def _on_stopping(self, **_: object) -> None:
        """Drain in the background; Celery waits for the pool meanwhile."""
        if self._worker is not None:
            # Not `threading`: its start() waits, which a signal handler under gevent must not.
            _thread.start_new_thread(self._worker.pool.drain, (self._settings.shutdown_seconds,))

    def _on_stopped(self, **_: object) -> None:
        if self._worker is not None:
            self._worker.cancels.stop()
            self._worker.pool.wait_drained(self._settings.shutdown_seconds + DRAIN_GRACE)
            self._worker.keeper.stop()
        tracing.stop()
        profiling.stop()

    def _title(self, title: str) -> None:
        if not self._mounted:
            set_title(title)

    # -- work --------------------------------------------------------------------------------

    def run_in_child(self, request: Any) -> str:
        """Run the task of a message in this process, one at a time."""
        if self._child is None:
            from async_nodes.execution.cpu_pool import Child

            self._child = Child(self._worker_id)
        answer: str = self._child.execute(request.id, int(request.get(DISPATCH_HEADER) or 0))
        return answer

    def io_pool(self) -> IoPool:
        """Return the I/O pool of this process; the first call makes it and takes the lease."""
        if self._worker is None:
            return self._start_io()
        pool: IoPool = self._worker.pool
        return pool

    def _start_io(self) -> IoPool:
        import redis
        from gevent.hub import get_hub

        from async_nodes.execution.forks import leave_greenlets_behind
        from async_nodes.execution.green_host import GreenHost
        from async_nodes.execution.io_pool import IoPool

        leave_greenlets_behind()

        settings = self._settings
        tracing.start(settings.trace_sample, "worker-io")
        profiling.start(settings.pyroscope_url, "worker-io")
        store = open_shared(
            settings, self._app, worker=True, title=f"async-nodes:{self._worker_id}"
        )
        # Celery's remote control dies of a cut connection and is started again with the next one;
        # gevent need not write a traceback about it.
        hub = get_hub()
        hub.NOT_ERROR = (*hub.NOT_ERROR, redis.ConnectionError)
        executor = executor_for(settings, store, GreenHost())
        ends = Ends(store, settings.lease_seconds)
        effects = Effects(
            store,
            ends,
            executor.registry,
            executor.guard,
            aside=executor.host.aside,
            log_level=executor.log_level,
        )
        pool = IoPool(executor, effects, self._worker_id)
        self._start("io", pool, ends, loop=pool.pulse)
        return pool

    def _start_intake(self, pool: IoPool) -> None:
        from async_nodes.execution.intake import Intake

        pool.intake = Intake(
            store=pool.store,
            url=self._settings.store_url,
            worker=self._worker_id,
            lists=self._lists,
            slots=self._slots,
            run=pool.run,
            expired=pool.expired,
        )
        pool.intake.start()

    def _start_cpu(self, consumer: Any) -> None:
        """Make the parent's side of the CPU pool and take its lease."""
        from async_nodes.execution import cpu_pool

        settings = self._settings
        store = open_blocking(settings, self._app, title=f"async-nodes:{self._worker_id}")
        guard = Guard(frozenset(settings.egress_allow))
        ends = Ends(store, settings.lease_seconds)
        effects = Effects(
            store,
            ends,
            registry(settings.imports),
            guard,
            aside=in_thread,
            log_level=LEVELS[settings.task_log_level],
        )
        pool = cpu_pool.CpuPool(store, effects, self._worker_id)
        cpu_pool.install(pool)
        cpu_pool.maintain_often(consumer)
        self._start("cpu", pool, ends, loop=None)

    def _start(self, kind: str, pool: Any, ends: Ends, *, loop: Any) -> None:
        settings = self._settings
        store = open_blocking(settings, self._app, title=f"async-nodes:{self._worker_id}:keeper")
        keeper = Keeper(
            store=store,
            worker=self._worker_id,
            lease_seconds=settings.lease_seconds,
            held=pool.held,
            known=pool.known,
            on_lease_lost=pool.lease_lost,
            on_ended=pool.ended_elsewhere,
            ends=ends,
            on_schedules=due_schedules(store, settings).turn,
            info=self._introspection(kind, pool).compose,
            loop=loop,
        )
        cancels = CancelListener(
            settings.store_url,
            keeper.channel,
            on_cancel=pool.cancel,
            on_gap=pool.look_back,
        )
        keeper.start()
        self._worker = Worker(kind, pool, keeper, cancels)

    def _introspection(self, kind: str, pool: Any) -> Introspection:
        settings, chosen = self._settings, self._app.amqp.queues.consume_from
        keys = Keys(settings.key_prefix)
        return Introspection(
            kind=kind,
            concurrency=self._slots,
            transport="fast" if self._lists else "stock",
            lists=self._lists or [name for name in LISTS if keys.queue(name) in chosen],
            nodes=len(registry(settings.imports)),
            counts=pool.taken,
        )


def _beside(queues: Any, keys: Keys, kind: str) -> list[str]:
    """Return what a host's worker takes: what ``-Q`` named, else its own and the lists of a kind.

    Celery's ``-Q`` has made queues of the names by now, so ours are among them where they are.
    """
    named = list(queues.consume_from)
    if queues._consume_from is not None:  # noqa: SLF001 - only -Q and our own select set it
        return named
    ours = [keys.queue(name) for name in LISTS if name.startswith(kind)]
    for name in ours:
        if name not in queues:
            queues.add(name)
    return [*(name for name in named if name not in keys.queues), *ours]


def _or_end(receiver: Callable[..., None]) -> Callable[..., None]:
    """Return a receiver whose failure ends the process.

    Celery logs what a receiver raises and goes on; a worker that was set up by half would hold a
    lease and run nothing.
    """

    def receive(**given: Any) -> None:
        try:
            receiver(**given)
        except AsyncNodesError as error:
            raise SystemExit(f"error: {error.detail} [{error.code}]") from None
        except Exception as error:  # whatever it is, Celery would log it and go on
            _log.exception("The worker cannot start", extra={"action": "worker_broken"})
            raise SystemExit(f"error: unexpected {type(error).__name__}: {error}") from error

    return receive


def io_strategy(task: Any, app: Celery, consumer: Any, **_: object) -> Callable[..., None]:
    """Hand messages to the I/O pool: no Request, no tracer, no result."""
    pool = task.installation.io_pool()
    slots = consumer.pool

    def handle(
        message: Any, _body: object, ack: Any, _reject: object, _callbacks: object, **_: object
    ) -> None:
        pool.receive(message, slots, lambda: ack(_log, consumer.connection_errors))

    return handle


def is_green(pool: str) -> bool:
    """Tell whether a Celery pool is of greenlets.

    Raises:
        AsyncNodesError: ``invalid_setting`` for one that is neither gevent nor of processes.

    """
    if any(name in pool for name in GREEN_POOLS):
        return True
    if any(name in pool for name in FORK_POOLS):
        return False
    raise AsyncNodesError(
        "invalid_setting", f"the pool {pool!r} is not supported: use gevent or prefork"
    )


def refuse_unpatched(*, green: bool) -> None:
    """Refuse a worker of greenlets whose sockets would block.

    Raises:
        AsyncNodesError: ``unpatched``.

    """
    if not green:
        return
    from gevent.monkey import is_module_patched

    if not is_module_patched("socket"):
        raise AsyncNodesError("unpatched")


def check_settings(conf: Any, *, green: bool, concurrency: int) -> None:
    """Complete Celery's settings, and refuse those under which tasks would be lost.

    Raises:
        AsyncNodesError: ``invalid_setting`` or ``unpatched``.

    """
    options = dict(conf.broker_transport_options)
    if options.get("global_keyprefix"):
        _refuse(
            "CELERY_BROKER_TRANSPORT_OPTIONS",
            "global_keyprefix is not supported: use ASYNC_NODES_KEY_PREFIX",
        )
    if not conf.result_backend_thread_safe:
        _refuse(
            "CELERY_RESULT_BACKEND_THREAD_SAFE",
            "must be true: otherwise every task opens a connection of its own",
        )
    if set(conf.accept_content) - {"json", "application/json"}:
        _refuse("CELERY_ACCEPT_CONTENT", 'must be ["json"]: other formats can run code')
    refuse_unpatched(green=green)
    needed = concurrency + SPARE_CONNECTIONS
    given = options.get("max_connections")
    if given is not None and given < needed:
        _refuse(
            "CELERY_BROKER_TRANSPORT_OPTIONS",
            f"max_connections is {given}; with "
            f"{concurrency} slots it must be {needed} or more, or absent",
        )
    conf.broker_transport_options = {**options, "max_connections": given or needed}


def _refuse(name: str, why: str) -> None:
    raise AsyncNodesError("invalid_setting", f"{name}: {why}")
