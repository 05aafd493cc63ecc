"""The fast lane beside Flask: two processes over one store give the same bytes for all requests."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from async_nodes.core.states import EventType
from tests.integration import web as web_processes
from tests.integration.web import Hand, Web, _web_log, _web_process, hand, wait_until, web
from tests.servers import RedisServer

__all__ = ["_web_log", "_web_process", "hand", "web"]

TRACE = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CUT_OFF = b"cut off"
KEY = b"@@KEY@@"  # as long as what replaces it
_numbers = count(1)


class PlainWeb(Web):
    """A web process without the lane."""

    def start(self) -> None:
        """Start it, with the one difference."""
        plain = web_processes.MAIN.replace("on_ready=", "fast_lane=False, on_ready=")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(web_processes, "MAIN", plain)
            super().start()


@pytest.fixture(scope="module")
def _plain_process() -> Iterator[dict[str, Web]]:
    kept: dict[str, Web] = {}
    yield kept
    for process in kept.values():
        assert process.stop() == 0, process.log


@dataclass(frozen=True)
class Pair:
    """The two processes, and the ids of tasks by what they are."""

    lane: Web
    plain: Web
    tasks: dict[str, str]


@pytest.fixture
def pair(
    one_server: RedisServer,
    web: Web,
    hand: Hand,
    _plain_process: dict[str, Web],
    _web_log: Path,
) -> Pair:
    """Return both processes and one task of each kind."""
    if one_server.url not in _plain_process:
        started = PlainWeb(one_server.url, _web_log.with_name("plain"))
        started.start()
        _plain_process[one_server.url] = started
    plain = _plain_process[one_server.url]
    wait_until(lambda: plain.get("/readyz").json["checks"]["store"]["ok"])
    tasks = {"pending": web.task(inputs={"é": "ü"}), "done": web.task(), "failed": web.task()}
    hand.done(tasks["done"])
    hand.finish(hand.claim(tasks["failed"]), EventType.ERROR)
    return Pair(web, plain, tasks)


# -- what is sent and what comes back --------------------------------------------------------------


def exchange(process: Web, pieces: Sequence[bytes], pause: float = 0.001) -> bytes:
    """Send pieces as packets of their own, end, and return everything that comes back.

    A server that ends first may take its answer away from who still sends, so then all is sent
    once more in one piece; when that is too much, too, nothing can be said about the answer.
    """
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", process.port), timeout=10) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number, piece in enumerate(pieces):
                if number:
                    time.sleep(pause)
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                received += data
    except TimeoutError:
        raise
    except OSError:
        return exchange(process, [b"".join(pieces)]) if len(pieces) > 1 else CUT_OFF
    return received


_PROCESS = re.compile(
    rb'Content-Length: [0-9]+(\r\n(?:[^\r\n]+\r\n)*\r\n\{"status":"ok",)"pid":[0-9]+'
)


def masked(received: bytes, sent: bytes) -> bytes:
    """Return answers without what differs between any two: times and names made by the server."""

    def unless_sent(found: re.Match[bytes]) -> bytes:
        return found[0] if found[0] in sent else b"?" * len(found[0])

    text = re.sub(rb"Date: [^\r]{29}\r\n", b"Date\r\n", received)
    text = re.sub(rb"Allow: [^\r]*", lambda found: bytes(sorted(found[0])), text)  # a set's order
    text = _PROCESS.sub(rb"Content-Length\1pid", text)
    text = re.sub(rb"t_[0-9A-Z]{26}", unless_sent, text)
    text = re.sub(rb"(?<![0-9a-f])[0-9a-f]{16}(?:[0-9a-f]{16})?(?![0-9a-f])", unless_sent, text)
    if b"HTTP/1.1 202" in text:  # in a record the time is the task's own
        text = re.sub(rb'"created_at":"[^"]{24}"', b"created", text)
    return text


def assert_same(pair: Pair, pieces: Sequence[bytes]) -> bytes:
    """Send the same to both and compare; ``@@KEY@@`` is a new Idempotency-Key on each side."""
    number = b"%06d" % next(_numbers)
    answers = []
    for side, process in ((b"L", pair.lane), (b"P", pair.plain)):
        sent = b"".join(pieces).replace(KEY, side + number)
        ends = list(accumulate(map(len, pieces), initial=0))
        cut = [sent[start:end] for start, end in pairwise(ends)]
        answer = masked(exchange(process, cut), sent)
        if not own_keys(b"".join(pieces)):
            answer = answer.replace(b"Idempotency-Replayed: true\r\n", b"")
        answers.append(answer)
    assert answers[0] == answers[1] or CUT_OFF in answers
    return answers[0]


def own_keys(sent: bytes) -> bool:
    """Tell whether every key is one that the other side does not send."""
    return sent.lower().count(b"idempotency") == sent.count(b"Key: @@KEY@@") + sent.count(
        b'"@@KEY@@"'
    )


def poll(task_id: str, *lines: bytes) -> bytes:
    head = b"GET /v1/tasks/%s HTTP/1.1\r\nHost: localhost\r\n" % task_id.encode()
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(body: bytes = b'{"node":"echo"}', *lines: bytes, length: int | None = None) -> bytes:
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"".join(line + b"\r\n" for line in lines)
    return head + b"Content-Length: %d\r\n\r\n" % (len(body) if length is None else length) + body


# -- generated requests ----------------------------------------------------------------------------

LINES = [
    b"User-Agent: curl/8.5.0", b"Accept: */*", b"accept: application/json", b"ACCEPT: text/html",
    b"Accept: application/json, text/event-stream;q=0.1", b"Accept-Encoding: gzip",
    b"Accept-Language: zh-CN", b"accept-language: en", b"Connection: keep-alive",
    b"Connection: close", b"Authorization: Bearer abc", b"Authorization: Basic abc",
    b'If-None-Match: "1"', b'If-None-Match: W/"3", "1"', b"If-None-Match: *", b"if-none-match: x",
    b"Idempotency-Key: @@KEY@@", b'Idempotency-Key: "@@KEY@@"', b'Idempotency-Key: "',
    b"X-Request-ID: r-1", b"X-Request-ID: r 1", b"traceparent: " + TRACE, b"traceparent: 00-bad",
    b"TraceParent:" + TRACE,
    b"Origin: http://localhost", b"Origin: https://evil.example", b"Sec-Fetch-Site: cross-site",
    b"Sec-Fetch-Site: same-origin", b"Prefer: respond-async", b"Prefer: wait=0", b"Cookie: a=b",
    b"Host: localhost", b"Host: 127.0.0.1:80", b"Content-Type: application/json",
    b"Content-Type: text/plain", b"Content-Length: 15", b"Content-Length: 0",
    b"Content-Encoding: gzip", b"Transfer-Encoding: chunked", b"Expect: 100-continue",
    b"Upgrade: websocket", b"X-Unknown: 1", b"No colon", b" folded", b"Space : 1", b"Empty:",
    b"User-Agent:  two", b"User-Agent: tab\t", b"User-Agent: \xff", b"User_Agent: x", b"X: \x00",
]  # fmt: skip
ORDINARY = [
    b"User-Agent: curl/8.5.0", b"Accept: */*", b"accept: application/json",
    b"Accept-Encoding: gzip", b"accept-language: en", b"Connection: keep-alive",
    b"X-Request-ID: r-1", b'If-None-Match: "3"', b'if-none-match: W/"3", "1"',
    b"traceparent: " + TRACE, b"Idempotency-Key: @@KEY@@",
]  # fmt: skip
HOSTS = [b"localhost", b"localhost:8000", b"127.0.0.1", b"[::1]:80", b"LOCALHOST", b"evil.example",
         b"localhost:99999", b"localhost.", b"127.0.0.1.", b"[::1", b"a b", b""]  # fmt: skip
BODIES = [
    b'{"node":"echo"}', b'{"node":"echo","inputs":{"a":[1,2.5e3,null]}}', b"{}", b"", b"[]",
    b' {\r\n "inputs" : {"x":"\xc3\xa9"} ,\t"node":"echo" }\n', b'{"node":"ecoh"}',
    b'{"node":"echo","priority":11,"dealy":1}', b'{"node":"echo","node":"echo"}',
    b'{"node":"echo","inputs":{"x":NaN}}', b'{"node":"echo","inputs":{"x":"\\ud800"}}',
    b'{"node":"http.request","inputs":{"url":"https://a","headers":{"a":"b"}}}', b'{"node":"\xff"}',
    b'{"node":"echo","tags":["a"],"metadata":{"b":1},"delay":1,"ttl":60,"priority":"low"}',
    b'{"node":"echo","inputs":{"x":"' + b"y" * 20_000 + b'"}}',
    b'{"node":"echo","inputs":{"x":"' + b"y" * 70_000 + b'"}}',
]  # fmt: skip
# A list of all tasks would be a longer one when the second process is asked.
NONE, NONE_EITHER = "/v1/tasks?tag=nobody", "/v1/tasks/?tag=nobody"
TARGETS = ["/v1/tasks/{}", "/v1/tasks/{}/", "/v1/tasks/{}?wait=0", "/v1/tasks/{}?format=node_state",
           "/v1/tasks//{}", "/v1/tasks/%74{}", "/v1/tasks/{}#a", NONE, NONE_EITHER,
           "/healthz", "/v1/nodes/echo", "http://localhost/v1/tasks/{}", "*"]  # fmt: skip
IDS = ["pending", "done", "failed", "t_01KEXAMPZE0123456789ABCDEF", "t_x", "x", "é"]
LINE_ENDS = st.sampled_from([b"\r\n"] * 9 + [b"\n"])


@st.composite
def plain_requests(draw: Any) -> bytes:
    """Return a request that is ordinary or nearly so; ``<name>`` stands for a task's id."""
    reads = draw(st.booleans())
    target = draw(st.sampled_from(TARGETS[:1] * 20 + TARGETS)) if reads else "/v1/tasks"
    name = draw(st.sampled_from(IDS[:3] * 4 + IDS))
    target = target.format(f"<{name}>" if name in IDS[:3] else name)
    methods = ["GET"] * 20 + ["HEAD", "get", "PUT", "OPTIONS", "POST", ""]
    method = draw(st.sampled_from(methods)) if reads else "POST"
    version = draw(st.sampled_from(["HTTP/1.1"] * 20 + ["HTTP/1.0", "HTTP/1.2", "http/1.1", ""]))
    lines = [b"Host: " + draw(st.sampled_from(HOSTS[:1] * 60 + HOSTS))]
    lines += draw(st.lists(st.sampled_from(ORDINARY * 3 + LINES), max_size=4))
    body = b""
    if not reads:
        body = draw(st.sampled_from(BODIES[:2] * 6 + BODIES))
        wrong = draw(st.sampled_from([0] * 20 + [-1, 1, 20]))
        types = [b"application/json"] * 9 + [b"Application/JSON; charset=UTF-8", b"text/plain"]
        lines.append(b"Content-Type: " + draw(st.sampled_from(types)))
        lines.append(b"Content-Length: %d" % max(len(body) + wrong, 0))
    lines = draw(st.permutations(lines))
    end = draw(LINE_ENDS)
    head = f"{method} {target} {version}".encode()
    return end.join([head, *lines, b"", b""]) + body


@st.composite
def broken_requests(draw: Any) -> bytes:
    """Return a request with one byte changed, gone or too many."""
    sent = draw(plain_requests())
    at = draw(st.integers(0, min(len(sent), 400) - 1))
    byte = draw(st.sampled_from([b"", b" ", b"\r", b"\n", b"\0", b":", b"a", b"9", b"\xe9", b"\t"]))
    return bytes(sent[:at] + byte + sent[at + draw(st.integers(0, 1)) :])


PIPELINES = st.lists(
    plain_requests() | plain_requests() | broken_requests(), min_size=1, max_size=3
)
CUTS = st.lists(st.integers(0, 400), max_size=3)


def told_apart(requests: Sequence[bytes], tasks: dict[str, str]) -> bytes:
    sent = b"".join(requests)
    for name, task_id in tasks.items():
        sent = sent.replace(f"<{name}>".encode(), task_id.encode())
    return sent


@settings(
    max_examples=1_000,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)
@pytest.mark.timeout(300)
@example([b"GET /v1/tasks/<done> HTTP/1.1\r\nHost: localhost\r\n\r\n"] * 3, [])
@given(PIPELINES, CUTS)
def test_lane_and_flask_give_the_same_bytes(
    pair: Pair, requests: list[bytes], cuts: list[int]
) -> None:
    """Status, headers in their order, body: for pipelines of odd and plain requests, cut up."""
    sent = told_apart(requests, pair.tasks)
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(sent)}), len(sent)]
    pieces = [sent[start:end] for start, end in pairwise(edges)]
    assert_same(pair, pieces)


# -- chosen requests -------------------------------------------------------------------------------


def test_every_outcome_of_the_lane_is_compared(pair: Pair) -> None:
    """200, 304 and 202, new and again, are what Flask answers too."""
    for task_id in pair.tasks.values():
        assert assert_same(pair, [poll(task_id)]).startswith(b"HTTP/1.1 200 OK\r\n")
        assert b" 200 OK" in assert_same(pair, [poll(task_id, b"traceparent: " + TRACE)])
    known = poll(pair.tasks["done"], b'If-None-Match: "3"')
    assert assert_same(pair, [known]).startswith(b"HTTP/1.1 304 NOT MODIFIED\r\n")
    assert assert_same(pair, [post()]).startswith(b"HTTP/1.1 202 ACCEPTED\r\n")
    keyed = post(b'{"node":"echo","inputs":{"a":1}}', b"Idempotency-Key: @@KEY@@")
    both = assert_same(pair, [keyed * 2])
    assert both.count(b"HTTP/1.1 202") == 2
    assert both.count(b"Idempotency-Replayed: true") == 1
    other = post(b'{"node":"echo","inputs":{"a":2}}', b"Idempotency-Key: @@KEY@@")
    assert b"HTTP/1.1 422" in assert_same(pair, [keyed + other])


def test_a_request_may_be_cut_anywhere(pair: Pair) -> None:
    """At every byte of head and body, in two packets, the answer is the same."""
    requests = [post(b'{"node":"echo"}', b"X-Request-ID: r"), poll(pair.tasks["done"])]
    for sent in requests:
        whole = masked(exchange(pair.plain, [sent]), sent)
        assert b"HTTP/1.1 20" in whole

        def cut(at: int, sent: bytes = sent, whole: bytes = whole) -> None:
            received = exchange(pair.lane, [sent[:at], sent[at:]], pause=0.02)
            assert masked(received, sent) == whole, at

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(cut, range(1, len(sent))))


def test_a_body_that_ends_early_makes_no_task(pair: Pair, hand: Hand) -> None:
    """The client leaves in the middle: 400 from both, nothing in the list."""
    before = hand.store.depths()["io.default"]
    for missing in (1, 8, 14, 15):
        short = post()[:-missing]
        head, body = short.split(b"\r\n\r\n")
        for pieces in ([short], [head + b"\r\n\r\n", body]):
            assert assert_same(pair, pieces).startswith(b"HTTP/1.1 400 ")
    assert hand.store.depths()["io.default"] == before


def test_a_client_that_resets_within_the_body_leaves_nothing(pair: Pair, hand: Hand) -> None:
    """No task, no traceback, and the server goes on."""
    before = hand.store.depths()["io.default"]
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", pair.lane.port)) as connection:
            connection.sendall(post()[:-3])
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert pair.lane.get("/healthz").status == 200
    assert hand.store.depths()["io.default"] == before
    assert "Traceback" not in pair.lane.log


def test_pipelined_requests_are_answered_in_order(pair: Pair) -> None:
    """Reads, a submit, and what only Flask serves, on one connection."""
    tasks = pair.tasks
    requests = [
        poll(tasks["done"], b"X-Request-ID: one"),
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: two\r\n\r\n",
        post(b'{"node":"echo"}', b"X-Request-ID: three"),
        post(b'{"node":"ecoh"}', b"X-Request-ID: four"),
        poll(tasks["pending"], b"X-Request-ID: five"),
        poll(tasks["pending"], b"X-Request-ID: six", b"Connection: close"),
    ]
    answers = assert_same(pair, [b"".join(requests)])
    names = re.findall(rb"X-Request-ID: (\w+)", answers)
    assert names == [b"one", b"two", b"three", b"four", b"five", b"six"]
    codes = re.findall(rb"HTTP/1.1 (\d+)", answers)
    assert codes == [b"200", b"200", b"202", b"422", b"200", b"200"]


def test_a_failure_is_reported_with_the_names_of_the_task(
    new_server: Callable[..., RedisServer], tmp_path: Path
) -> None:
    """A store that hangs: one asking, 503 in time, and the id under which the task appears."""
    server = new_server()
    process = Web(server.url, tmp_path / "log")
    process.start()
    try:
        wait_until(lambda: process.get("/readyz").json["checks"]["store"]["ok"])
        task_id = process.task()
        server.pause()
        started = time.monotonic()
        refused = process.submit(x_request_id="mine")
        read = process.get(f"/v1/tasks/{task_id}")
        assert time.monotonic() - started < 2.4
        server.resume()
        assert (refused.status, refused.code) == (503, "outcome_unknown")
        assert read.status == 503
        assert refused.headers["x-request-id"] == "mine"
        path = f"/v1/tasks/{refused.json['task_id']}"
        wait_until(lambda: process.get(path).status == 200)
        assert process.get(path).json["trace_id"] == refused.headers["traceparent"][3:35]
        with server.client() as client:
            assert client.llen("an.io.default") == 2
        metrics = process.get("/metrics").body.decode()
        assert 'async_nodes_submits_total{outcome="outcome_unknown"} 1.0' in metrics
    finally:
        server.resume()
        process.stop()


def test_the_record_has_the_trace_of_its_answer(pair: Pair) -> None:
    """The trace that the lane gives a submit without one is the task's."""
    answer = pair.lane.submit()
    record = pair.lane.get(f"/v1/tasks/{answer.json['task_id']}").json
    assert record["trace_id"] == answer.headers["traceparent"][3:35]


def test_a_large_record_comes_whole(pair: Pair, hand: Hand) -> None:
    """Some hundred kibibytes to a slow reader, then the next answer."""
    task_id = pair.lane.task(inputs={"x": "y" * 400_000})
    received = exchange(pair.lane, [poll(task_id) + poll(pair.tasks["done"])])
    assert received.count(b"HTTP/1.1 200 OK") == 2
    both = exchange(pair.plain, [poll(task_id) + poll(pair.tasks["done"])])
    assert masked(received, b"") == masked(both, b"")


def test_what_another_process_deleted_is_gone_at_once(pair: Pair, hand: Hand) -> None:
    """No read of an ended task outlives its DELETE, however often this process has shown it."""
    for _ in range(20):
        task_id = pair.lane.task()
        hand.done(task_id)
        path = f"/v1/tasks/{task_id}"
        connection = pair.lane.connect()
        try:
            for _ in range(3):
                assert web_processes.ask(connection, "GET", path).status == 200
            assert pair.plain.ask("DELETE", path).status == 204
            assert web_processes.ask(connection, "GET", path).status == 410
        finally:
            connection.close()


def test_many_connections_get_their_own_answers(pair: Pair) -> None:
    """Concurrent submits and reads are not mixed up."""

    def work(number: int) -> None:
        connection = pair.lane.connect()
        try:
            for turn in range(10):
                mark = f"{number}-{turn}"
                answer = web_processes.ask(
                    connection, "POST", "/v1/tasks",
                    b'{"node":"echo","inputs":{"mark":"%s"}}' % mark.encode(),
                    content_type="application/json", x_request_id=mark,
                )  # fmt: skip
                assert (answer.status, answer.headers["x-request-id"]) == (202, mark)
                path = answer.headers["location"]
                record = web_processes.ask(connection, "GET", path).json
                assert record["inputs"] == {"mark": mark}
                assert record["task_id"] == answer.json["task_id"]
        finally:
            connection.close()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


def test_with_a_key_lane_and_flask_refuse_the_same(one_server: RedisServer, tmp_path: Path) -> None:
    """The right key is served under any Host, any other gets the same 401."""
    processes: list[Web] = []
    for number, kind in enumerate((Web, PlainWeb)):
        process = kind(one_server.url, tmp_path / f"log{number}", ASYNC_NODES_API_KEY="s3cret")
        processes.append(process)
        process.start()
    try:
        key = {"authorization": "Bearer s3cret"}
        for process in processes:
            wait_until(lambda p=process: p.get("/readyz").json["checks"]["store"]["ok"])
        task_id = processes[0].submit(**key).json["task_id"]
        both = Pair(processes[0], processes[1], {})
        for line, status in (
            (b"Authorization: Bearer s3cret", b"200"),
            (b"authorization: bearer  s3cret", b"200"),
            (b"Authorization: Bearer s3cre", b"401"),
            (b"Authorization: Bearer s3crets", b"401"),
            (b"Authorization: s3cret", b"401"),
            (b"Accept: */*", b"401"),
        ):
            for _ in range(2):
                sent = poll(task_id, line).replace(b"localhost", b"api.example")
                assert b"HTTP/1.1 " + status in assert_same(both, [sent])
                assert_same(both, [post(b'{"node":"echo"}', line)])
    finally:
        for process in processes:
            process.stop()


def test_a_stopping_server_ends_its_answer_with_the_connection(
    one_server: RedisServer, tmp_path: Path
) -> None:
    """A read that the store answers after the signal is answered, with Connection: close."""
    process = Web(one_server.url, tmp_path / "log")
    process.start()
    wait_until(lambda: process.get("/readyz").json["checks"]["store"]["ok"])
    task_id = process.task()
    connection = process.connect()
    assert web_processes.ask(connection, "GET", f"/v1/tasks/{task_id}").status == 200
    one_server.pause()
    answers: list[Any] = []
    reading = threading.Thread(
        target=lambda: answers.append(web_processes.ask(connection, "GET", f"/v1/tasks/{task_id}"))
    )
    reading.start()
    time.sleep(0.1)
    assert process.process is not None
    process.process.terminate()
    time.sleep(0.2)
    one_server.resume()
    reading.join(5)
    assert process.process.wait(10) == 0
    process.stop()
    assert answers[0].status == 200
    assert answers[0].headers["connection"] == "close"
    connection.close()
