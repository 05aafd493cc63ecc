"""A read of a finished task over keep-alive connections: async_nodes and the baseline, in turns.

What is counted is the CPU time of the web process and of Redis for each read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._load import live, read
from benchmarks._options import Options, parser, run
from benchmarks._processes import processes
from benchmarks._sides import BASELINE, OURS, Side
from benchmarks._stack import start_baseline, start_ours

FINISHED: Final = 500
"""Tasks that the reads are spread over."""

HEADS: Final = ("connections", "side", "web", "redis", "CPU-µs/read", "reads/s", "p50 ms", "p99 ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: CPU in microseconds per read, latencies in milliseconds."""

    side: str
    connections: int
    web: float
    redis: float
    total: float
    rate: float
    p50: float
    p99: float


def measure(
    side: Side, requests: Sequence[bytes], times: int, connections: int, *, limit: float
) -> Round:
    """Read ``times`` times and count what it took."""
    before = side.cpu()
    load = read(side, requests, times, connections, limit=limit)
    after = side.cpu()
    web, redis = ((after[part] - before[part]) * 1e6 / times for part in ("web", "redis"))
    return Round(
        side=side.name,
        connections=connections,
        web=web,
        redis=redis,
        total=web + redis,
        rate=times / load.seconds,
        p50=_figures.percentile(load.latencies, 0.5) * 1e3,
        p99=_figures.percentile(load.latencies, 0.99) * 1e3,
    )


def requests_of(side: Side, limit: float) -> list[bytes]:
    """Run some tasks to their end and return a request for each."""
    ids = live(side, FINISHED, 16, limit=limit).ids
    return [side.dialect.poll(side.port, task_id) for task_id in ids]


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return, for each number of connections, the medians of both sides and their ratio."""
    groups = []
    for connections in sorted({each.connections for each in rounds}):
        chosen = [each for each in rounds if each.connections == connections]
        ours, baseline = (
            [each for each in chosen if each.side == name] for name in (OURS, BASELINE)
        )
        ratios = [b.total / o.total for o, b in zip(ours, baseline, strict=True)]
        groups.append(
            {
                "connections": connections,
                "sides": {OURS: _medians(ours), BASELINE: _medians(baseline)},
                "ratio": {"median": median(ratios), "min": min(ratios), "max": max(ratios)},
            }
        )
    return groups


def _medians(rounds: Sequence[Round]) -> dict[str, float]:
    plain = [asdict(each) for each in rounds]
    names = [name for name, value in plain[0].items() if isinstance(value, float)]
    return {name: median(each[name] for each in plain) for name in names}


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table, and the ratios below it."""
    rows = [
        [group["connections"], name]
        + [f"{side[part]:.0f}" for part in ("web", "redis", "total", "rate")]
        + [f"{side['p50']:.2f}", f"{side['p99']:.2f}"]
        for group in groups
        for name, side in group["sides"].items()
    ]
    return "\n".join([_figures.table(HEADS, rows), "", *map(_figures.ratio_line, groups)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = Options.of(parser(__doc__, tasks=4000, rounds=5, connections="4,64"), arguments)
    rounds = []
    with processes() as owned:
        sides = [start_ours(owned, extra=options.environment()), start_baseline(owned)]
        asked = {side.name: requests_of(side, options.limit) for side in sides}
        for connections in options.connections:
            for turn in range(options.rounds):
                for side in sides:
                    requests = asked[side.name]
                    done = measure(side, requests, options.tasks, connections, limit=options.limit)
                    rounds.append(done)
                    _figures.say(
                        f"{connections:3} connections, round {turn + 1}: {side.name:20}"
                        f" {done.total:6.0f} CPU-µs/read {done.rate:6.0f} reads/s"
                    )
    groups = summary(rounds)
    print(text(groups))
    shown = [asdict(each) for each in rounds]
    _figures.write(options, "poll", {"summary": groups, "rounds": shown})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
