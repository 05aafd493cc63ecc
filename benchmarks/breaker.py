"""A model that takes 3 s, asked by a client that waits 800 ms: with a breaker and without.

Two nodes do the same work in one worker, one after the other: they ask the simulated model, under
the usual retry policy. One declares a breaker and a value to answer with meanwhile; for that one
the model is quick again after a while. Requests come at a steady rate, however long they take.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any, Final
from urllib.request import urlopen

from benchmarks import _figures
from benchmarks._options import bare_parser, positive, run
from benchmarks._processes import ROOT, BenchmarkError, Processes, answers, free_port, processes
from benchmarks._stack import start_ours

SLOW_MS, QUICK_MS = 3_000, 50
GOAL_SECONDS: Final = 0.760
WINDOWS: Final = 3
NODES: Final = ("gate.protected", "gate.unprotected")
HEADS: Final = ("node", "answers", "p50 ms", "p99 ms", "most ms", "fallback", "failed")


@dataclass(slots=True)
class Options:
    """Hold what was asked for.

    Attributes:
        window, open_seconds: of the breaker.
        rate: requests per second to each of the two nodes.
        slow, quick: seconds with the slow and then with the quick model, with the breaker.
        without: seconds with the slow model, without it.

    """

    window: float
    open_seconds: float
    rate: int
    slow: float
    quick: float
    without: float
    json: Path | None = None
    plot: Path | None = None

    def shown(self) -> dict[str, Any]:
        """Return what the figures depend on."""
        names = ("window", "open_seconds", "rate", "slow", "quick", "without")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class Watched:
    """What was seen of the breaker: when it was in which state, in seconds of the run."""

    states: list[tuple[float, str]] = field(default_factory=list)

    def see(self, at: float, state: str) -> None:
        """Note a state if it is a new one."""
        if not self.states or self.states[-1][1] != state:
            self.states.append((at, state))

    def first(self, state: str, *, after: float = 0.0) -> float | None:
        """Return when a state was first seen."""
        return next((at for at, seen in self.states if seen == state and at >= after), None)


def options_of(arguments: Sequence[str] | None) -> Options:
    """Read the command line."""
    made = bare_parser(__doc__)
    made.add_argument("--window", type=float, default=2.0, help="seconds of a breaker's window")
    made.add_argument("--open-seconds", type=float, default=10.0, help="how long it is open")
    made.add_argument("--rate", type=positive, default=30, help="requests per second")
    made.add_argument("--slow", type=float, default=24.0, help="seconds with the slow model")
    made.add_argument("--quick", type=float, default=8.0, help="seconds with the quick one")
    made.add_argument("--without", type=float, default=8.0, help="seconds without the breaker")
    return Options(**vars(made.parse_args(arguments)))


def start_model(owned: Processes) -> int:
    """Start the simulated model and return its port."""
    port = free_port()
    argv = [sys.executable, "-m", "benchmarks._model", str(port), str(SLOW_MS), "10000"]
    owned.start("model", argv)
    owned.wait_for("the simulated model", lambda: answers(port))
    return port


def state_of(port: int) -> str:
    """Return the breaker's state, as anybody may ask for it."""
    with urlopen(f"http://127.0.0.1:{port}/v1/breakers/node:{NODES[0]}", timeout=5) as answer:
        return str(json.load(answer)["state"])


def load(options: Options, port: int, model: int) -> tuple[list[dict[str, Any]], Watched]:
    """Send the load; return the answers and what the breaker did meanwhile."""
    base_url = f"http://127.0.0.1:{model}/v1"
    phases = (
        (NODES[0], options.slow, SLOW_MS),
        (NODES[0], options.quick, QUICK_MS),
        (NODES[1], options.without, SLOW_MS),
    )
    orders = {
        "rate": options.rate,
        "phases": [
            [node, seconds, {"base_url": base_url, "model": f"sim:ttft_ms={ms}"}]
            for node, seconds, ms in phases
        ],
    }
    argv = [sys.executable, "-m", "benchmarks._steady", str(port)]
    watched, found = Watched(), []
    with Popen(argv, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as sender:
        assert sender.stdin is not None
        assert sender.stdout is not None
        sender.stdin.write(json.dumps(orders) + "\n")
        sender.stdin.close()
        asked = -1.0
        for line in sender.stdout:
            one = json.loads(line)
            found.append(one)
            at = one["at"] + one["seconds"]
            if at - asked >= 0.1:  # noqa: PLR2004 - often enough for tenths of a second
                asked = at
                watched.see(at, state_of(port))
    return found, watched


def summary(found: list[dict[str, Any]], node: str, *, after: float) -> dict[str, Any]:
    """Return what a node's clients met after the first windows."""
    mine = [one for one in found if one["node"] == node and one["at"] >= after]
    if not mine:
        raise BenchmarkError(f"nobody answered for {node}")
    seconds = [one["seconds"] for one in mine]
    return {
        "answers": len(mine),
        "p50_ms": _figures.percentile(seconds, 0.5) * 1e3,
        "p99_ms": _figures.percentile(seconds, 0.99) * 1e3,
        "most_ms": max(seconds) * 1e3,
        "fallback": sum(one["fallback"] for one in mine),
        "failed": sum(one["state"] != "Succeeded" for one in mine),
    }


def judge(options: Options, sides: dict[str, Any], watched: Watched) -> dict[str, bool]:
    """Return which of the promises held."""
    opened = watched.first("open")
    closed = watched.first("closed", after=options.slow)
    # Until an opening ends, trials follow; those take next to nothing with a quick model.
    back_by = options.slow + 1.1 * options.open_seconds + 5.0
    return {
        "p99": sides[NODES[0]]["p99_ms"] <= GOAL_SECONDS * 1e3,
        "opened": opened is not None and opened <= WINDOWS * options.window,
        "recovered": closed is not None and closed <= back_by,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the gate; the status is 0 when every promise held."""
    options = options_of(arguments)
    with processes() as owned:
        model = start_model(owned)
        extra = {
            "ASYNC_NODES_EGRESS_ALLOW": f"127.0.0.1:{model}",
            "ASYNC_NODES_IMPORTS": "benchmarks._breaker_nodes",
            "ASYNC_NODES_ENDPOINT_BREAKERS": "false",
            "GATE_WINDOW": f"{options.window}",
            "GATE_OPEN": f"{options.open_seconds}",
        }
        side = start_ours(owned, extra=extra)
        found, watched = load(options, side.port, model)
    sides = {node: summary(found, node, after=WINDOWS * options.window) for node in NODES}
    rows = [
        [
            node,
            one["answers"],
            *(f"{one[name]:.0f}" for name in ("p50_ms", "p99_ms", "most_ms")),
            one["fallback"],
            one["failed"],
        ]
        for node, one in sides.items()
    ]
    print(_figures.table(HEADS, rows))
    states = ", ".join(f"{state} at {at:.1f} s" for at, state in watched.states)
    print(f"\nthe breaker: {states}; the model is quick again at {options.slow:.0f} s")
    held = judge(options, sides, watched)
    for name, text in (
        ("p99", f"P99 with the breaker <= {GOAL_SECONDS * 1e3:.0f} ms after {WINDOWS} windows"),
        ("opened", f"open within {WINDOWS} windows of {options.window:g} s"),
        ("recovered", "closed again by itself"),
    ):
        print(f"{'held  ' if held[name] else 'BROKEN'}  {text}")
    report = {"options": options.shown(), "sides": sides, "states": watched.states, "held": held}
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(run(main))
