"""The simulated model without spread: ``python -m benchmarks._model PORT [TTFT_MS SLOTS]``.

Every answer takes the same time to its first token, so that what differs between two ways to ask
is the way.
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import Final

from async_nodes.testing.model_script import ModelConfig
from async_nodes.testing.model_server import ModelServer

TTFT_MS: Final = 50.0
GAP_MS: Final = 10.0
TOKENS: Final = 8
SLOTS: Final = 64


def main(port: int, ttft_ms: float = TTFT_MS, slots: float = SLOTS) -> None:
    """Serve until SIGTERM."""
    config = ModelConfig(
        slots=int(slots),
        ttft_ms=ttft_ms,
        ttft_sigma=0.0,
        gap_ms=GAP_MS,
        gap_sigma=0.0,
        load=0.0,
        tokens=TOKENS,
    )
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with ModelServer(config, port=port):
        stop.wait()


if __name__ == "__main__":
    main(int(sys.argv[1]), *map(float, sys.argv[2:]))
