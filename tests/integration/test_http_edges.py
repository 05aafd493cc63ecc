"""The edges of the HTTP interface: bodies, limits, methods, languages, and the service's routes."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

import pytest

from async_nodes.core.errors import CATALOGUE
from tests.integration.web import (
    WORKER,
    Answer,
    Hand,
    Web,
    _web_log,
    _web_process,
    ask,
    hand,
    wait_until,
    web,
)

__all__ = ["_web_log", "_web_process", "hand", "web"]

JSON = "application/json"
MIB = 1 << 20
CHUNKED = b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def post(web: Web, raw: bytes, **headers: str) -> Answer:
    return web.ask("POST", "/v1/tasks", raw, **{"content_type": JSON, **headers})


def raw_exchange(web: Web, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send bytes as they are and return everything that comes back."""
    with socket.create_connection(("127.0.0.1", web.port), timeout=10) as connection:
        try:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause)
        except OSError:
            pass  # refused before everything was sent
        received = b""
        try:
            while data := connection.recv(65536):
                received += data
        except ConnectionResetError:
            pass
        return received


def problem_in(received: bytes) -> dict[str, Any]:
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, received[:500]
    found: dict[str, Any] = json.loads(body)
    assert f" {found['status']} ".encode() in head.split(b"\r\n")[0]
    return found


# -- bodies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (b'{"node":"echo","inputs":{"x":NaN}}', "/inputs/x"),
        (b'{"node":"echo","inputs":{"x":[0,{"y":Infinity}]}}', "/inputs/x/1/y"),
        (b'{"node":"echo","inputs":{"x":-Infinity}}', "/inputs/x"),
        (b'{"node":"echo","inputs":{"x":1e999}}', "/inputs/x"),
        (b'{"node":"echo","metadata":{"a":{"b":NaN}}}', "/metadata/a/b"),
        (b'{"node":"echo","node":"echo"}', "/node"),
        (b'{"node":"echo","inputs":{"x":"\\ud800"}}', "/inputs/x"),
        (b'{"node":"echo","inputs":{"x":' + b"1" * 5_000 + b"}}", "/inputs/x"),
        (b'{"node":"echo"', ""),
        (b"", ""),
        (b"\xef\xbb\xbf{}", ""),
        (b'{"node":"\xff"}', ""),
        (b'{"node":"echo"} x', ""),
        (b"[" * 20_000, "/0"),
        (b"{" + b",".join(b'"k%d":0' % n for n in range(100_000 // 2)) + b"}", ""),
    ],
)
def test_what_is_not_strict_json_is_refused(web: Web, hand: Hand, raw: bytes, pointer: str) -> None:
    """400 with the pointer of the place, nothing stored, and the server goes on."""
    answer = post(web, raw)
    assert (answer.status, answer.code) == (400, "not_json")
    shown = answer.json
    assert shown["pointer"].startswith(pointer)
    assert shown["errors"][0]["pointer"] == shown["pointer"]
    assert hand.store.depths()["io.default"] == 0
    assert web.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("members", "code", "pointers"),
    [
        ({"node": "ecoh"}, "unknown_node", ["/node"]),
        ({}, "invalid_request", ["/node"]),
        ({"node": "http.request"}, "invalid_inputs", ["/inputs/url"]),
        ({"node": "echo", "priority": 11}, "invalid_request", ["/priority"]),
        ({"node": "echo", "priority": -1}, "invalid_request", ["/priority"]),
        ({"node": "echo", "priority": "x"}, "invalid_request", ["/priority"]),
        ({"node": "echo", "dealy": 1, "ttl": 0}, "invalid_request", ["/dealy", "/ttl"]),
    ],
)
def test_what_is_well_formed_but_wrong_is_refused(
    web: Web, members: dict[str, Any], code: str, pointers: list[str]
) -> None:
    """422 with every fault, and a suggestion where a name is near."""
    answer = web.submit(members)
    assert (answer.status, answer.code) == (422, code)
    assert [fault["pointer"] for fault in answer.json["errors"]] == pointers
    if code == "unknown_node":
        assert answer.json["suggestion"] == "echo"


def test_priorities_go_to_their_lists(web: Web, hand: Hand) -> None:
    """0 to 2 and high, 3 to 6 and default, 7 to 9 and low."""
    for priority in (*range(10), "low", "default", "high"):
        assert web.submit({"node": "echo", "priority": priority}).status == 202
    depths = hand.store.depths()
    assert (depths["io.high"], depths["io.default"], depths["io.low"]) == (4, 5, 4)
    record = web.get(f"/v1/tasks/{web.task(priority='high')}").json
    assert record["priority"] == 0


def test_a_body_of_a_mebibyte_is_the_most(web: Web) -> None:
    """Exactly 1 MiB is accepted; one byte more is 413, declared or chunked, unread or read."""
    frame = b'{"node":"echo","inputs":{"x":"%s"}}'
    full = frame % (b"x" * (MIB - len(frame) + 2))
    assert len(full) == MIB
    assert post(web, full).status == 202
    over = full.replace(b"x", b"xx", 1)
    assert post(web, over).code == "body_too_large"
    connection = web.connect()
    connection.request("POST", "/v1/tasks", iter([over]), {"Content-Type": JSON})
    response = connection.getresponse()
    assert response.status == 413
    assert json.loads(response.read())["code"] == "body_too_large"
    connection.close()
    huge = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    huge += b"Content-Length: 99999999999\r\n\r\n"
    started = time.monotonic()
    assert problem_in(raw_exchange(web, huge, b"x" * 5 * MIB))["code"] == "body_too_large"
    assert time.monotonic() - started < 8


def test_a_chunked_body_is_a_body(web: Web) -> None:
    """Sent in pieces, even of one byte, it is read like any other."""
    connection = web.connect()
    pieces = (b'{"no', b"de", b'":"echo"', b"}")
    connection.request("POST", "/v1/tasks", iter(pieces), {"Content-Type": JSON})
    response = connection.getresponse()
    assert response.status == 202
    response.read()
    assert ask(connection, "GET", "/healthz").status == 200
    connection.close()


def test_a_body_in_a_later_packet_is_awaited(web: Web) -> None:
    """Head and body may come apart; a client that asks for 100 Continue gets it."""
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Connection: close\r\nContent-Length: 15\r\n"
    received = raw_exchange(web, head + b"\r\n", b'{"node":"echo"}', pause=0.2)
    assert received.startswith(b"HTTP/1.1 202")
    head += b"Expect: 100-continue\r\n\r\n"
    received = raw_exchange(web, head, b'{"node":"echo"}', pause=0.2)
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202")


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data"]
)
def test_a_body_of_another_type_is_refused(web: Web, hand: Hand, content_type: str) -> None:
    """What a web page can send without asking makes no task."""
    answer = post(web, b'{"node":"echo"}', content_type=content_type)
    assert (answer.status, answer.code) == (415, "not_acceptable_type")
    assert hand.store.depths()["io.default"] == 0


@pytest.mark.parametrize(
    "sent",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + b"X: y\r\n" * 4_000 + b"\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"zz\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"2\r\n{xx\r\n",
    ],
)
def test_what_is_not_http_is_a_problem_too(web: Web, sent: bytes) -> None:
    """400 as a problem, one plain line in the log, and the server goes on."""
    before = len(web.log)
    assert problem_in(raw_exchange(web, sent))["code"] == "bad_request"
    wait_until(lambda: len(web.log) > before)
    assert all(line.isprintable() for line in web.log[before:].splitlines())
    assert "Traceback" not in web.log
    assert web.get("/healthz").status == 200


def test_headers_of_sixteen_kibibytes_are_read(web: Web) -> None:
    """The bound is on the whole head, and a usual head is far below it."""
    assert web.get("/healthz", x_long="y" * 15_000).status == 200


# -- names and languages ---------------------------------------------------------------------------


def test_every_answer_has_its_names(web: Web) -> None:
    """A trace and a request id, made where the client sent none that is valid."""
    for path in ("/healthz", "/v1/nodes", "/nothing"):
        answer = web.get(path, traceparent="00-bad", x_request_id="a b")
        assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-00", answer.headers["traceparent"])
        assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])
    problem = web.get("/nothing")
    assert problem.json["trace_id"] == problem.headers["traceparent"][3:35]


def test_a_forged_request_id_makes_one_plain_line(web: Web) -> None:
    """Control characters and 8 kB of text are replaced, in the answer and in the log."""
    before = len(web.log)
    for forged in ("a\x1b[31mb", "x" * 8_000, "a\tb"):
        answer = web.get("/nothing", x_request_id=forged)
        assert len(answer.headers["x-request-id"]) == 16
    wait_until(lambda: web.log[before:].count("\n") == 3)
    assert all(line.isprintable() and len(line) < 300 for line in web.log[before:].splitlines())


def test_problems_speak_the_readers_language(web: Web) -> None:
    """Title and hint in Chinese or English; the code is the same."""
    chinese = web.get("/v1/tasks/x", accept_language="zh-CN,zh;q=0.9")
    english = web.get("/v1/tasks/x", accept_language="de, en")
    assert chinese.json["title"] == CATALOGUE["task_not_found"].title_zh
    assert english.json["title"] == CATALOGUE["task_not_found"].title
    assert (chinese.headers["content-language"], chinese.headers["vary"]) == (
        "zh", "Accept-Language",
    )  # fmt: skip


# -- methods and routes ----------------------------------------------------------------------------


def test_a_wrong_method_names_the_right_ones(web: Web) -> None:
    """405 with Allow; an address that there is not is 404; both are problems."""
    answer = web.ask("DELETE", "/v1/tasks")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert web.ask("PUT", "/v1/tasks/x/cancel").code == "method_not_allowed"
    assert web.ask("PROPFIND", "/healthz").code == "method_not_allowed"
    assert web.get("/nothing").code == "not_found"
    assert web.get("/v2/tasks").code == "not_found"


def test_head_and_options_are_answered(web: Web) -> None:
    """HEAD is GET without its body; OPTIONS tells the methods; neither starts anything."""
    task_id = web.task()
    head = web.ask("HEAD", f"/v1/tasks/{task_id}")
    full = web.get(f"/v1/tasks/{task_id}")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == full.headers["content-length"]
    assert head.headers["etag"] == '"1"'
    stream = web.ask("HEAD", f"/v1/tasks/{task_id}/events")
    assert (stream.status, stream.body) == (200, b"")
    options = web.ask("OPTIONS", "/v1/tasks")
    assert options.status == 200
    assert set(options.headers["allow"].split(", ")) == {"GET", "HEAD", "OPTIONS", "POST"}


def test_nodes_are_listed_with_their_schemas(web: Web) -> None:
    """Every built-in node, its kind, and the JSON schema of its inputs."""
    nodes = {node["name"]: node for node in web.get("/v1/nodes").json["nodes"]}
    assert {"echo", "http.request", "llm.chat", "text.chunk"} <= nodes.keys()
    assert nodes["text.chunk"]["kind"] == "cpu"
    assert nodes["llm.chat"]["streams"] is True
    assert nodes["http.request"]["redacts"] == ["headers"]
    assert nodes["http.request"]["inputs"]["required"] == ["url"]
    assert web.get("/v1/nodes/llm.chat").json == nodes["llm.chat"]
    unknown = web.get("/v1/nodes/llm.caht")
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert unknown.json["suggestion"] == "llm.chat"


def test_a_secret_input_is_in_no_answer(web: Web, hand: Hand) -> None:
    """Record and events show that it was there; the worker gets it."""
    secret = {"authorization": "Bearer s3cret"}
    inputs = {"url": "https://example.org", "headers": secret}
    task_id = web.submit({"node": "http.request", "inputs": inputs}).json["task_id"]
    claim = hand.claim(task_id)
    assert b"s3cret" in claim.private
    hand.finish(claim)
    record = web.get(f"/v1/tasks/{task_id}")
    assert record.json["inputs"]["headers"] == "[redacted]"
    assert b"s3cret" not in record.body + web.get(f"/v1/tasks/{task_id}/events").body


def test_ready_means_store_and_both_kinds_of_worker(web: Web, hand: Hand) -> None:
    """503 names what is missing; 200 when a worker of each kind has a lease."""
    answer = web.get("/readyz")
    assert (answer.status, answer.json["missing"]) == (503, ["cpu"])
    assert answer.json["checks"]["io"] == {"ok": True, "detail": "ok", "workers": 1}
    hand.store.register("cpu-7-00000000")
    assert web.get("/readyz").status == 200
    assert web.get("/readyz").json["status"] == "ready"
    hand.store.retire(WORKER)
    assert web.get("/readyz").json["missing"] == ["io"]


def test_metrics_count_what_happened(web: Web, hand: Hand) -> None:
    """Requests by route, submits and polls by outcome, the lists by priority, the workers."""
    task_id = web.task(priority="high")
    web.get(f"/v1/tasks/{task_id}", if_none_match='"1"')
    web.get("/v1/tasks/x")
    web.submit({"node": "echo", "ttl": 0})
    answer = web.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = answer.body.decode()
    for sample in (
        'async_nodes_queue_depth{priority="high",queue="io"} 1.0',
        'async_nodes_queue_depth{priority="low",queue="cpu"} 0.0',
        'async_nodes_workers{kind="io"} 1.0',
        'async_nodes_workers{kind="cpu"} 0.0',
        "async_nodes_store_up 1.0",
        "async_nodes_sse_subscribers 0.0",
    ):
        assert sample in text
    for pattern in (
        r'async_nodes_submits_total{outcome="accepted"} [1-9]',
        r'async_nodes_submits_total{outcome="invalid_request"} [1-9]',
        r'async_nodes_polls_total{outcome="not_modified"} [1-9]',
        r'async_nodes_polls_total{outcome="task_not_found"} [1-9]',
        r'_count{method="GET",route="/v1/tasks/<task_id>",status="304"} [1-9]',
        r"async_nodes_build_info{.*} 1.0",
    ):
        assert re.search(pattern, text), pattern
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert all(name.startswith("async_nodes_") for name in names)
    assert task_id not in text


def test_made_up_methods_and_paths_make_no_new_series(web: Web) -> None:
    """What a stranger sends cannot make the metrics grow."""
    for n in range(5):
        web.ask(f"X{n}", f"/made/up/{n}")
    text = web.get("/metrics").body.decode()
    assert "made/up" not in text
    assert 'method="other",route="unmatched"' in text


def test_every_problem_has_a_page(web: Web) -> None:
    """JSON for programs, a page in two languages for browsers, 404 for a code there is not."""
    listed = [kind["code"] for kind in web.get("/problems").json["problems"]]
    assert listed == list(CATALOGUE)
    for code in ("poison", "not_json"):
        kind = CATALOGUE[code]
        assert web.get(f"/problems/{code}").json["title"] == {"en": kind.title, "zh": kind.title_zh}
        page = web.get(f"/problems/{code}", accept="text/html,*/*;q=0.8", accept_language="zh")
        assert page.headers["content-type"].startswith("text/html")
        assert f"<h1>{kind.title_zh}</h1>" in page.body.decode()
        assert "script" not in page.body.decode()
    assert web.get("/problems/%3Cscript%3E").code == "not_found"


# -- who may call ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example:80"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec_fetch_site": "cross-site"},
    ],
)
def test_web_pages_may_not_use_a_keyless_server(
    web: Web, hand: Hand, headers: dict[str, str]
) -> None:
    """403 for every route but the two probes; nothing is stored, nothing cancelled."""
    task_id = web.task()
    assert web.submit(**headers).code == "forbidden_origin"
    for method, path in (
        ("GET", f"/v1/tasks/{task_id}"), ("POST", f"/v1/tasks/{task_id}/cancel"),
        ("GET", "/metrics"), ("GET", "/openapi.json"), ("GET", "/nothing"),
    ):  # fmt: skip
        assert web.ask(method, path, None, **headers).code == "forbidden_origin", path
    assert web.get("/healthz", **headers).status == 200
    assert web.get("/readyz", **headers).status == 503
    assert hand.store.depths()["io.default"] == 1
