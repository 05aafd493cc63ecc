"""Breakers, fallbacks and hedges in real workers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.acceptance.stack import Stack

pytestmark = [pytest.mark.needs("redis"), pytest.mark.timeout(120)]
ONCE = {"max_attempts": 1}


def breaker(stack: Stack, name: str) -> dict[str, Any]:
    """Return a breaker as anybody may ask for it."""
    found: dict[str, Any] = stack.client.request("GET", f"/v1/breakers/{name}").json
    return found


def answers_again(stack: Stack, submit: Callable[[], str], name: str) -> list[dict[str, Any]]:
    """Go on submitting until a breaker is closed; return the records."""
    found: list[dict[str, Any]] = []

    def is_closed() -> bool:
        found.append(stack.wait(submit()))
        return bool(breaker(stack, name)["state"] == "closed")

    stack.until(is_closed, "it stays open", 30)
    return found


def test_an_endpoint_that_fails_is_asked_no_more(new_stack: Any) -> None:
    """By none of the workers; and again by all of them once it works."""
    stack: Stack = new_stack(
        io=2,
        cpu=0,
        model=("--ttft-ms", "5", "--gap-ms", "1"),
        environ={
            "ASYNC_NODES_ENDPOINT_BREAKER_WINDOW": "5",
            "ASYNC_NODES_ENDPOINT_BREAKER_OPEN_SECONDS": "2",
        },
    )
    name = f"endpoint:127.0.0.1:{stack.model_port}"

    def ask(model: str) -> str:
        return stack.submit("llm.chat", stack.chat(model), retry_policy=ONCE)

    failed = stack.wait_all([ask("sim:500") for _ in range(60)])
    stack.until(lambda: breaker(stack, name).get("state") == "open", "it does not open", 10)
    opened = breaker(stack, name)
    time.sleep(0.6)  # the other worker hears of it at its next look
    stack.reset_model()
    refused = stack.wait_all([ask("sim") for _ in range(20)])
    asked = stack.model_stats()["requests"]
    patient = stack.submit("llm.chat", stack.chat("sim"))
    answers_again(stack, lambda: ask("sim"), name)

    assert {one["error"]["code"] for one in failed} <= {"model_error", "breaker_open"}
    assert (opened["cause"], opened["measured"]["failures"] > 50) == ("failures", True)
    # The opening may have ended meanwhile: then one call at a time is let through.
    codes = [(one["error"] or {}).get("code") for one in refused]
    assert codes.count("breaker_open") >= 20 - 7
    assert asked == codes.count(None)
    assert stack.wait(patient, 30)["state"] == "Succeeded"  # tried again when it may be


@pytest.mark.parametrize("node", ["probe.fragile", "probe.fragile_cpu"])
def test_a_node_recovers_by_itself(stack: Stack, node: str) -> None:
    """In either pool; a fallback answers meanwhile and the record says that it does."""

    def submit(*, fail: bool = False) -> str:
        return stack.submit(node, {"fail": fail}, retry_policy=ONCE)

    stack.wait_all([submit(fail=True) for _ in range(8)])
    stack.until(
        lambda: breaker(stack, f"node:{node}").get("state") in {"open", "half-open"},
        "it stays closed",
        10,
    )
    during = stack.wait_all([submit() for _ in range(3)])
    records = answers_again(stack, submit, f"node:{node}")
    after = stack.wait(submit())

    refused = [one for one in [*during, *records] if one["output"] != "fine"]
    assert refused
    if node == "probe.fragile":
        assert {one["state"] for one in refused} == {"Succeeded"}
        assert all(one["output"] == {"answer": "none"} for one in refused)
        assert all(one["usage"] == {"fallback": 1} for one in refused)
    else:
        assert {one["error"]["code"] for one in refused} == {"breaker_open"}
    assert (after["output"], after["usage"]) == ("fine", None)


class Sluggish(BaseHTTPRequestHandler):
    """A model that does not answer the first request, and notes when its client has gone."""

    asked: ClassVar[list[str]] = []
    gone = threading.Event()

    def do_POST(self) -> None:
        """Answer the second request."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.headers["Idempotency-Key"])
        if len(self.asked) == 1:
            self.connection.settimeout(30)
            if not self.connection.recv(1):
                self.gone.set()
            return
        message = {"role": "assistant", "content": "second"}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


def test_a_slow_model_is_asked_a_second_time(new_stack: Any) -> None:
    """Beside the first request, under a key of its own; the first request is given up."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Sluggish) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        allowed = {"ASYNC_NODES_EGRESS_ALLOW": f"127.0.0.1:{port}"}
        stack: Stack = new_stack(io=1, cpu=0, environ=allowed)
        inputs = {
            "model": "any", "messages": [{"role": "user", "content": "hello"}], "hedge_ms": 300,
            "base_url": f"http://127.0.0.1:{port}/v1", "stream": False, "timeout_ms": 25_000,
        }  # fmt: skip
        record = stack.wait(stack.submit("llm.chat", inputs, retry_policy=ONCE))
        is_gone = Sluggish.gone.wait(10)
        server.shutdown()

    assert (record["state"], record["output"], is_gone) == ("Succeeded", "second", True)
    first, second = Sluggish.asked
    assert second == f"{first}-2"


def test_a_slow_call_is_overtaken_by_a_second_one(stack: Stack, tmp_path: Path) -> None:
    """The first answer is the task's; the other call is stopped."""
    path = tmp_path / "trace"

    record = stack.wait(stack.submit("probe.hedged", {"path": str(path)}))
    stack.until(lambda: bool(path.read_text()), "the first call goes on", 5)

    assert (record["state"], record["output"]) == ("Succeeded", "second")
    assert path.read_text() == "the first call was stopped\n"
