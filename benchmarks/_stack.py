"""Start the sides of a comparison: a Redis, a web process and one worker each."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks import _figures
from benchmarks._environments import NotInstalledError
from benchmarks._libraries import LIBRARIES
from benchmarks._load import live
from benchmarks._processes import BenchmarkError, Processes, answers, free_port, start_redis
from benchmarks._sides import BASELINE, BASELINE_DIALECT, OURS, OURS_DIALECT, Dialect, Side

CONCURRENCY: Final = 300
FIRST_TASK_SECONDS: Final = 5.0
NAMES: Final = (OURS, *LIBRARIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Hold what a side's two processes are started with."""

    name: str
    dialect: Dialect
    port: int
    web: Sequence[str]
    worker: Sequence[str]
    environment: Mapping[str, str]

    def start_worker(self, owned: Processes, called: str = "worker") -> subprocess.Popen[bytes]:
        """Start the worker, or another one."""
        name = f"{self.name} {called}"
        return owned.start(name, self.worker, environment=self.environment)


@dataclass(slots=True)
class Started:
    """Hold the sides that are up, and why the others are not."""

    sides: list[Side] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)


def start_all(
    owned: Processes, names: Sequence[str], *, extra: Mapping[str, str] | None = None
) -> Started:
    """Start the sides of these names; one that cannot be installed is noted, not dropped.

    Args:
        owned: what owns their processes.
        names: some of `NAMES`.
        extra: settings of our side.

    """
    started = Started()
    for name in names:
        try:
            started.sides.append(start(owned, name, extra=extra if name == OURS else None))
        except NotInstalledError as error:
            started.missing[name] = str(error)
            _figures.say(f"{name} is left out: {error}")
    return started


def start_ours(owned: Processes, *, extra: Mapping[str, str] | None = None) -> Side:
    """Start Redis, the web process and one I/O worker of this checkout."""
    return start(owned, OURS, extra=extra)


def start_baseline(owned: Processes) -> Side:
    """Start Redis, the web process and one gevent worker of the baseline."""
    return start(owned, BASELINE)


def start(owned: Processes, name: str, *, extra: Mapping[str, str] | None = None) -> Side:
    """Start a side and return it once a task lives its whole life there.

    Raises:
        NotInstalledError: its library cannot be installed here.
        BenchmarkError: it does not start.

    """
    redis, plan = prepare(owned, name, extra=extra)
    web = owned.start(f"{name} web", plan.web, environment=plan.environment)
    pids = {"web": web.pid, "worker": plan.start_worker(owned).pid, "redis": redis.pid}
    side = Side(name, plan.dialect, plan.port, pids)
    owned.wait_for(name, lambda: answers(side.port) and _lives_one(side))
    return side


def prepare(
    owned: Processes,
    name: str,
    *,
    slots: int | None = None,
    extra: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Plan]:
    """Start a side's Redis; return it and what its other processes are to be started with.

    Args:
        owned: what owns the processes.
        name: one of `NAMES`.
        slots: tasks at once in the worker; None for what the side is tuned to.
        extra: environment variables of the side.

    """
    if name == OURS:
        redis, redis_port = start_redis(owned, f"{name} redis")
        return redis, _ours(owned, redis_port, slots or CONCURRENCY, extra or {})
    library = LIBRARIES[name]
    python = library.installed()
    redis, redis_port = start_redis(owned, f"{name} redis")
    port = free_port()
    environment = {
        "BASELINE_REDIS_URL": f"redis://127.0.0.1:{redis_port}",
        **({"BASELINE_CONCURRENCY": str(slots)} if slots else {}),
        **library.environment,
        **(extra or {}),
    }
    return redis, Plan(
        name=name,
        dialect=BASELINE_DIALECT,
        port=port,
        web=library.web(python, port),
        worker=library.worker(python, slots),
        environment=environment,
    )


def _ours(owned: Processes, redis_port: int, slots: int, extra: Mapping[str, str]) -> Plan:
    port = free_port()
    program = [sys.executable, "-m", "async_nodes.cli"]
    return Plan(
        name=OURS,
        dialect=OURS_DIALECT,
        port=port,
        web=[*program, "serve", "--port", str(port)],
        worker=[*program, "worker", "--pool", "io", "--concurrency", str(slots)],
        environment={
            "ASYNC_NODES_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
            "ASYNC_NODES_DATA_DIR": str(owned.folder / "ours"),
            **extra,
        },
    )


def _lives_one(side: Side) -> bool:
    try:
        live(side, 1, 1, limit=FIRST_TASK_SECONDS)
    except BenchmarkError:  # the web process is up before its store or its worker
        return False
    return True
