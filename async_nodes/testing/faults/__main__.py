"""``python -m async_nodes.testing.faults``: the proxy as a command.

For example ``--upstream 127.0.0.1:6379 --port 26379 --toxic latency:latency=200,jitter=50``.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from async_nodes.core.errors import AsyncNodesError
from async_nodes.testing.faults.proxy import FaultProxy
from async_nodes.testing.faults.toxics import parse_toxic


def main() -> int:
    """Run until SIGTERM or Ctrl-C; the first line says where it listens."""
    parser = argparse.ArgumentParser(
        prog="python -m async_nodes.testing.faults", description="A TCP proxy that misbehaves."
    )
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0 for any")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--toxic", action="append", default=[], metavar="KIND:NAME=VALUE,…")
    given = parser.parse_args()
    host, _, port = given.upstream.rpartition(":")
    if not host or not port.isdigit():
        parser.error(f"--upstream is HOST:PORT, not {given.upstream!r}")
    try:
        toxics = [parse_toxic(text) for text in given.toxic]
    except AsyncNodesError as error:
        parser.error(str(error.detail))
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: over.set())
    with FaultProxy((host, int(port)), port=given.port, seed=given.seed) as proxy:
        for toxic in toxics:
            proxy.add(toxic)
        sys.stdout.write(f"listening on 127.0.0.1:{proxy.port}\n")
        sys.stdout.flush()
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
