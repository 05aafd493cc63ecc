"""Spans and log lines of the real processes, for a receiver of OTLP and a reader of logs."""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.otlp_receiver import Receiver, attributes
from tests.acceptance.stack import Stack

STEPS = {"submit", "dispatch", "execute", "store"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Stack]:
    environ = {
        "ASYNC_NODES_TRACE_SAMPLE": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "ASYNC_NODES_LOG_FORMAT": "json",
        "ASYNC_NODES_LOG_TASKS": "true",
    }
    made = Stack(tmp_path_factory.mktemp("tracing"), model=("--gap-ms", "1"), environ=environ)
    allowed = f"127.0.0.1:{made.model_port},{receiver.url.removeprefix('http://')}"
    made["io0"].change(ASYNC_NODES_EGRESS_ALLOW=allowed)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def run(stack: Stack, node: str, inputs: Any, trace: str | None, **fields: Any) -> Any:
    """Run a task to its end and return its record; with a trace, as a client's."""
    headers = {"Content-Type": "application/json"}
    if trace is not None:
        headers["traceparent"] = trace
    connection = http.client.HTTPConnection("127.0.0.1", stack.client.port, timeout=20)
    body = json.dumps({"node": node, "inputs": inputs, **fields})
    connection.request("POST", "/v1/tasks", body, headers)
    submitted = json.load(connection.getresponse())
    record = stack.wait(submitted["task_id"])
    connection.request("GET", f"/v1/tasks/{submitted['task_id']}", headers=headers)
    connection.getresponse().read()
    connection.close()
    return record


def sent(flags: str) -> tuple[str, str, str]:
    """Return the ids of a client's span, and its traceparent."""
    trace_id, span_id = secrets.token_hex(16), secrets.token_hex(8)
    return trace_id, span_id, f"00-{trace_id}-{span_id}-{flags}"


def arrived(stack: Stack, receiver: Receiver, trace_id: str, names: set[str]) -> dict[str, Any]:
    """Return the spans of a trace once all of these have come."""
    stack.until(lambda: receiver.of(trace_id).keys() >= names, f"not all of {names} came")
    return receiver.of(trace_id)


def test_each_step_of_the_way_is_one_span(stack: Stack, receiver: Receiver) -> None:
    """Submit, dispatch, execute, store and expose, each the child of what caused it."""
    trace_id, span_id, trace = sent("01")
    record = run(stack, "echo", {"text": "x"}, trace)
    spans = arrived(stack, receiver, trace_id, STEPS | {"GET", "POST"})
    parents = {name: span.parent_span_id.hex() for name, span in spans.items()}
    own = {name: span.span_id.hex() for name, span in spans.items()}

    assert record["trace_id"] == trace_id
    assert parents == {
        "POST": span_id,
        "GET": span_id,
        "submit": span_id,
        "dispatch": own["submit"],
        "execute": own["dispatch"],
        "store": own["execute"],
    }
    named = [s.name for _, s in receiver.spans if s.trace_id.hex() == trace_id]
    assert sorted(named) == [
        "GET /v1/tasks/<task_id>", "POST /v1/tasks", "dispatch io.default", "execute io.default",
        "store io.default", "submit io.default",
    ]  # fmt: skip


def test_spans_speak_the_conventions_of_messaging(stack: Stack, receiver: Receiver) -> None:
    """System, operation, destination and the message's id, which is the task's."""
    trace_id, _, trace = sent("01")
    record = run(stack, "echo", {"text": "x"}, trace)
    spans = arrived(stack, receiver, trace_id, STEPS)

    types = {name: attributes(spans[name])["messaging.operation.type"] for name in STEPS}
    assert types == {
        "submit": "send", "dispatch": "receive", "execute": "process", "store": "settle",
    }  # fmt: skip
    for name in STEPS:
        found = attributes(spans[name])
        assert found["messaging.system"] == "celery"
        assert found["messaging.destination.name"] == "io.default"
        assert found["messaging.message.id"] == record["task_id"]
    assert spans["dispatch"].start_time_unix_nano <= spans["execute"].start_time_unix_nano


def test_a_models_span_tells_model_and_tokens(stack: Stack, receiver: Receiver) -> None:
    """By the conventions for generative AI; and the model is called within that span."""
    trace_id, _, trace = sent("01")
    run(stack, "llm.chat", stack.chat(), trace)
    spans = arrived(stack, receiver, trace_id, STEPS)
    found = attributes(spans["execute"])

    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.request.model"] == "sim"
    assert found["gen_ai.usage.input_tokens"] > 0
    assert found["gen_ai.usage.output_tokens"] > 0


def test_what_a_body_calls_goes_on_with_its_span(stack: Stack, receiver: Receiver) -> None:
    """The request of a node carries the span of its body; unsampled, the client's trace."""
    trace_id, _, trace = sent("01")
    run(stack, "http.request", {"url": f"{receiver.url}/x"}, trace)
    execute = arrived(stack, receiver, trace_id, STEPS)["execute"]
    _, _, unsampled = sent("00")
    run(stack, "http.request", {"url": f"{receiver.url}/x"}, unsampled)
    carried = [headers["traceparent"] for headers in receiver.asked]

    assert carried == [f"00-{trace_id}-{execute.span_id.hex()}-01", unsampled]


def test_a_failure_is_one_in_the_span_of_the_body(stack: Stack, receiver: Receiver) -> None:
    """The span of the store is none: it did its work. A child of the CPU pool traces as well."""
    trace_id, _, trace = sent("03")
    once = {"retry_policy": {"max_attempts": 1}}
    record = run(stack, "probe.sleep_cpu", {"seconds": -1}, trace, **once)
    spans = arrived(stack, receiver, trace_id, STEPS)

    assert record["state"] == "Failed"
    assert spans["execute"].status.code == 2
    assert attributes(spans["execute"])["error.type"] == record["error"]["code"]
    assert spans["store"].status.code == 0
    assert "async-nodes-worker-cpu" in {service for service, _ in receiver.spans}


def test_what_is_not_sampled_makes_no_span(stack: Stack, receiver: Receiver) -> None:
    """Neither a trace that its client does not keep, nor one of a share of 0."""
    trace_id, _, trace = sent("00")
    own = run(stack, "echo", {"text": "x"}, None)["trace_id"]
    assert run(stack, "echo", {"text": "x"}, trace)["trace_id"] == trace_id
    last, _, kept = sent("01")
    run(stack, "echo", {"text": "x"}, kept)
    arrived(stack, receiver, last, STEPS)

    assert receiver.of(trace_id) == {}
    assert receiver.of(own) == {}


def test_each_change_of_state_is_a_line(stack: Stack) -> None:
    """In JSON, with the trace; the last tells when the task was queued and taken, and its time."""
    trace_id, _, trace = sent("00")
    record = run(stack, "echo", {"text": "x"}, trace)

    def lines() -> list[dict[str, Any]]:
        texts = [stack[name].text() for name in ("web", "io0")]
        found = [line for text in texts for line in text.splitlines() if trace_id in line]
        return [json.loads(line) for line in found]

    stack.until(lambda: len(lines()) == 3, "not three lines")
    accepted, started, ended = lines()
    assert [one["state"] for one in lines()] == ["Pending", "Running", "Succeeded"]
    assert {one["task_id"] for one in lines()} == {record["task_id"]}
    assert accepted["queue"] == started["queue"] == "io.default"
    assert ended["enqueued_at"] <= ended["dequeued_at"] == record["started_at"]
    assert ended["run_seconds"] > 0
    assert ended["outcome"] == "succeeded"


def test_what_a_body_logs_names_its_task(stack: Stack) -> None:
    """Also where it is a library that logs and knows nothing of tasks."""
    trace_id, _, trace = sent("00")
    record = run(stack, "probe.warn", {}, trace)

    def line() -> dict[str, Any]:
        texts = [t for t in stack["io0"].text().splitlines() if "a library's word" in t]
        return json.loads(texts[-1]) if texts else {}

    stack.until(lambda: bool(line()), "no line")
    assert (line()["task_id"], line()["trace_id"]) == (record["task_id"], trace_id)
    assert (line()["level"], line()["logger"]) == ("warning", "a.library")
