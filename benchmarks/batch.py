"""A thousand tasks in one request, again and again: how many are accepted in a second.

They are for a pool that has no worker here, so that accepting alone is measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from benchmarks import _figures
from benchmarks._load import RECEIVE, parse
from benchmarks._options import Options, parser, run
from benchmarks._processes import BenchmarkError, processes
from benchmarks._sides import Side
from benchmarks._stack import start_ours
from benchmarks.first_token import connect

SIZE: Final = 1_000
"""Tasks in a request: the most that a batch may have."""

WARM_UP: Final = 3
HEADS: Final = ("round", "tasks/s", "p50 ms", "p99 ms", "web CPU-µs/task", "redis CPU-µs/task")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one round: times of a request in milliseconds, CPU in microseconds per task."""

    rate: float
    p50: float
    p99: float
    web: float
    redis: float


def request_of(port: int) -> bytes:
    """Return the request that submits a batch."""
    tasks = [
        {"node": "text.chunk", "inputs": {"text": f"letter {number}"}, "tags": ["bench"]}
        for number in range(SIZE)
    ]
    body = json.dumps({"tasks": tasks}).encode()
    head = f"POST /v1/tasks/batch HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def submit(port: int, request: bytes, times: int) -> list[float]:
    """Send the request so many times over one connection; return the seconds each took."""
    taken = []
    with closing(connect(port)) as link:
        for _ in range(times):
            started = time.perf_counter()
            link.sendall(request)
            data = b""
            while (reply := parse(data)) is None:
                piece = link.recv(RECEIVE)
                if not piece:
                    raise BenchmarkError(f"a batch was not answered: {data[:300]!r}")
                data += piece
            taken.append(time.perf_counter() - started)
            if f'"accepted":{SIZE},"refused":0'.encode() not in reply[1]:
                raise BenchmarkError(f"a batch was answered {reply[0]}: {reply[1][:300]!r}")
    return taken


def measure(side: Side, request: bytes, times: int) -> Round:
    """Submit ``times`` batches and count what it took."""
    before = side.cpu()
    taken = submit(side.port, request, times)
    after = side.cpu()
    count = times * SIZE
    web, redis = ((after[part] - before[part]) * 1e6 / count for part in ("web", "redis"))
    return Round(
        rate=count / sum(taken),
        p50=_figures.percentile(taken, 0.5) * 1e3,
        p99=_figures.percentile(taken, 0.99) * 1e3,
        web=web,
        redis=redis,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = Options.of(parser(__doc__, tasks=20_000, rounds=5, connections=None), arguments)
    times = max(options.tasks // SIZE, 1)
    rounds = []
    with processes() as owned:
        side = start_ours(owned, extra=options.environment())
        request = request_of(side.port)
        submit(side.port, request, WARM_UP)
        for turn in range(options.rounds):
            rounds.append(measure(side, request, times))
            _figures.say(f"round {turn + 1}: {rounds[-1].rate:6.0f} tasks/s")
    shown = [asdict(each) for each in rounds]
    whole = {name: median(each[name] for each in shown) for name in shown[0]}
    rows = [
        [name, *(f"{value:.0f}" if value > 100 else f"{value:.1f}" for value in each.values())]  # noqa: PLR2004
        for name, each in [*((str(n + 1), each) for n, each in enumerate(shown)), ("median", whole)]
    ]
    print(_figures.table(HEADS, rows))
    _figures.write(options, "batch", {"summary": whole, "rounds": shown})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
