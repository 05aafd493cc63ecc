"""The metrics of the real processes, as Prometheus would read them."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from async_nodes.storage.found import kombu_keys
from async_nodes.telemetry.beside import fetch
from async_nodes.telemetry.catalogue import CATALOGUE
from tests.acceptance.stack import Stack, free_port

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module")
def ports() -> dict[str, int]:
    return {"io0": free_port(), "cpu0": free_port()}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, int]) -> Iterator[Stack]:
    made = Stack(tmp_path_factory.mktemp("metrics"), model=("--gap-ms", "1"))
    for name, port in ports.items():
        made[name].change(ASYNC_NODES_METRICS_PORT=str(port))
    beside = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    made["web"].change(ASYNC_NODES_METRICS_BESIDE=beside)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def families(port: int) -> dict[str, Any]:
    parse: Any = text_string_to_metric_families
    return {one.name: one for one in parse(fetch(f"127.0.0.1:{port}"))}


def value(port: int, name: str, **labels: str) -> float:
    """Return one value, 0 where it is not shown."""
    for family in families(port).values():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return 0.0


def test_what_a_child_did_is_on_its_parents_page(stack: Stack, ports: dict[str, int]) -> None:
    """Within a second or so, and once: attempts, durations and their exemplars."""
    tasks = [stack.submit("probe.sleep_cpu", {"seconds": 0.01}) for _ in range(3)]
    for task in tasks:
        stack.wait(task)
    named = {"node": "probe.sleep_cpu"}

    def counted() -> bool:
        return value(ports["cpu0"], "async_nodes_attempts_total", **named) == 3

    stack.until(counted, "the children have not reported")
    assert value(ports["cpu0"], "celery_task_runtime_count", **named) == 3
    assert value(ports["cpu0"], "async_nodes_task_end_to_end_seconds_sum", **named) > 0.03


def test_a_dead_child_leaves_no_series(stack: Stack, ports: dict[str, int]) -> None:
    """Its body counts as running no more, what it did stays counted, and its end is counted."""
    before = value(ports["cpu0"], "async_nodes_child_losses_total")
    stack.submit("probe.sleep_cpu", {"seconds": 60})
    stack.until(lambda: value(ports["cpu0"], "celery_active_tasks") == 1, "it does not run")
    for child in stack["cpu0"].children():
        os.kill(child, signal.SIGKILL)

    def is_counted() -> bool:
        return value(ports["cpu0"], "async_nodes_child_losses_total") == before + 1

    stack.until(is_counted, "its end is not counted")
    lines = fetch(f"127.0.0.1:{ports['cpu0']}").splitlines()
    assert sum(line.startswith("celery_active_tasks ") for line in lines) == 1
    assert not any("pid=" in line for line in lines)


def test_tokens_and_the_first_of_them_are_measured(stack: Stack, ports: dict[str, int]) -> None:
    """A model's answer counts its tokens in and out, their rate, and the time to the first."""
    stack.wait(stack.submit("llm.chat", stack.chat()))
    named = {"node": "llm.chat"}

    for direction in ("in", "out"):
        assert value(ports["io0"], "async_nodes_tokens_total", direction=direction, **named) > 0
    assert value(ports["io0"], "async_nodes_tokens_per_second_count", **named) == 1
    assert value(ports["io0"], "async_nodes_task_first_chunk_seconds_count", **named) == 1


def test_a_sampled_trace_leads_to_the_task(stack: Stack, ports: dict[str, int]) -> None:
    """The trace that a client sends with the flag of a kept one is an exemplar of its bucket."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.client.port, timeout=20)
    headers = {
        "Content-Type": "application/json",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
        "Prefer": "wait=15",
    }
    body = json.dumps({"node": "echo", "inputs": {"text": "x"}})
    connection.request("POST", "/v1/tasks", body, headers)
    assert json.load(connection.getresponse())["state"] == "Succeeded"
    connection.close()

    def exemplars() -> list[Any]:
        family = families(ports["io0"])["async_nodes_task_end_to_end_seconds"]
        return [sample.exemplar for sample in family.samples if sample.exemplar]

    stack.until(lambda: bool(exemplars()), "no exemplar")
    assert {"trace_id": TRACE} in [one.labels for one in exemplars()]


def test_messages_with_a_priority_of_kombus_are_counted(stack: Stack) -> None:
    """What somebody sends with Celery's priorities waits in keys of their own, and is depth."""
    queue = stack.store.keys.queue("io.low")
    (key, *_) = kombu_keys(queue)
    with stack.redis() as client:
        client.lpush(key, *["{}"] * 4)
        depth = value(stack.client.port, "async_nodes_queue_depth", queue="io", priority="low")
        client.delete(key)

    assert depth == 4
    assert value(stack.client.port, "async_nodes_store_up") == 1


def test_one_page_shows_all_and_a_dead_worker_vanishes(stack: Stack, ports: dict[str, int]) -> None:
    """Each value tells its process, every name is described, and SIGKILL leaves nothing."""
    port = stack.client.port
    shown = families(port)
    names = {f"{n}_total" if one.type == "counter" else n for n, one in shown.items()}
    assert names <= set(CATALOGUE)
    processes = {
        s.labels["process"] for one in shown.values() for s in one.samples if "process" in s.labels
    }
    assert processes == {"web", *ports}

    stack["io0"].remove()
    text = fetch(f"127.0.0.1:{port}")
    assert 'process="io0"' not in text
    assert 'async_nodes_metrics_processes{outcome="silent"} 1.0' in text
    stack["io0"].start()
    stack.ready()
