"""An answer from documents: made inside the request, and through async_nodes, in turns.

The same node, ``rag.answer``, and the same simulated model, which takes 790 ms for each answer and
has a slot for everybody. Inside the request, a client has nothing until it has all; through
async_nodes it holds a task after the 202 and waits for the answer with one long-poll.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._load import ACCEPTED, OK, Load, Talk, run_talks
from benchmarks._model import GAP_MS, TOKENS
from benchmarks._options import Options, parser, run
from benchmarks._processes import Processes, answers, cpu_seconds, free_port, processes
from benchmarks._sides import OURS_DIALECT, TASK_ID, Side
from benchmarks._stack import start_ours

ANSWER_MS: Final = 790.0
TTFT_MS: Final = ANSWER_MS - GAP_MS * (TOKENS - 1)
SLOTS: Final = 300
INSIDE: Final = "inside the request"
WARM_UP: Final = 20
HEADS: Final = (
    "clients",
    "side",
    "held p50",
    "held p95",
    "all p50",
    "all p95",
    "answers/s",
    "CPU ms",
    "errors",
)

_OVER: Final = re.compile(rb'"state":\s*"(Succeeded|Failed|Cancelled)"')


@dataclass(slots=True)
class Answers:
    """Hold what the clients of one round saw: seconds until each held something, and had all."""

    held: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    errors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: milliseconds, answers in a second, CPU milliseconds for each answer."""

    side: str
    clients: int
    held_p50: float
    held_p95: float
    whole_p50: float
    whole_p95: float
    rate: float
    cpu: float
    errors: int


def inputs_of(number: int, model: int) -> bytes:
    """Return the inputs of one question: some pages of text with the answer among them."""
    documents = [
        f"Paragraph {place} speaks of queues and of those who wait in them. " * 8
        + f"The keeper of gate {place} is called keeper {place * 7}. "
        for place in range(12)
    ]
    inputs = {
        "question": f"Who is the keeper of gate {number % 12}?",
        "documents": documents,
        "model": "sim",
        "base_url": f"http://127.0.0.1:{model}/v1",
    }
    return json.dumps(inputs).encode()


def inside(port: int, model: int, numbers: Iterator[int], seen: Answers) -> Talk:
    """Ask, and get the answer in the reply."""
    for number in numbers:
        body = inputs_of(number, model)
        head = f"POST /answer HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        status, reply = yield head.encode() + body
        taken = time.perf_counter() - started
        if status != OK or b'"sources"' not in reply:
            seen.errors += 1
            continue
        seen.held.append(taken)
        seen.whole.append(taken)


def through(side: Side, model: int, numbers: Iterator[int], seen: Answers) -> Talk:
    """Submit, hold the task, and wait for its end with a long-poll."""
    for number in numbers:
        started = time.perf_counter()
        status, reply = yield side.dialect.submit(
            side.port, inputs_of(number, model), node="rag.answer"
        )
        held, found = time.perf_counter() - started, TASK_ID.search(reply)
        if status != ACCEPTED or found is None:
            seen.errors += 1
            continue
        over = None
        while status in (OK, ACCEPTED) and over is None:
            status, reply = yield side.dialect.poll(side.port, found[1] + b"?wait=30")
            over = _OVER.search(reply)
        if over is None or over[1] != b"Succeeded":
            seen.errors += 1
            continue
        seen.held.append(held)
        seen.whole.append(time.perf_counter() - started)


def measure(side: Side, model: int, clients: int, tasks: int, *, limit: float) -> Round:
    """Ask ``tasks`` questions, ``clients`` at a time."""
    load, seen, numbers = Load(), Answers(), iter(range(tasks))
    if side.name == INSIDE:
        talks = [inside(side.port, model, numbers, seen) for _ in range(clients)]
    else:
        talks = [through(side, model, numbers, seen) for _ in range(clients)]
    before = _cpu(side)
    run_talks(side.port, talks, load, limit)
    spent = _cpu(side) - before
    held, whole = (
        [_figures.percentile(seconds, share) * 1e3 for share in (0.5, 0.95)]
        for seconds in (seen.held or [0.0], seen.whole or [0.0])
    )
    return Round(
        side=side.name,
        clients=clients,
        held_p50=held[0],
        held_p95=held[1],
        whole_p50=whole[0],
        whole_p95=whole[1],
        rate=len(seen.whole) / load.seconds,
        cpu=spent * 1e3 / max(1, len(seen.whole)),
        errors=seen.errors,
    )


def _cpu(side: Side) -> float:
    return sum(map(cpu_seconds, side.pids.values()))


def start_inside(owned: Processes, model: int) -> Side:
    """Start the Flask app that answers inside the request."""
    port, module = free_port(), "benchmarks.baselines.inside_the_request"
    web = owned.start(INSIDE, [sys.executable, "-m", module, str(port), str(model)])
    owned.wait_for(INSIDE, lambda: answers(port))
    return Side(INSIDE, OURS_DIALECT, port, {"web": web.pid})


def start_model(owned: Processes) -> int:
    """Start the simulated model and return its port."""
    port = free_port()
    words = [sys.executable, "-m", "benchmarks._model", str(port), str(TTFT_MS), str(SLOTS)]
    owned.start("model", words)
    owned.wait_for("the simulated model", lambda: answers(port))
    return port


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return the medians of each side for each number of clients."""
    found = []
    for clients, side in sorted({(each.clients, each.side) for each in rounds}):
        chosen = [asdict(it) for it in rounds if (it.clients, it.side) == (clients, side)]
        numbers = [name for name, value in chosen[0].items() if isinstance(value, float)]
        medians = {name: median(each[name] for each in chosen) for name in numbers}
        errors = sum(each["errors"] for each in chosen)
        found.append({"clients": clients, "side": side, **medians, "errors": errors})
    return found


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table."""
    shown = ("held_p50", "held_p95", "whole_p50", "whole_p95", "rate", "cpu")
    rows = [
        [
            group["clients"],
            group["side"],
            *(f"{group[name]:.0f}" for name in shown),
            group["errors"],
        ]
        for group in groups
    ]
    return _figures.table(HEADS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = parser(__doc__, tasks=300, rounds=3, connections="19,150")
    options = Options.of(made, arguments)
    rounds = []
    with processes() as owned:
        model = start_model(owned)
        allowed = {"ASYNC_NODES_EGRESS_ALLOW": f"127.0.0.1:{model}"}
        ours = start_ours(owned, extra={**options.environment(), **allowed})
        sides = [ours, start_inside(owned, model)]
        for side in sides:
            measure(side, model, WARM_UP, WARM_UP, limit=options.limit)
        for clients in options.connections:
            for turn in range(options.rounds):
                for side in sides:
                    done = measure(side, model, clients, options.tasks, limit=options.limit)
                    rounds.append(done)
                    _figures.say(
                        f"{clients:3} clients, round {turn + 1}: {side.name:18}"
                        f" {done.rate:5.0f} answers/s, held after {done.held_p95:5.0f} ms (p95)"
                    )
    groups = summary(rounds)
    print(text(groups))
    shown = [asdict(each) for each in rounds]
    report = {"summary": groups, "rounds": shown, "answer_ms": ANSWER_MS}
    _figures.write(options, "rag", report)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
