"""From the request to the first token: ``llm.chat`` through async_nodes, and the model directly.

The simulated model takes the same time for each answer. Both ways are taken in turns, one request
at a time: what the task adds (submit, dispatch, claim, stream, the event on its way back) is the
difference.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from benchmarks import _figures
from benchmarks._load import RECEIVE, parse
from benchmarks._model import TTFT_MS
from benchmarks._options import Options, parser, run
from benchmarks._processes import BenchmarkError, Processes, answers, free_port, processes
from benchmarks._sides import TASK_ID, Side
from benchmarks._stack import start_ours

WARM_UP: Final = 5
TIMEOUT: Final = 10.0
MESSAGES: Final = [{"role": "user", "content": "Say something about queues."}]
TOKEN: Final = re.compile(rb'"content":\s*"[^"]')
CHUNK: Final = re.compile(rb"event: chunk\r?\n")
DONE: Final = re.compile(rb"event: done\r?\n")
HEADS: Final = ("way", "p50 ms", "p90 ms", "p99 ms")


def connect(port: int) -> socket.socket:
    """Return a connection without Nagle's delay."""
    link = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link


def read_until(link: socket.socket, mark: re.Pattern[bytes]) -> None:
    """Read until the mark has come.

    Raises:
        BenchmarkError: the connection ended, or was silent for `TIMEOUT` seconds.

    """
    data = b""
    while not mark.search(data):
        try:
            piece = link.recv(RECEIVE)
        except TimeoutError:
            piece = b""
        if not piece:
            raise BenchmarkError(f"no first token came: {data[-300:]!r}")
        data += piece


def directly(port: int) -> float:
    """Return the seconds from the request to the first token, asking the model itself."""
    body = json.dumps({"model": "sim", "messages": MESSAGES, "stream": True}).encode()
    started = time.perf_counter()
    with closing(connect(port)) as link:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        link.sendall(head.encode() + body)
        read_until(link, TOKEN)
        return time.perf_counter() - started


def through(side: Side, model: int) -> float:
    """Return the seconds from the submit to the first chunk event."""
    inputs = {"base_url": f"http://127.0.0.1:{model}/v1", "model": "sim", "messages": MESSAGES}
    request = side.dialect.submit(side.port, json.dumps(inputs).encode(), node="llm.chat")
    started = time.perf_counter()
    with closing(connect(side.port)) as link:
        link.sendall(request)
        data = b""
        while (reply := parse(data)) is None:
            data += link.recv(RECEIVE)
        found = TASK_ID.search(reply[1])
        if found is None:
            raise BenchmarkError(f"a submit was answered {reply[0]}: {reply[1][:300]!r}")
        path = f"{side.dialect.path}/{found[1].decode()}/events"
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{side.port}\r\n\r\n".encode())
        read_until(link, CHUNK)
        taken = time.perf_counter() - started
        read_until(link, DONE)  # the next one does not start beside the rest of this
    return taken


def start_model(owned: Processes) -> int:
    """Start the simulated model and return its port."""
    port = free_port()
    owned.start("model", [sys.executable, "-m", "benchmarks._model", str(port)])
    owned.wait_for("the simulated model", lambda: answers(port))
    return port


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = Options.of(parser(__doc__, tasks=100, rounds=2, connections=None), arguments)
    taken: dict[str, list[float]] = {"directly": [], "async_nodes": []}
    with processes() as owned:
        model = start_model(owned)
        allowed = {"ASYNC_NODES_EGRESS_ALLOW": f"127.0.0.1:{model}"}
        side = start_ours(owned, extra={**options.environment(), **allowed})
        for _ in range(WARM_UP):
            directly(model)
            through(side, model)
        for turn in range(options.rounds):
            for _ in range(options.tasks):
                taken["directly"].append(directly(model))
                taken["async_nodes"].append(through(side, model))
            _figures.say(f"round {turn + 1} of {options.rounds} done")
    shares = (0.5, 0.9, 0.99)
    groups = {
        way: {f"p{share * 100:.0f}": _figures.percentile(seconds, share) * 1e3 for share in shares}
        for way, seconds in taken.items()
    }
    added = groups["async_nodes"]["p50"] - groups["directly"]["p50"]
    rows = [[way, *(f"{value:.1f}" for value in group.values())] for way, group in groups.items()]
    print(_figures.table(HEADS, rows))
    print(f"\nasync_nodes adds {added:.1f} ms (median) to a model's {TTFT_MS:.0f} ms")
    report = {"summary": groups, "added_ms": added, "model_ttft_ms": TTFT_MS, "seconds": taken}
    _figures.write(options, "first-token", report)
    return 0


if __name__ == "__main__":
    sys.exit(run(main))
