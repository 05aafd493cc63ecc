"""The checks through the web process: it is ready, a task goes all the way, events are not held."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from http import HTTPStatus
from typing import Any

from async_nodes.cli.doctor.check import Check, Outcome, Patient, SkippedError
from async_nodes.cli.http import Client
from async_nodes.cli.language import tr
from async_nodes.cli.readiness import what_is_missing

_ANSWER = 1.0
_ECHO = 2.0
#: How long the task of the last check waits before it runs: its first event must not wait as long.
_DELAY = 0.5
_STREAM = 2.5


def web(patient: Patient) -> Check:
    """web: the server answers and says that nothing is missing."""
    client = patient.client()
    answer = client.call("GET", "/readyz", timeout=patient.left(_ANSWER))
    patient.web_answers = True
    detail = f"{client.url}, {answer.seconds * 1000:.1f} ms"
    if answer.status == HTTPStatus.OK:
        return Check("web", Outcome.OK, detail)
    missing = what_is_missing(answer.document) or f"HTTP {answer.status}"
    hint = tr("See the checks above.", "请看上面的检查项。")
    return Check("web", Outcome.FAIL, f"{detail}: {missing}", hint)


def echo(patient: Patient) -> Check:
    """echo: a task goes through every step and comes back."""
    client = _answering(patient)
    began = time.perf_counter()
    seconds = patient.left(_ECHO)
    path = f"/v1/tasks?wait={max(1, int(seconds))}"
    record = client.post(path, _task("doctor"), timeout=seconds + 1).document
    total = (time.perf_counter() - began) * 1000
    if record.get("state") != "Succeeded" or "attempts" not in record:
        detail = tr(
            f"{record.get('task_id')} is {record.get('state')} after {seconds:.0f} s",
            f"{seconds:.0f} 秒后 {record.get('task_id')} 仍为 {record.get('state')}",
        )
        hint = tr("Look at the I/O worker's log.", "请查看 I/O 工作进程日志。")
        return Check("echo", Outcome.FAIL, detail, hint)
    return Check("echo", Outcome.OK, _steps(record, total))


def stream(patient: Patient) -> Check:
    """events: the first event arrives before the task ends, so nothing in between holds them."""
    client = _answering(patient)
    body = {**_task("doctor"), "delay": _DELAY}
    task_id = str(client.post("/v1/tasks", body, timeout=patient.left(_ANSWER)).document["task_id"])
    began = time.monotonic()
    arrivals = _arrivals(client, task_id, patient.left(_STREAM))
    if not arrivals:
        detail = tr("no event arrived", "没有收到事件")
        return Check("events", Outcome.FAIL, detail, _unbuffer())
    first, last = arrivals[0][1] - began, arrivals[-1][1] - began
    detail = tr(
        f"first event after {first * 1000:.0f} ms, {arrivals[-1][0]} after {last * 1000:.0f} ms",
        f"首个事件 {first * 1000:.0f} 毫秒,{arrivals[-1][0]} {last * 1000:.0f} 毫秒",
    )
    if first >= _DELAY:
        return Check("events", Outcome.FAIL, detail, _unbuffer())
    return Check("events", Outcome.OK, detail)


def _arrivals(client: Client, task_id: str, seconds: float) -> list[tuple[str, float]]:
    """Return the events that arrived in time, each with its moment."""
    arrivals: list[tuple[str, float]] = []

    def read() -> None:
        with Client(client.url, client.api_key) as reader:
            arrivals.extend(
                (message.type, time.monotonic()) for message in reader.events(task_id, patience=0)
            )

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(seconds)
    return arrivals


def _answering(patient: Patient) -> Client:
    if not patient.web_answers:
        raise SkippedError(tr("the web process does not answer", "Web 进程无响应"))
    return patient.client()


def _task(text: str) -> dict[str, Any]:
    return {"node": "echo", "inputs": {"text": text}, "tags": ["doctor"], "ttl": 60}


def _steps(record: dict[str, Any], total: float) -> str:
    """Return the timings of a record's steps."""
    attempt = record["attempts"][-1]
    moments = {name: _ms(attempt[name]) for name in ("queued_at", "started_at", "finished_at")}
    queued = moments["started_at"] - moments["queued_at"]
    running = moments["finished_at"] - moments["started_at"]
    rest = total - queued - running
    return tr(
        f"{total:.0f} ms: queued {queued:.0f}, running {running:.0f}, there and back {rest:.0f}",
        f"{total:.0f} 毫秒:排队 {queued:.0f},运行 {running:.0f},往返 {rest:.0f}",
    )


def _unbuffer() -> str:
    return tr(
        "A proxy holds the events back: switch its buffering off (nginx: proxy_buffering off).",
        "有代理缓冲了事件:请关闭缓冲(nginx:proxy_buffering off)。",
    )


def _ms(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() * 1000
