"""Send requests at a steady rate, however long the answers take, and tell how long each took.

``python -m benchmarks._steady PORT``: reads its orders as one JSON line, writes one for each
answer. A process of its own, so that its greenlets disturb nobody's threads.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import http.client  # noqa: E402 - patched first
import json  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

WAIT: int = 20


def ask(port: int, node: str, inputs: dict[str, Any], begun: float) -> None:
    """Submit a task, wait for its end, and write what became of it."""
    sent = time.monotonic()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT + 10)
    said: dict[str, Any] = {}
    try:
        body = json.dumps({"node": node, "inputs": inputs})
        head = {"Content-Type": "application/json"}
        link.request("POST", f"/v1/tasks?wait={WAIT}", body, head)
        answer = link.getresponse()
        said = json.loads(answer.read())
        status = answer.status
    except (OSError, http.client.HTTPException, ValueError) as error:
        status, said = 0, {"state": type(error).__name__}
    finally:
        link.close()
    line = {
        "node": node,
        "at": sent - begun,
        "seconds": time.monotonic() - sent,
        "status": status,
        "state": said.get("state"),
        "fallback": bool((said.get("usage") or {}).get("fallback")),
    }
    print(json.dumps(line), flush=True)


def main(port: int) -> None:
    """Carry out the orders: ``{rate, phases: [[node, seconds, inputs]]}``."""
    orders = json.loads(sys.stdin.readline())
    begun = due = time.monotonic()
    greenlets = []
    end = begun
    for node, seconds, inputs in orders["phases"]:
        end += seconds
        while due < end:
            gevent.sleep(max(due - time.monotonic(), 0))
            greenlets.append(gevent.spawn(ask, port, node, inputs, begun))
            due += 1 / orders["rate"]
    gevent.joinall(greenlets, timeout=WAIT + 15)


if __name__ == "__main__":
    main(int(sys.argv[1]))
