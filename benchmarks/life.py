"""The life of a task over HTTP: submit, run, final read. async_nodes and others, in turns.

All sides do the same job (``echo``) for the same client: one web process, one worker and one Redis
with an append-only file each. Rounds alternate A B C A B C; what is compared is the CPU time of
web, worker and Redis per task, which, unlike a rate, does not depend much on what else the machine
does. ``--sides all`` takes every library there is a baseline for, ``--kill`` tries what each loses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

from benchmarks import _figures, kill
from benchmarks._libraries import LIBRARIES
from benchmarks._load import live
from benchmarks._options import Options, parser, run, sides_of
from benchmarks._processes import processes
from benchmarks._progress import Progress, progress
from benchmarks._sides import BASELINE, OURS, PARTS, Side
from benchmarks._stack import NAMES, start_all

WARM_UP: Final = 200
SETTLE: Final = 0.25
"""Seconds after a round whose CPU time still counts: acknowledgements, the store's log."""

HEADS: Final = (
    *("connections", "side", "web", "worker", "redis", "CPU-µs/task", "client"),
    *("tasks/s", "p50 ms", "p99 ms", "reads/task", "times ours"),
)
MORE_HEADS: Final = ("side", "not done after a kill", "done twice", "what it does not do")
OWN: Final = "(durable record, history, fenced attempts, events, idempotency)"


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
    rounds: list[Round] = []
    with progress(len(options.connections) * options.rounds * len(sides)) as shown:
        for connections in options.connections:
            for _ in range(options.rounds):
                for side in sides:
                    done = measure(side, options.tasks, connections, limit=options.limit)
                    rounds.append(done)
                    _say(shown, done)
    return rounds


def _say(shown: Progress, done: Round) -> None:
    figures = f"{done.total:6.0f} CPU-µs/task {done.rate:6.0f} tasks/s"
    shown.step(f"{done.connections:3} connections: {done.side:20} {figures}")


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return, for each number of connections, the medians of each side and its ratios to ours."""
    names = list(dict.fromkeys(each.side for each in rounds))
    groups = []
    for connections in sorted({each.connections for each in rounds}):
        of = {name: _of(rounds, name, connections) for name in names}
        others = [name for name in names if name != OURS and OURS in of]
        groups.append(
            {
                "connections": connections,
                "sides": {name: _medians(of[name]) for name in names},
                "ratios": {name: _ratio(of[OURS], of[name]) for name in others},
            }
        )
    return groups


def _of(rounds: Sequence[Round], side: str, connections: int) -> list[Round]:
    return [each for each in rounds if (each.side, each.connections) == (side, connections)]


def _medians(rounds: Sequence[Round]) -> dict[str, float]:
    plain = [asdict(each) for each in rounds]
    names = [name for name, value in plain[0].items() if isinstance(value, float)]
    return {name: median(each[name] for each in plain) for name in names}


def _ratio(ours: Sequence[Round], others: Sequence[Round]) -> dict[str, float]:
    """Compare the rounds that followed each other: another side over ours."""
    ratios = [theirs.total / each.total for each, theirs in zip(ours, others, strict=True)]
    return {"median": median(ratios), "min": min(ratios), "max": max(ratios)}


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table."""
    rows = [
        [group["connections"], name]
        + [f"{side[part]:.0f}" for part in (*PARTS, "total", "client", "rate")]
        + [f"{side['p50']:.1f}", f"{side['p99']:.1f}", f"{side['reads']:.2f}"]
        + [_times(group["ratios"].get(name))]
        for group in groups
        for name, side in group["sides"].items()
    ]
    return _figures.table(HEADS, rows)


def _times(ratio: dict[str, float] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"


def differences(
    names: Sequence[str], missing: Mapping[str, str], kills: Sequence[kill.Kill]
) -> str:
    """Return the table of what the figures do not show: what each side leaves out and loses."""
    killed = {each.side: each for each in kills}
    rows = []
    for name in names:
        found = killed.get(name)
        lost = "not tried" if found is None else kill.lost_of(found)
        twice = "" if found is None else str(found.twice)
        lacks = OWN if name == OURS else LIBRARIES[name].lacks
        rows.append([name, lost, twice, missing.get(name, lacks)])
    return _figures.table(MORE_HEADS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = parser(__doc__, tasks=1500, rounds=5)
    sides_of(made, NAMES, default=(OURS, BASELINE))
    made.add_argument("--kill", action="store_true", help="see what each side loses, too")
    given = made.parse_args(arguments)
    names, with_kill = given.sides, given.kill
    del given.sides, given.kill
    options = Options(**vars(given))
    with processes() as owned:
        started = start_all(owned, names, extra=options.environment())
        rounds = alternate(started.sides, options)
    kills = kill.killed([side.name for side in started.sides])[0] if with_kill else []
    groups = summary(rounds)
    print(text(groups), differences(names, started.missing, kills), sep="\n\n")
    figures = {
        "summary": groups,
        "rounds": [asdict(each) for each in rounds],
        "missing": started.missing,
        "kills": [asdict(each) for each in kills],
    }
    _figures.write(options, "life", figures)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
