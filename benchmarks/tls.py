"""A storm of TLS handshakes: how many a second, what each costs, and what a poll notices of it.

One connection polls every 5 ms: alone, then while clients shake hands without end, then while they
come back with tickets. Each side is one process. What is counted is the CPU time of that process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

from benchmarks import _figures
from benchmarks._options import Options, bare_parser, positive, run
from benchmarks._processes import (
    ROOT,
    Processes,
    answers,
    clean_environment,
    cpu_seconds,
    free_port,
    processes,
    start_redis,
)
from benchmarks._tls_clients import connect, context, exchange, poll

OURS: Final = "async_nodes"
PHASES: Final = ("quiet", "full", "resumed")
HEADS: Final = ("side", "phase", "handshakes/s", "CPU-µs each", "poll p50 ms", "p99 ms", "max ms")
POLL: Final = "GET /v1/tasks/{} HTTP/1.1\r\nHost: localhost\r\n\r\n"
KEYS: Final = {
    "ec": ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
    "rsa": ("-newkey", "rsa:2048"),
}


@dataclass(frozen=True, slots=True)
class Side:
    """Hold one server: its name, port and process, and what is polled."""

    name: str
    port: int
    pid: int
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Hold one phase of one side; latencies in milliseconds, CPU in microseconds."""

    side: str
    phase: str
    rate: float
    cpu: float
    resumed: float
    p50: float
    p99: float
    slowest: float


def measure(side: Side, phase: str, seconds: float, clients: int, quiet: float) -> Round:
    """Poll for so long, in the storm of a phase.

    Args:
        side: the server.
        phase: one of `PHASES`.
        seconds: how long.
        clients: that shake hands at once, in two processes.
        quiet: CPU seconds that the server takes in a second for the polls alone.

    """
    argv = [sys.executable, "-m", "benchmarks._tls_clients", "storm", str(side.port)]
    argv += [str(seconds + 0.5), str(clients // 2), phase]
    storms = [
        subprocess.Popen(argv, cwd=ROOT, env=clean_environment(), stdout=subprocess.PIPE, text=True)
        for _ in range(0 if phase == "quiet" else 2)
    ]
    began, before = time.monotonic(), cpu_seconds(side.pid)
    if storms:
        time.sleep(0.5)
    times = poll(side.port, side.request, seconds)
    told = [storm.communicate(timeout=60)[0].split() for storm in storms]
    took, used = time.monotonic() - began, cpu_seconds(side.pid) - before
    done, resumed = (sum(int(words[place]) for words in told) for place in (0, 1))
    return Round(
        side=side.name,
        phase=phase,
        rate=done / (seconds + 0.5),
        cpu=(used - quiet * took) * 1e6 / done if done else used / took * 1e6,
        resumed=resumed / done if done else 0.0,
        p50=_figures.percentile(times, 0.5) * 1e3,
        p99=_figures.percentile(times, 0.99) * 1e3,
        slowest=max(times) * 1e3,
    )


def start_sides(owned: Processes, key: str) -> list[Side]:
    """Start every server that is there, with one certificate."""
    certificate, private = owned.folder / "cert.pem", owned.folder / "key.pem"
    argv = ["openssl", "req", "-x509", *KEYS[key], "-nodes", "-subj", "/CN=localhost"]
    argv += ["-days", "90", "-keyout", str(private), "-out", str(certificate)]
    subprocess.run(argv, check=True, capture_output=True)
    files = [str(certificate), str(private)]
    sides = [_start_ours(owned, files)]
    others = ["flask_gevent", "asyncio"] + ["uvloop"] * (find_spec("uvloop") is not None)
    for name in others:
        port = free_port()
        argv = [sys.executable, "-m", "benchmarks.baselines.tls_servers", name, str(port), *files]
        pid = owned.start(name, argv).pid
        owned.wait_for(name, lambda port=port: answers(port))  # type: ignore[misc]
        sides.append(Side(name, port, pid, POLL.format("t_" + "0" * 26).encode()))
    return sides


def _start_ours(owned: Processes, files: Sequence[str]) -> Side:
    """Start the web process; what is polled is a task that waits."""
    _, redis_port = start_redis(owned, "redis")
    port = free_port()
    environment = {
        "ASYNC_NODES_REDIS_URL": f"redis://127.0.0.1:{redis_port}/0",
        "ASYNC_NODES_DATA_DIR": str(owned.folder / "ours"),
    }
    argv = [sys.executable, "-m", "async_nodes.cli", "serve", "--port", str(port)]
    argv += ["--tls-cert", files[0], "--tls-key", files[1]]
    web = owned.start(OURS, argv, environment=environment)
    found: list[str] = []

    def accepts() -> bool:
        if answers(port) and not found:
            found.extend(_submitted(port))
        return bool(found)

    owned.wait_for(OURS, accepts)
    return Side(OURS, port, web.pid, POLL.format(found[0]).encode())


def _submitted(port: int) -> list[str]:
    """Return the id of a new task whose record is of the size of the others' answers."""
    body = json.dumps({"node": "echo", "inputs": {"text": "x" * 100}}).encode()
    head = "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connect(port, context()) as sock:
        answer = exchange(sock, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    if b" 202 " not in answer[:20]:
        return []
    return [str(json.loads(answer.partition(b"\r\n\r\n")[2])["task_id"])]


def summary(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Return the medians over the rounds of each side and phase, the longest wait of all."""
    groups = []
    for side in dict.fromkeys(each.side for each in rounds):
        for phase in PHASES:
            chosen = [asdict(each) for each in rounds if (each.side, each.phase) == (side, phase)]
            names = ("rate", "cpu", "resumed", "p50", "p99")
            middle = {name: median(each[name] for each in chosen) for name in names}
            slowest = max(each["slowest"] for each in chosen)
            groups.append({"side": side, "phase": phase, **middle, "slowest": slowest})
    return groups


def text(groups: Sequence[dict[str, Any]]) -> str:
    """Return the summary as a table."""
    rows = []
    for group in groups:
        storm = group["phase"] != "quiet"
        shaken = [f"{group['rate']:.0f}", f"{group['cpu']:.0f}"] if storm else ["", ""]
        waits = [f"{group[name]:.2f}" for name in ("p50", "p99", "slowest")]
        rows.append([group["side"], group["phase"], *shaken, *waits])
    return _figures.table(HEADS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    made = bare_parser(__doc__)
    made.add_argument("--rounds", type=positive, default=3, help="per side")
    made.add_argument("--seconds", type=positive, default=4, help="of each phase")
    made.add_argument("--clients", type=positive, default=32, help="that shake hands at once")
    made.add_argument("--key", choices=tuple(KEYS), default="ec", help="of the certificate")
    given = made.parse_args(arguments)
    rounds: list[Round] = []
    with processes() as owned:
        sides = start_sides(owned, given.key)
        for turn in range(given.rounds):
            for side in sides:
                quiet = 0.0
                for phase in PHASES:
                    done = measure(side, phase, given.seconds, given.clients, quiet)
                    quiet = done.cpu / 1e6 if phase == "quiet" else quiet
                    rounds.append(done)
                    _figures.say(
                        f"round {turn + 1}: {side.name:12} {phase:8} {done.rate:5.0f}/s"
                        f" {done.cpu:6.0f} µs {done.resumed:4.0%} resumed, p99 {done.p99:.1f} ms"
                    )
    groups = summary(rounds)
    print(text(groups))
    options = Options(rounds=given.rounds, tasks=0, json=given.json)
    shown = [asdict(each) for each in rounds]
    chosen = {"seconds": given.seconds, "clients": given.clients, "key": given.key}
    _figures.write(options, "tls", {"chosen": chosen, "summary": groups, "rounds": shown})
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
