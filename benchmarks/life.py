"""The life of a task over HTTP: submit, run, final read. async_nodes and the baseline, in turns.

Both sides do the same job (``echo``) for the same client: one web process, one I/O worker with
300 slots, one Redis with an append-only file each. Rounds alternate A B A B; what is compared is
the CPU time of web, worker and Redis per task, which, unlike a rate, does not depend much on what
else the machine does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._load import live
from benchmarks._options import Options, parser, run
from benchmarks._processes import processes
from benchmarks._sides import BASELINE, OURS, PARTS, Side
from benchmarks._stack import start_baseline, start_ours

WARM_UP: Final = 200
SETTLE: Final = 0.25
"""Seconds after a round whose CPU time still counts: acknowledgements, the store's log."""

HEADS: Final = (
    *("connections", "side", "web", "worker", "redis", "CPU-µs/task", "client"),
    *("tasks/s", "p50 ms", "p99 ms", "reads/task"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: CPU in microseconds per task, latencies in milliseconds."""

    side: str
    connections: int
    web: float
    worker: float
    redis: float
    total: float
    client: float
    rate: float
    p50: float
    p99: float
    reads: float


def measure(side: Side, tasks: int, connections: int, *, limit: float) -> Round:
    """Live one round of tasks and count what each part of the side took."""
    before = side.cpu()
    load = live(side, tasks, connections, limit=limit)
    time.sleep(SETTLE)
    after = side.cpu()
    spent = {part: (after[part] - before[part]) * 1e6 / tasks for part in PARTS}
    return Round(
        side=side.name,
        connections=connections,
        **spent,
        total=sum(spent.values()),
        client=load.client_cpu * 1e6 / tasks,
        rate=tasks / load.seconds,
        p50=_figures.percentile(load.latencies, 0.5) * 1e3,
        p99=_figures.percentile(load.latencies, 0.99) * 1e3,
        reads=load.polls / tasks,
    )


def alternate(sides: Sequence[Side], options: Options) -> list[Round]:
    """Return the rounds of all sides, taken in turns, at each number of connections."""
    for side in sides:
        live(side, WARM_UP, max(options.connections), limit=options.limit)
    rounds = []
    for connections in options.connections:
        for turn in range(options.rounds):
            for side in sides:
                done = measure(side, options.tasks, connections, limit=options.limit)
                rounds.append(done)
                _figures.say(
                    f"{connections:3} connections, round {turn + 1}: {side.name:20}"
                    f" {done.total:6.0f} CPU-µs/task {done.rate:6.0f} tasks/s"
                )
    return rounds


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return, for each number of connections, the medians of both sides and their ratios."""
    return [
        {
            "connections": connections,
            "sides": {name: _medians(_of(rounds, name, connections)) for name in (OURS, BASELINE)},
            "ratio": _ratio(_of(rounds, OURS, connections), _of(rounds, BASELINE, connections)),
        }
        for connections in sorted({each.connections for each in rounds})
    ]


def _of(rounds: Sequence[Round], side: str, connections: int) -> list[Round]:
    return [each for each in rounds if (each.side, each.connections) == (side, connections)]


def _medians(rounds: Sequence[Round]) -> dict[str, float]:
    plain = [asdict(each) for each in rounds]
    names = [name for name, value in plain[0].items() if isinstance(value, float)]
    return {name: median(each[name] for each in plain) for name in names}


def _ratio(ours: Sequence[Round], baseline: Sequence[Round]) -> dict[str, float]:
    """Compare the rounds that followed each other: baseline over ours."""
    ratios = [theirs.total / each.total for each, theirs in zip(ours, baseline, strict=True)]
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios)}


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table, and the ratios below it."""
    rows = [
        [group["connections"], name]
        + [f"{side[part]:.0f}" for part in (*PARTS, "total", "client", "rate")]
        + [f"{side['p50']:.1f}", f"{side['p99']:.1f}", f"{side['reads']:.2f}"]
        for group in groups
        for name, side in group["sides"].items()
    ]
    return "\n".join([_figures.table(HEADS, rows), "", *map(_figures.ratio_line, groups)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = Options.of(parser(__doc__, tasks=1500, rounds=5), arguments)
    with processes() as owned:
        sides = [start_ours(owned, extra=options.environment()), start_baseline(owned)]
        rounds = alternate(sides, options)
    groups = summary(rounds)
    print(text(groups))
    shown = [asdict(each) for each in rounds]
    _figures.write(options, "life", {"summary": groups, "rounds": shown})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
