"""A read of a finished task over keep-alive connections: async_nodes and the baseline, in turns.

What is counted is the CPU time of the web process and of Redis for each read. ``--rate N`` offers N
reads a second to async_nodes instead, and shows the share of a core that they take.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._load import live, read
from benchmarks._offer import offer
from benchmarks._options import Options, parser, run
from benchmarks._processes import processes
from benchmarks._sides import BASELINE, OURS, Side
from benchmarks._stack import start_baseline, start_ours

FINISHED: Final = 500
"""Tasks that the reads are spread over."""

HEADS: Final = ("connections", "side", "web", "redis", "CPU-µs/read", "reads/s", "p50 ms", "p99 ms")
RATE_HEADS: Final = (
    *("connections", "reads/s", "web cores", "redis cores", "both", "client cores"),
    *("p50 ms", "p99 ms"),
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(Options):
    """Hold the choices of this benchmark, too."""

    rate: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """Hold a round at a fixed rate: cores, milliseconds from when a read was due."""

    connections: int
    rate: float
    web: float
    redis: float
    cores: float
    client: float
    p50: float
    p99: float


def offered(side: Side, requests: Sequence[bytes], connections: int, options: _Options) -> Offered:
    """Offer reads at a rate, for as long as the round's number of them lasts."""
    assert options.rate is not None
    seconds = options.tasks / options.rate
    before = side.cpu()
    load = offer(
        side.port,
        requests,
        rate=options.rate,
        seconds=seconds,
        connections=connections,
        limit=options.limit,
    )
    after = side.cpu()
    web, redis = ((after[part] - before[part]) / load.seconds for part in ("web", "redis"))
    return Offered(
        connections=connections,
        rate=load.polls / load.seconds,
        web=web,
        redis=redis,
        cores=web + redis,
        client=load.client_cpu / load.seconds,
        p50=_figures.percentile(load.latencies, 0.5) * 1e3,
        p99=_figures.percentile(load.latencies, 0.99) * 1e3,
    )


def at_a_rate(options: _Options) -> int:
    """Run the rounds at a fixed rate, of async_nodes alone."""
    rounds: list[Offered] = []
    with processes() as owned:
        side = start_ours(owned, extra=options.environment())
        requests = requests_of(side, options.limit)
        for connections in options.connections:
            for _ in range(options.rounds):
                rounds.append(offered(side, requests, connections, options))
                _figures.say(f"{connections:3} connections: {rounds[-1].cores:.2f} cores")
    rows = [
        [each.connections, f"{each.rate:.0f}"]
        + [f"{value:.2f}" for value in (each.web, each.redis, each.cores, each.client)]
        + [f"{each.p50:.2f}", f"{each.p99:.2f}"]
        for each in rounds
    ]
    print(_figures.table(RATE_HEADS, rows))
    _figures.write(options, "poll", {"offered": [asdict(each) for each in rounds]})
    return 0


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
    made = parser(__doc__, tasks=4000, rounds=5, connections="4,64")
    made.add_argument("--rate", type=float, help="reads a second, offered whatever comes back")
    options = _Options.of(made, arguments)
    if options.rate is not None:
        return at_a_rate(options)
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
