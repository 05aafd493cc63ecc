"""Start the sides of a comparison: a Redis, a web process and one I/O worker each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from benchmarks._load import live
from benchmarks._processes import BenchmarkError, Processes, answers, free_port, start_redis
from benchmarks._sides import BASELINE, BASELINE_DIALECT, OURS, OURS_DIALECT, Side

CONCURRENCY: Final = 300
FIRST_TASK_SECONDS: Final = 5.0


def start_ours(owned: Processes, *, extra: Mapping[str, str] | None = None) -> Side:
    """Start Redis, the web process and one I/O worker of this checkout."""
    redis, redis_port = start_redis(owned, "ours redis")
    port = free_port()
    environment = {
        "ASYNC_NODES_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
        "ASYNC_NODES_DATA_DIR": str(owned.folder / "ours"),
        **(extra or {}),
    }
    program = [sys.executable, "-m", "async_nodes.cli"]
    serve = [*program, "serve", "--port", str(port)]
    work = [*program, "worker", "--pool", "io", "--concurrency", str(CONCURRENCY)]
    web = owned.start("ours web", serve, environment=environment)
    worker = owned.start("ours worker", work, environment=environment)
    pids = {"web": web.pid, "worker": worker.pid, "redis": redis.pid}
    return _ready(owned, Side(OURS, OURS_DIALECT, port, pids))


def start_baseline(owned: Processes) -> Side:
    """Start Redis, the web process and one gevent worker of the baseline."""
    redis, redis_port = start_redis(owned, "baseline redis")
    port, package = free_port(), "benchmarks.baselines.celery_flask_gevent"
    environment = {
        "BASELINE_REDIS_URL": f"redis://127.0.0.1:{redis_port}",
        "BASELINE_CONCURRENCY": str(CONCURRENCY),
    }
    serve = [sys.executable, "-m", f"{package}.web", str(port)]
    work = [sys.executable, "-m", "celery", "-A", f"{package}.tasks", "worker", "-P", "gevent"]
    work += ["-c", str(CONCURRENCY), "-l", "WARNING"]
    work += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    web = owned.start("baseline web", serve, environment=environment)
    worker = owned.start("baseline worker", work, environment=environment)
    pids = {"web": web.pid, "worker": worker.pid, "redis": redis.pid}
    return _ready(owned, Side(BASELINE, BASELINE_DIALECT, port, pids))


def _ready(owned: Processes, side: Side) -> Side:
    """Return the side once a task lives its whole life there."""
    owned.wait_for(side.name, lambda: answers(side.port) and _lives_one(side))
    return side


def _lives_one(side: Side) -> bool:
    try:
        live(side, 1, 1, limit=FIRST_TASK_SECONDS)
    except BenchmarkError:  # the web process is up before its store or its worker
        return False
    return True
