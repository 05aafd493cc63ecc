"""A submit alone, without a worker: async_nodes and others, in turns.

What is counted is the CPU time of the web process and of Redis for each task that is accepted.
``--apart`` sends head and body as packets of their own, as many clients do. ``--sides all`` takes
every library there is a baseline for, among them those under uvicorn with uvloop.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._environments import NotInstalledError
from benchmarks._load import submit
from benchmarks._options import Options, parser, run, sides_of
from benchmarks._processes import BenchmarkError, Processes, answers, processes
from benchmarks._sides import BASELINE, OURS, Side
from benchmarks._stack import NAMES, prepare

WARM_UP: Final = 500
FIRST_SECONDS: Final = 5.0
HEADS: Final = (
    *("connections", "side", "web", "redis", "CPU-µs/submit", "client"),
    *("submits/s", "p50 ms", "p99 ms"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(Options):
    """Hold the choices of this benchmark, too."""

    sides: tuple[str, ...]
    apart: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: CPU in microseconds per submit, latencies in milliseconds."""

    side: str
    connections: int
    web: float
    redis: float
    total: float
    client: float
    rate: float
    p50: float
    p99: float


def start(owned: Processes, name: str) -> Side:
    """Start a side's Redis and web process, and no worker; return it once it accepts a task.

    Raises:
        NotInstalledError: its library cannot be installed here.

    """
    redis, plan = prepare(owned, name)
    web = owned.start(f"{name} web", plan.web, environment=plan.environment)
    side = Side(name, plan.dialect, plan.port, {"web": web.pid, "redis": redis.pid})
    owned.wait_for(name, lambda: answers(side.port) and _accepts(side))
    return side


def _accepts(side: Side) -> bool:
    try:
        submit(side, 1, 1, limit=FIRST_SECONDS)
    except BenchmarkError:  # the web process is up before its store
        return False
    return True


def start_all(owned: Processes, names: Sequence[str]) -> tuple[list[Side], dict[str, str]]:
    """Start the sides of these names; return them, and why those are missing that are."""
    sides: list[Side] = []
    missing: dict[str, str] = {}
    for name in names:
        try:
            sides.append(start(owned, name))
        except NotInstalledError as error:
            missing[name] = str(error)
            _figures.say(f"{name} is left out: {error}")
    return sides, missing


def measure(side: Side, times: int, connections: int, *, limit: float, apart: bool) -> Round:
    """Submit ``times`` tasks and count what it took."""
    before = side.cpu()
    load = submit(side, times, connections, limit=limit, apart=apart)
    after = side.cpu()
    web, redis = ((after[part] - before[part]) * 1e6 / times for part in ("web", "redis"))
    return Round(
        side=side.name,
        connections=connections,
        web=web,
        redis=redis,
        total=web + redis,
        client=load.client_cpu * 1e6 / times,
        rate=times / load.seconds,
        p50=_figures.percentile(load.latencies, 0.5) * 1e3,
        p99=_figures.percentile(load.latencies, 0.99) * 1e3,
    )


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return, for each number of connections, the medians of each side."""
    groups = []
    for connections in sorted({each.connections for each in rounds}):
        sides: dict[str, dict[str, float]] = {}
        for name in dict.fromkeys(each.side for each in rounds):
            of = [
                asdict(each)
                for each in rounds
                if (each.side, each.connections) == (name, connections)
            ]
            parts = [part for part, value in of[0].items() if isinstance(value, float)]
            sides[name] = {part: median(each[part] for each in of) for part in parts}
        groups.append({"connections": connections, "sides": sides})
    return groups


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table."""
    rows = [
        [group["connections"], name]
        + [f"{side[part]:.0f}" for part in ("web", "redis", "total", "client", "rate")]
        + [f"{side['p50']:.2f}", f"{side['p99']:.2f}"]
        for group in groups
        for name, side in group["sides"].items()
    ]
    return _figures.table(HEADS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = parser(__doc__, tasks=3000, rounds=3, connections="4,64")
    sides_of(made, NAMES, default=(OURS, BASELINE))
    made.add_argument("--apart", action="store_true", help="head and body in packets of their own")
    options = _Options.of(made, arguments)
    rounds: list[Round] = []
    with processes() as owned:
        sides, missing = start_all(owned, options.sides)
        for side in sides:
            submit(side, WARM_UP, max(options.connections), limit=options.limit)
        for connections in options.connections:
            for turn in range(options.rounds):
                for side in sides:
                    done = measure(
                        side, options.tasks, connections, limit=options.limit, apart=options.apart
                    )
                    rounds.append(done)
                    _figures.say(
                        f"{connections:3} connections, round {turn + 1}: {side.name:20}"
                        f" {done.total:6.0f} CPU-µs/submit {done.rate:6.0f} submits/s"
                    )
    groups = summary(rounds)
    print(text(groups))
    shown = {"summary": groups, "rounds": [asdict(each) for each in rounds], "missing": missing}
    _figures.write(options, "submit", {**shown, "apart": options.apart})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
