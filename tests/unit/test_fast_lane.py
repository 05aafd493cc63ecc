"""The fast lane by itself: what it answers, what it leaves, and what it hands over."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from async_nodes.access.lane import fast_lane
from async_nodes.access.lane.fast_lane import FastLane
from async_nodes.access.lane.handover import Handover, left_in, raise_met
from async_nodes.access.lane.reader import Reader
from async_nodes.access.serving.http import Answer
from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.states import NodeState
from async_nodes.dispatch.submit import Submitted
from async_nodes.settings import Settings
from async_nodes.storage.layout import Glance
from async_nodes.storage.redis_errors import OutcomeUnknown, StoreUnavailable
from async_nodes.telemetry import metrics

TASK_ID = "t_01KEXAMPZE0123456789ABCDEF"
GET = f"GET /v1/tasks/{TASK_ID} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
BODY = b'{"node":"echo"}'
POST_HEAD = (
    b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 15\r\n\r\n"
)
POST = POST_HEAD + BODY
SUBMITTED = Submitted(TASK_ID, 1, NodeState.PENDING, 1_796_072_400_007, replayed=False)


class Services:
    """Store and submitter in one: they answer as told and remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.record: Any = Glance(3, "default", b'{"a":1}')
        self.accepted: Any = SUBMITTED

    @property
    def store(self) -> Services:
        """Return itself."""
        return self

    @property
    def submitter(self) -> Services:
        """Return itself."""
        return self

    def glance(self, task_id: str) -> Any:
        """Return the record."""
        self.asked.append(task_id)
        return told(self.record)

    def submit(self, raw: bytes, **given: Any) -> Any:
        """Accept anything."""
        self.asked.append((raw, given))
        return told(self.accepted)


class Socket:
    """Give out pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def recv(self, _most: int) -> bytes:
        """Return the next piece, or the end."""
        return self._pieces.pop(0) if self._pieces else b""


def told(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


def asked(services: Any, *pieces: bytes, **settings: Any) -> tuple[Any, bytes]:
    """Return what the lane makes of a request, and what it leaves of it."""
    reader = Reader(Socket(*pieces))
    answer = FastLane(Settings(**settings), lambda: services)(reader)
    return answer, reader.read()


def count(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_read_is_answered() -> None:
    """With the record as it is stored, its version and its length."""
    services = Services()
    answer, left = asked(services, GET, b"next")
    assert isinstance(answer, Answer)
    assert answer.head.startswith("HTTP/1.1 200 OK\r\n")
    assert 'ETag: "3"\r\n' in answer.head
    assert "Content-Length: 7\r\n" in answer.head
    assert (answer.body, left, services.asked) == (b'{"a":1}', b"next", [TASK_ID])


def test_a_version_that_the_client_has_is_not_sent_again() -> None:
    """304 without a body."""
    conditional = GET.replace(b"\r\n\r\n", b'\r\nIf-None-Match: "2", W/"3"\r\n\r\n')
    answer, _ = asked(Services(), conditional)
    assert answer.head.startswith("HTTP/1.1 304 NOT MODIFIED\r\n")
    assert answer.body == b""
    answer, _ = asked(Services(), conditional.replace(b'W/"3"', b'"4"'))
    assert answer.body == b'{"a":1}'


@pytest.mark.parametrize("pieces", [(POST,), (POST_HEAD, BODY), (POST[:-1], POST[-1:], b"next")])
def test_a_submit_is_answered(pieces: tuple[bytes, ...]) -> None:
    """However its packets came; with the trace that the store was told of."""
    services = Services()
    answer, left = asked(services, *pieces)
    assert isinstance(answer, Answer)
    ((raw, given),) = services.asked
    assert raw == BODY
    assert (given["tenant"], given["idempotency_key"]) == ("default", "")
    assert f"traceparent: {given['traceparent']}\r\n" in answer.head
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", given["traceparent"])
    assert f"Location: /v1/tasks/{TASK_ID}\r\n" in answer.head
    assert "Idempotency-Replayed" not in answer.head
    assert json.loads(answer.body)["created_at"] == SUBMITTED.created_at
    assert left == b"".join(pieces)[len(POST) :]


def test_a_replay_says_so() -> None:
    """The header is there, and the state is the task's own."""
    services = Services()
    services.accepted = replace(SUBMITTED, replayed=True, state=NodeState.RUNNING, version=2)
    keyed = POST.replace(b"Host", b"Idempotency-Key: k\r\nHost")
    answer, _ = asked(services, keyed)
    assert "Idempotency-Replayed: true\r\n" in answer.head
    assert json.loads(answer.body)["state"] == "Running"
    assert services.asked[0][1]["idempotency_key"] == "k"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        GET[:-1],
        GET[:-2],
        GET[:20],
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"GET", b"get"),
        GET.replace(b"HTTP/1.1", b"HTTP/1.0"),
        GET.replace(b" HTTP", b"?wait=1 HTTP"),
        GET.replace(b" HTTP", b"/ HTTP"),
        GET.replace(b" HTTP", b"/events HTTP"),
        GET.replace(b"t_01K", b"t_01I"),
        GET.replace(b"t_01K", b"T_01K"),
        GET.replace(b"/v1/tasks/", b"/v1/tasks//"),
        GET.replace(b"GET /", b"GET  /"),
        GET.replace(b"GET /", b"GET http://localhost/"),
        GET.replace(b"\r\n", b"\n"),
        b"\r\n" + GET,
        f"GET /v1/tasks/{TASK_ID} HTTP/1.1\r\n\r\n".encode(),
        POST[:-1],
        POST_HEAD,
        POST.replace(b"POST /v1/tasks", b"POST /v1/tasks/"),
        POST.replace(b"POST /v1/tasks", b"POST /v1/tasks?wait=1"),
    ],
)
def test_what_is_not_ordinary_is_left_untouched(sent: bytes) -> None:
    """The store is not asked, and the app finds every byte."""
    services = Services()
    assert asked(services, sent) == (None, sent)
    assert services.asked == []


@pytest.mark.parametrize("record", [None, Glance(1, "other", b"{}")])
def test_a_task_that_is_not_there_is_the_apps_to_report(record: Any) -> None:
    """Absent or another tenant's: the request is left to it."""
    services = Services()
    services.record = record
    assert asked(services, GET) == (None, GET)


def test_before_the_store_answers_the_app_says_so() -> None:
    """Nothing is taken, nothing is handed over."""

    def closed() -> Any:
        raise StoreUnavailable("not yet")

    for sent in (GET, POST):
        reader = Reader(Socket(sent))
        assert FastLane(Settings(), closed)(reader) is None
        assert reader.read() == sent


@pytest.mark.parametrize(
    "error",
    [
        AsyncNodesError("unknown_node", "x"),
        OutcomeUnknown("cut"),
        AsyncNodesError("outcome_unknown", task_id=TASK_ID),
        ZeroDivisionError("a fault of ours"),
    ],
)
def test_a_failure_is_handed_over(error: Exception) -> None:
    """With the names that the store was told: the app reports it, and never asks again."""
    services = Services()
    services.record = services.accepted = error
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    named = f"traceparent: {trace}\r\nX-Request-ID: r\r\nHost".encode()
    for sent in (GET.replace(b"Host", named), POST.replace(b"Host", named)):
        handover, left = asked(services, sent)
        assert isinstance(handover, Handover)
        assert (handover.error, handover.request_id, handover.traceparent) == (error, "r", trace)
        assert left == sent
        environ: dict[str, Any] = {}
        raise_met(environ)
        handover.put(environ)
        assert left_in(environ) is handover
        with pytest.raises(type(error)):
            raise_met(environ)


def test_answers_are_counted_as_the_apps_are() -> None:
    """By outcome, and with their duration under the route's name."""
    names = (
        ("async_nodes_polls_total", {"outcome": "ok"}),
        ("async_nodes_polls_total", {"outcome": "not_modified"}),
        ("async_nodes_submits_total", {"outcome": "accepted"}),
        (
            "async_nodes_http_request_duration_seconds_count",
            {"route": "/v1/tasks/<task_id>", "method": "GET", "status": "200"},
        ),
        (
            "async_nodes_http_request_duration_seconds_count",
            {"route": "/v1/tasks", "method": "POST", "status": "202"},
        ),
    )
    before = [count(name, **labels) for name, labels in names]
    asked(Services(), GET)
    asked(Services(), GET.replace(b"\r\n\r\n", b'\r\nIf-None-Match: "3"\r\n\r\n'))
    asked(Services(), POST)
    asked(Services(), b"nonsense")
    after = [count(name, **labels) for name, labels in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 1, 1, 1]


def test_a_slow_answer_leaves_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning with path and time, as the app writes it; a quick answer leaves none."""
    with caplog.at_level(logging.INFO):
        asked(Services(), GET)
        assert caplog.records == []
        monkeypatch.setattr(fast_lane, "SLOW_SECONDS", -1.0)
        asked(Services(), GET)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"GET /v1/tasks/{TASK_ID} answered 200 in ")
    assert record.__dict__["action"] == "http_slow"
