"""The processes of a whole installation on one machine: what `dev` and `demo` start."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from async_nodes.cli.service import ProgramService, StoreService

if TYPE_CHECKING:
    from collections.abc import Mapping

    from async_nodes.cli.service import Service
    from async_nodes.settings import Settings

#: The order of the stop.
WEB, WORKERS, MODEL, STORE = range(4)

#: Seconds beyond the drain until a process is taken for hung.
_GRACE = 3.0


@dataclass(slots=True, kw_only=True)
class Stack:
    """Describe the processes.

    Attributes:
        settings: of the whole; without an address of a store, an embedded one is started.
        host, port: where the web process listens.
        io_concurrency, cpu_concurrency: tasks at once in each worker; its own default when None.
        environ: variables for all of them, over this process's own.
        model_port: also start the simulated model, there.
        patience: seconds the web and the workers may take to stop; by default what the settings
            give running tasks, and a little more.

    """

    settings: Settings
    host: str
    port: int
    io_concurrency: int | None = None
    cpu_concurrency: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    model_port: int | None = None
    patience: float | None = None
    _store: StoreService | None = None
    _metrics: dict[str, int] = field(default_factory=dict)

    def services(self) -> list[Service]:
        """Return the processes in the order of their start."""
        services: list[Service] = []
        if self.settings.redis_url is None:
            self._store = StoreService(self.settings.data_dir, stage=STORE)
            services.append(self._store)
        first = self.settings.metrics_port
        for at, pool in enumerate(("io", "cpu")):
            self._metrics[pool] = first + at if first else free_port()
        web = ("serve", "--plain", "--host", self.host, "--port", str(self.port))
        services.append(self._program("web", web, stage=WEB))
        pools = (("io", self.io_concurrency), ("cpu", self.cpu_concurrency))
        for pool, slots in pools:
            verb: tuple[str, ...] = ("worker", "--pool", pool)
            if slots is not None:
                verb += ("--concurrency", str(slots))
            services.append(self._program(f"worker {pool}", verb, stage=WORKERS, metrics=pool))
        if self.model_port is not None:
            model = ("model-server", "--port", str(self.model_port), "--gap-ms", "45")
            services.append(self._program("model", model, stage=MODEL))
        return services

    @property
    def shared_store(self) -> int | None:
        """Return the process id of a store that another process started, None if it is ours."""
        store = self._store
        return store.pid if store is not None and store.is_shared else None

    def child_environ(self) -> dict[str, str]:
        """Return the environment of the processes; the store must have been started."""
        ours = {
            "ASYNC_NODES_HOST": self.host,
            "ASYNC_NODES_PORT": str(self.port),
            "ASYNC_NODES_DATA_DIR": self.settings.data_dir,
            # Lines should arrive when they are written.
            "PYTHONUNBUFFERED": "1",
            "ASYNC_NODES_METRICS_BESIDE": ",".join(
                f"{name}=127.0.0.1:{port}" for name, port in self._metrics.items()
            ),
        }
        if self._store is not None:
            ours["ASYNC_NODES_REDIS_URL"] = self._store.url
        return {**os.environ, **ours, **self.environ}

    def _environ_of(self, metrics: str) -> dict[str, str]:
        environ = self.child_environ()
        if metrics:
            environ["ASYNC_NODES_METRICS_PORT"] = str(self._metrics[metrics])
        elif first := self.settings.metrics_port:
            # One web process has its page on its own port; several take those after the workers'.
            environ["ASYNC_NODES_METRICS_PORT"] = str(first + len(self._metrics))
        return environ

    def _program(
        self, name: str, arguments: tuple[str, ...], *, stage: int, metrics: str = ""
    ) -> ProgramService:
        # -P: the current directory may hold modules named like ours; main() puts it last.
        argv = [sys.executable, "-P", "-m", "async_nodes.cli", *arguments]
        drain = self.patience
        if drain is None:
            drain = self.settings.shutdown_seconds + _GRACE
        patience = drain if stage < MODEL else min(drain, _GRACE)
        return ProgramService(
            name,
            argv,
            stage=stage,
            environ=lambda: self._environ_of(metrics),
            patience=patience,
        )


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
