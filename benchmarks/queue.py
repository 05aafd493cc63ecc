"""The queue alone: a process that submits, one I/O worker, Redis; no HTTP.

Every task has all that a task has in the product: its checks, an idempotency key, the durable
record with its history, index, lease and both transitions. What is measured is the CPU time of
the three processes per task, from the first submit until the last task has ended, and how long a
single task takes while nothing else happens.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import IO, Any, Final, cast

import redis

from async_nodes.core.priority import LISTS
from async_nodes.storage.keys import Keys
from benchmarks import _figures
from benchmarks._options import Options, parser, run
from benchmarks._processes import (
    ROOT,
    BenchmarkError,
    Processes,
    clean_environment,
    cpu_seconds,
    processes,
    start_redis,
)

PARTS: Final = ("producer", "worker", "redis")
CONCURRENCY: Final = 300
BULK: Final = 1_000
ALONE: Final = 500
WARM_UP: Final = 2_000
SETTLE: Final = 0.25
FIGURES: Final = ("total", "rate", "drain")
HEADS: Final = ("tasks come", *PARTS, "CPU-µs/task", "tasks/s", "drain/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: CPU in microseconds per task, tasks per second from the first to the end.

    Attributes:
        how: how the tasks came.
        producer, worker, redis, total: CPU-µs per task.
        rate: tasks per second, submit and work together.
        drain: tasks per second once all were submitted; 0 where work had begun before.

    """

    how: str
    producer: float
    worker: float
    redis: float
    total: float
    rate: float
    drain: float = 0.0


class Queue:
    """Own the three processes and count what they use."""

    def __init__(self, owned: Processes, options: Options) -> None:
        self._owned = owned
        self._limit = options.limit
        server, port = start_redis(owned, "queue redis")
        environment = {
            "ASYNC_NODES_REDIS_URL": f"redis://127.0.0.1:{port}/0",
            "ASYNC_NODES_DATA_DIR": str(owned.folder / "ours"),
            **options.environment(),
        }
        work = [sys.executable, "-m", "async_nodes.cli", "worker", "--pool", "io"]
        work += ["--concurrency", str(CONCURRENCY)]
        self._worker = owned.start("queue worker", work, environment=environment)
        self._producer = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._producer"],
            cwd=ROOT,
            env={**clean_environment(), **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()  # it is ready
        self._keys = Keys()
        self._redis: Any = redis.Redis(port=port)
        owned.wait_for("the worker", lambda: bool(self._redis.zcard(self._keys.workers)))
        self._pids = dict(
            zip(PARTS, (self._producer.pid, self._worker.pid, server.pid), strict=True)
        )

    def close(self) -> None:
        """End the producer; the others belong to their owner."""
        self._producer.terminate()
        self._producer.communicate(timeout=10)
        self._redis.close()

    def order(self, *words: object) -> dict[str, Any]:
        """Have the producer do something; return its answer."""
        print(*words, file=cast("IO[str]", self._producer.stdin), flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = cast("IO[str]", self._producer.stdout).readline()
        if not line:
            raise BenchmarkError("the producer ended; what it said is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def lived(self, how: str, tasks: int, *order: object) -> Round:
        """Measure tasks that come while the worker works."""
        before, began = self._cpu(), time.perf_counter()
        self.order(*order)
        self._wait_until_idle()
        seconds = time.perf_counter() - began
        return self._round(how, tasks, before, seconds)

    def drained(self, how: str, tasks: int, *order: object) -> Round:
        """Measure tasks that have all come before the worker begins."""
        before, began = self._cpu(), time.perf_counter()
        self._worker.send_signal(signal.SIGSTOP)
        try:
            self.order(*order)
        finally:
            self._worker.send_signal(signal.SIGCONT)
        submitted = time.perf_counter()
        self._wait_until_idle()
        end = time.perf_counter()
        return self._round(how, tasks, before, end - began, drain=tasks / (end - submitted))

    def _round(
        self, how: str, tasks: int, before: dict[str, float], seconds: float, *, drain: float = 0.0
    ) -> Round:
        time.sleep(SETTLE)
        after = self._cpu()
        spent = {part: (after[part] - before[part]) * 1e6 / tasks for part in PARTS}
        checked = self.order("check")
        if checked != {"made": tasks, "succeeded": tasks}:
            raise BenchmarkError(f"of {tasks} tasks {checked}")
        total, rate = sum(spent.values()), tasks / seconds
        done = Round(how=how, **spent, total=total, rate=rate, drain=drain)
        _figures.say(f"{how:24} {total:6.1f} CPU-µs/task {rate:7.0f} tasks/s")
        return done

    def _cpu(self) -> dict[str, float]:
        return {part: cpu_seconds(pid) for part, pid in self._pids.items()}

    def _wait_until_idle(self) -> None:
        """Wait until nothing waits and nothing runs; looks 50 times a second."""
        end = time.monotonic() + self._limit
        while self._busy():
            self._owned.check()
            if time.monotonic() > end:
                raise BenchmarkError(f"tasks are left after {self._limit:.0f} s")
            time.sleep(0.02)

    def _busy(self) -> bool:
        workers = self._redis.zrange(self._keys.workers, 0, -1)
        with self._redis.pipeline() as asked:
            for name in LISTS:  # a message that is popped and not claimed counts here
                asked.zcard(self._keys.unclaimed(name))
            for worker in workers:
                asked.scard(self._keys.running(worker.decode()))
            return any(asked.execute())


def measured(queue: Queue, options: Options) -> list[Round]:
    """Return the rounds; the ways in which tasks come take turns."""
    tasks, rounds = options.tasks, []
    queue.lived("warm-up", WARM_UP, "single", WARM_UP, 64)
    for _ in range(options.rounds):
        for submitters in options.connections:
            how = f"from {submitters} greenlets"
            rounds.append(queue.lived(how, tasks, "single", tasks, submitters))
        rounds.append(queue.lived(f"{BULK:,} at a time", tasks, "bulk", tasks, BULK))
        rounds.append(queue.lived(f"{BULK:,} at once", BULK, "bulk", BULK, BULK))
        rounds.append(queue.drained("before the worker", tasks, "bulk", tasks, BULK))
    return rounds


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return the medians of each way in which tasks come."""
    return [
        {"how": how, **_medians([asdict(each) for each in rounds if each.how == how])}
        for how in dict.fromkeys(each.how for each in rounds)
    ]


def _medians(plain: Sequence[dict[str, Any]]) -> dict[str, float]:
    numbers = [name for name, value in plain[0].items() if isinstance(value, float)]
    return {name: median(each[name] for each in plain) for name in numbers}


def text(ways: Sequence[dict[str, Any]], latencies: Sequence[float]) -> str:
    """Return the summary as a table, and the latency of a task alone below it."""
    rows = [[way["how"], *(f"{way[part]:.0f}" for part in (*PARTS, *FIGURES))] for way in ways]
    return "\n".join([_figures.table(HEADS, rows), "", _alone(latencies)])


def _alone(latencies: Sequence[float]) -> str:
    p50, p99 = (_figures.percentile(latencies, share) * 1e3 for share in (0.5, 0.99))
    alone = "One task at a time, from submit until its end is seen"
    return f"{alone}: p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = parser(__doc__, tasks=10_000, rounds=5, connections="4,64")
    options = Options.of(made, arguments)
    with processes() as owned:
        queue = Queue(owned, options)
        try:
            rounds = measured(queue, options)
            latencies: list[float] = queue.order("alone", ALONE)["latencies"]
        finally:
            queue.close()
    ways = summary(rounds)
    print(text(ways, latencies))
    shown = {"summary": ways, "rounds": [asdict(each) for each in rounds], "alone": latencies}
    _figures.write_report(options.json, "queue", {"options": options.shown(), **shown})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
