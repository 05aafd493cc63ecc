"""Dify's plugin before a service that fails: slow, cut off, overloaded, away, or something else."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import dify_service as s
from tests.acceptance.dify_driver import Answer, Piped, tool_call
from tests.acceptance.dify_environment import PLUGIN, dify_python
from tests.acceptance.dify_service import TASK, Service, answer, event, events

pytestmark = [pytest.mark.needs("python3.12"), pytest.mark.timeout(120)]

READ, EVENTS = f"GET /v1/tasks/{TASK}", f"GET /v1/tasks/{TASK}/events"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Piped]:
    """Return the plugin, started and ready."""
    driver = Piped(dify_python(), PLUGIN, tmp_path_factory.mktemp("plugin") / "log")
    try:
        assert driver.heard.wait(60)
        yield driver
    finally:
        driver.close()


@pytest.fixture
def service() -> Iterator[Service]:
    """Return a service that takes a task, and streams its end at once."""
    found = Service()
    found.on(EVENTS, events(s.DONE))
    with found.running():
        yield found


Run = Callable[..., Answer]


@pytest.fixture
def run(plugin: Piped, service: Service) -> Run:
    """Return a function that calls a tool, ``run_task`` unless another is named."""

    def call(tool: str = "run_task", key: str = "", **parameters: Any) -> Answer:
        credentials = {"base_url": service.url, "api_key": key}
        given = {"node": "n", **parameters} if tool == "run_task" else parameters
        return plugin.tool(tool, credentials, **given)

    return call


# -- what is streamed ------------------------------------------------------------------------------


def test_text_is_passed_on_while_more_of_it_comes(plugin: Piped, service: Service) -> None:
    """Also where its pieces follow each other closely, as those of a model do."""
    pieces: list[bytes | float] = []
    for n in range(60):
        pieces += [event("chunk", {"text": "x", "attempt": 1}, f"1-{n}"), 0.02]
    service.on(EVENTS, events(*pieces, s.DONE))
    call = plugin.start(**tool_call("run_task", {"base_url": service.url}, node="n"))

    texts = [one for one in plugin.pieces(call) if one["data"].get("type") == "variable"]
    streamed = [one for one in texts if one["data"]["message"].get("stream")]

    assert sum(len(one["data"]["message"]["variable_value"]) for one in streamed) == 60
    assert len(streamed) >= 5


@pytest.mark.parametrize("size", [1 << 20, 7 << 20])
def test_a_huge_piece_stays_within_a_line(
    run: Run, plugin: Piped, service: Service, size: int
) -> None:
    """The daemon would end the plugin that writes more than 5 MiB in one."""
    service.on(EVENTS, events(event("chunk", {"text": "\x01" * size, "attempt": 1}), s.DONE))

    found = run()

    assert found.error is None
    assert len(found.variables["stream_text"]) == size
    assert plugin.longest < 5 << 20


def test_ten_thousand_pieces_arrive_in_their_order(run: Run, service: Service) -> None:
    """Whatever the service had to say at once."""
    pieces = [event("chunk", {"text": f"{n},", "attempt": 1}, f"1-{n}") for n in range(10_000)]
    service.on(EVENTS, events(b"".join(pieces), s.DONE))

    assert run().variables["stream_text"] == "".join(f"{n}," for n in range(10_000))


def test_what_is_cut_off_is_asked_for_again(run: Run, service: Service) -> None:
    """From the last event that was whole, also one that was cut in the middle."""
    first = event("chunk", {"text": "a", "attempt": 1}, "1-1")
    second = event("chunk", {"text": "b", "attempt": 1}, "1-2")
    service.on(
        EVENTS, events(first, second[:25], whole=False), events(second[:40]), events(second, s.DONE)
    )

    found = run()

    assert found.error is None
    assert found.variables["stream_text"] == "ab"
    assert service.count(EVENTS) == 3


@pytest.mark.parametrize(
    "odd",
    [
        event("chunk", {"data": {"a": 1}, "attempt": 1}),
        event("chunk", [1]),
        event("something", {"new": 1}),
        b"event: chunk\ndata: {broken\n\n",
        b"event: progress\ndata: <html>\n\n",
        b": ping\n\n",
        b"data\n\n",
        b"\xff\xfe\n\n",
        b"event: state\r\ndata: {}\r\n\r\n",
    ],
)
def test_what_is_no_text_is_passed_over(run: Run, service: Service, odd: bytes) -> None:
    """Data, kinds that are not known yet, comments and rubbish between what is meant."""
    text = event("chunk", {"text": "a", "attempt": 1}, "1-7")
    service.on(EVENTS, events(odd, text, odd, s.DONE))

    found = run()

    assert found.error is None
    assert found.variables["stream_text"] == "a"
    assert found.text == "good"


def test_another_attempt_begins_anew(run: Run, service: Service) -> None:
    """What was streamed cannot be taken back: an empty line stands between."""
    attempts = [event("chunk", {"text": t, "attempt": a}) for t, a in (("on", 1), ("one", 2))]
    service.on(EVENTS, events(*attempts, s.DONE))

    assert run().variables["stream_text"] == "on\n\none"


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_stream_that_is_not_given_is_asked_for_again(
    run: Run, service: Service, status: int
) -> None:
    """The task goes on meanwhile, so that is no reason to fail."""
    refused = answer(status, b"<html><body>Bad gateway</body></html>")
    service.on(EVENTS, refused, refused, events(s.DONE))

    assert run().text == "good"


@pytest.mark.parametrize(("status", "kind"), [(410, "NotFound"), (401, "Unauthorized")])
def test_a_task_that_is_gone_ends_the_wait(
    run: Run, service: Service, status: int, kind: str
) -> None:
    """Removed meanwhile, or a key that was."""
    service.on(EVENTS, answer(status, {"code": "gone", "detail": "it was removed"}))

    found = run()

    assert found.error["error_type"] == f"AsyncNodes{kind}"
    assert "it was removed" in found.error["message"]


def test_nothing_is_left_behind_after_its_time(run: Run, service: Service) -> None:
    """The service sees the connection closed, so that it sends to nobody."""
    pieces: list[bytes | float] = [event("state", {"state": "Running", "attempt": 1})]
    service.on(EVENTS, events(*pieces, *[b": ping\n\n", 0.1] * 200))

    found = run(timeout_seconds=1)

    assert (found.error, found.variables["status"]) == (None, "running")
    assert service.ended.wait(3)


def test_what_is_known_is_returned_where_nobody_answers_at_the_end(
    run: Run, service: Service
) -> None:
    """An error would take the task's id along."""
    service.on(EVENTS, events(event("state", {"state": "Running", "attempt": 1}), 2.0))
    service.on(READ, answer(503, b"<html>", Retry_After="60"))

    found = run(timeout_seconds=1)

    assert found.error is None
    assert (found.variables["status"], found.variables["task_id"]) == ("running", TASK)
    assert found.seconds < 10


# -- what is asked once ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "refusal",
    [
        answer(429, {"code": "overloaded", "detail": "full"}, Retry_After="1"),
        answer(429, {"code": "overloaded", "detail": "full"}, Retry_After="0"),
        answer(503, b"", Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
        answer(503, b"", Retry_After="nan"),
        answer(502, b"<html><body><h1>502 Bad Gateway</h1></body></html>"),
    ],
    ids=range(5),
)
def test_what_passes_is_tried_again_with_one_key(
    run: Run, service: Service, refusal: s.Give
) -> None:
    """And not in a hurry: whatever stands in Retry-After."""
    accepted = answer(201, {"task_id": TASK, "state": "Pending"})
    service.on("POST /v1/tasks", refusal, refusal, accepted)

    found = run()

    assert found.text == "good"
    assert found.seconds > 0.4
    keys = {sent["Idempotency-Key"] for how, _, sent in service.asked if how == "POST"}
    assert (service.count("POST /v1/tasks"), len(keys)) == (3, 1)


def test_a_refusal_that_lasts_is_told_at_once(run: Run, service: Service) -> None:
    """Where the service names a time that is too long to wait."""
    problem = {"code": "overloaded", "detail": "the queue is full"}
    service.on("POST /v1/tasks", answer(429, problem, Retry_After="3600"))

    found = run()

    assert found.error["error_type"] == "AsyncNodesOverloaded"
    assert "the queue is full" in found.error["message"]
    assert found.seconds < 3


def test_an_overload_without_a_time_is_not_stormed(run: Run, service: Service) -> None:
    """A quarter of a minute has room for some tries, not for thousands."""
    service.on("POST /v1/tasks", answer(503, b"", Retry_After="0"))

    assert run().error["error_type"] == "AsyncNodesOverloaded"
    assert service.count("POST /v1/tasks") < 15


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (answer(302, b"", Location="https://new.example/v1/tasks"), "moved to https://new.example"),
        (answer(200, b"<html>Dify</html>"), "not as async_nodes does"),
        (answer(200, b""), "not as async_nodes does"),
        (answer(200, []), "not as async_nodes does"),
        (answer(200, {"data": 1}), "not as async_nodes does"),
        (answer(400, b"<html><style>a{}</style><p>Bad <b>Request</b>"), "400: Bad Request"),
        (answer(400, {"code": "x", "detail": None}), "x"),
        (answer(418, b"\xff" * 1000), "418"),
    ],
    ids=range(8),
)
def test_what_is_no_service_is_named(run: Run, service: Service, given: s.Give, says: str) -> None:
    """A page, a redirect, another API: a sentence that helps, of a class of this plugin."""
    service.on("POST /v1/tasks", given)

    found = run()

    assert found.error["error_type"].startswith("AsyncNodes")
    assert says in found.error["message"]
    assert "<" not in found.error["message"].partition("It said")[0]


# -- what is typed ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://host:99999",
        "http://host:x",
        "http://a b",
        "http://host/v1?x=1",
        "http://user:pw@host",
        "http://",
        "ftp://host",
        "http://host\n.evil",
        "//host",
        "http://ho\x00st",
    ],
)
def test_an_address_that_is_none_is_named(plugin: Piped, url: str) -> None:
    """Beside the form in which it was typed, at once."""
    found = plugin.call(
        type="tool",
        action="validate_tool_credentials",
        provider="async_nodes",
        credentials={"base_url": url},
    )

    assert found.error["error_type"] == "ToolProviderCredentialValidationError"
    assert "must look like http://host:8000" in found.error["message"]


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", " "])
def test_an_address_may_have_more(run: Run, service: Service, path: str) -> None:
    """What people copy along is left out."""
    service.url += path

    assert run().text == "good"


def test_a_service_below_a_path_is_reached(run: Run, service: Service) -> None:
    """Behind a proxy that gives it one."""
    service.answers = {
        what.replace("/v1", "/nodes/v1"): how for what, how in service.answers.items()
    }
    service.url += "/nodes/"

    assert run().text == "good"


def test_a_service_at_an_address_of_six_is_reached(plugin: Piped) -> None:
    """In brackets, as such addresses are written."""
    found = Service(host="::1")
    found.on(EVENTS, events(s.DONE))
    with found.running():
        assert plugin.tool("run_task", {"base_url": found.url}, node="n").text == "good"


@pytest.mark.parametrize("key", ["a b", "a\nb: c", "ключ", "密钥", "a\x00b", "a\r\nX: 1"])
def test_a_key_that_is_none_is_named(run: Run, service: Service, key: str) -> None:
    """Before anything is sent; the key is not in the message."""
    found = run(key=key)

    assert found.error["error_type"] == "AsyncNodesInvalidInput"
    assert "API key" in found.error["message"]
    assert key not in found.error["message"]
    assert service.asked == []


def test_a_key_with_spaces_around_it_is_taken(run: Run, service: Service) -> None:
    """As it comes out of a text that was copied."""
    assert run(key=" the-key\n").text == "good"
    assert service.asked[0][2]["Authorization"] == "Bearer the-key"


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("run-1-summary", "run-1-summary"),
        ("运行-总结", None),
        ("with spaces", None),
        ("x" * 256, None),
        ('"quoted', None),
        ("two\nlines", None),
    ],
)
def test_any_text_is_an_idempotency_key(
    run: Run, service: Service, key: str, sent: str | None
) -> None:
    """What no header can hold is sent as its digest, always the same."""
    assert run(idempotency_key=key).error is None
    assert run(idempotency_key=key).error is None

    keys = {head["Idempotency-Key"] for how, _, head in service.asked if how == "POST"}
    assert len(keys) == 1
    assert keys == {sent} if sent else keys.pop().startswith("sha256-")


def test_a_certificate_that_nobody_knows_is_explained(plugin: Piped, tmp_path: Path) -> None:
    """With what to do about it, and without words about containers."""
    import ssl

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
    subprocess.run([*made, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Service(tls=context).running() as service:
        found = plugin.tool("get_task", {"base_url": service.url}, task_id=TASK)

    assert found.error["error_type"] == "AsyncNodesUnavailable"
    assert "SSL_CERT_FILE" in found.error["message"]
    assert "container itself" not in found.error["message"]
    assert found.seconds < 5


# -- what comes out --------------------------------------------------------------------------------

DEEP: Any = "bottom"
for _ in range(90):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "output",
    [
        None,
        False,
        0,
        "",
        [],
        {},
        [None, {"a": []}],
        1e300,
        -(2**63),
        "\u2028\x85\x00\x1b",
        "😀 文",
        DEEP,
        {"": {"": ""}},
        {"file_id": "f_" + "0" * 26, "size": "many", "name": 5, "media_type": None},
        [{"file_id": "f_" + "0" * 26}] * 20,
        {"file_id": ["f_"]},
    ],
)
def test_any_output_comes_out_as_it_is(run: Run, service: Service, output: Any) -> None:
    """An object as the variable `result`, anything else as its member `value`."""
    service.on(EVENTS, events(event("done", s.record(output=output))))

    found = run()

    assert found.error is None
    wanted = output if isinstance(output, dict) else {"value": output}
    assert found.variables["result"] == wanted
    assert found.of("json")[0]["json_object"]["result"] == wanted


def test_half_a_character_is_named_before_it_is_sent(run: Run, service: Service) -> None:
    """It is no text for any service."""
    found = run(inputs_json=r'{"a": "\ud800"}')

    assert found.error["error_type"] == "AsyncNodesInvalidInput"
    assert service.asked == []


@pytest.mark.parametrize(
    "parameters",
    [
        {"timeout_seconds": "ten"},
        {"timeout_seconds": True},
        {"timeout_seconds": [5]},
        {"timeout_seconds": "nan"},
        {"timeout_seconds": "1e999"},
        {"priority": "5.5"},
        {"priority": "high"},
        {"mode": ["wait"]},
        {"mode": True},
        {"mode": {}},
        {"node": ["n"]},
        {"node": {"a": 1}},
        {"inputs_json": "[]"},
        {"inputs_json": ["{}"]},
        {"inputs_json": True},
        {"inputs_json": 5},
        {"inputs_json": {"a": float("nan")}},
        {"inputs_json": '{"a": NaN}'},
        {"files": "a"},
        {"files": [1]},
        {"tags": ["a"]},
        {"tags": {"a": 1}},
        {"expire_seconds": -1},
        {"stream": "loud"},
    ],
)
def test_a_parameter_of_the_wrong_kind_is_named(
    run: Run, service: Service, parameters: dict[str, Any]
) -> None:
    """In one sentence with its name; nothing is sent."""
    found = run(**parameters)

    assert found.error["error_type"] == "AsyncNodesInvalidInput", found.error
    assert next(iter(parameters)) in found.error["message"] or "inputs" in found.error["message"]
    assert "\n" not in found.error["message"]
    assert service.count("POST /v1/tasks") == 0


@pytest.mark.parametrize(
    ("parameters", "inputs"),
    [
        ({"inputs_json": {"a": 1}}, {"a": 1}),
        ({"inputs_json": ""}, {}),
        ({"inputs_json": None}, {}),
        ({"text": 0}, {"text": "0"}),
        ({"text": False}, {"text": "false"}),
        ({"text": {"a": "é"}}, {"text": '{"a": "é"}'}),
        ({"text": ["a", 1]}, {"text": '["a", 1]'}),
        ({"timeout_seconds": "5", "priority": 3.0, "files": []}, {}),
    ],
)
def test_a_parameter_is_taken_as_dify_gives_it(
    run: Run, service: Service, parameters: dict[str, Any], inputs: dict[str, Any]
) -> None:
    """Numbers as text, objects as such, nothing as nothing."""
    assert run(**parameters).error is None
    assert json.loads(service.bodies[0])["inputs"] == inputs


# -- files -----------------------------------------------------------------------------------------


def dify_file(url: str, **more: Any) -> dict[str, Any]:
    """Return a file as Dify hands it over."""
    found = {"dify_model_identity": "__dify__file__", "url": url, "type": "document", "size": 1}
    return {**found, "mime_type": None, "filename": None, "extension": None, **more}


@pytest.fixture
def takes_files(service: Service) -> Service:
    """Return a service whose node takes files."""
    file_id = "f_" + "0" * 26
    service.on("GET /v1/nodes/n", answer(200, {"inputs": {"properties": {"file": LIST}}}))
    service.on("POST /v1/files", answer(201, {"file_id": file_id}))
    service.on("GET /empty", answer(200, b""))
    service.on("GET /large", answer(200, b"x" * (60 << 20)))
    service.on("GET /gone", answer(403, b"expired"))
    return service


LIST = {"type": "array", "items": {"type": "string"}}


def test_files_of_every_kind_are_handed_over(run: Run, takes_files: Service) -> None:
    """Empty, large, without a name, two with one name, with a name that is no header."""
    base = takes_files.url
    files = [
        dify_file(f"{base}/empty"),
        dify_file(f"{base}/empty", filename="报告 & co.pdf", mime_type="application/pdf"),
        dify_file(f"{base}/empty", filename="报告 & co.pdf"),
        dify_file(f"{base}/large", filename="x" * 400),
    ]

    found = run(files=files)

    assert found.error is None
    assert takes_files.count("POST /v1/files") == 4
    assert json.loads(takes_files.bodies[-2])["inputs"] == {"file": ["f_" + "0" * 26] * 4}


def test_a_file_that_comes_slowly_is_awaited(run: Run, takes_files: Service) -> None:
    """Longer than the SDK would by itself."""
    empty = answer(200, b"")

    def slowly(request: Any) -> None:
        time.sleep(6)
        empty(request)

    takes_files.on("GET /slow", slowly)

    assert run(files=[dify_file(f"{takes_files.url}/slow")]).error is None


@pytest.mark.parametrize("path", ["/gone", "/nowhere", "no-url"])
def test_no_task_is_submitted_without_its_file(run: Run, takes_files: Service, path: str) -> None:
    """One whose address has expired is named."""
    url = takes_files.url + path if path.startswith("/") else path

    found = run(files=[dify_file(url, filename="report.pdf")])

    assert found.error["error_type"] == "AsyncNodesInvalidInput"
    assert "report.pdf" in found.error["message"]
    assert takes_files.count("POST /v1/tasks") == 0


# -- many ------------------------------------------------------------------------------------------


def batch_of(service: Service, count: int) -> list[str]:
    """Make a service that takes so many tasks; return their ids."""
    ids = [f"t_{n:026d}" for n in range(count)]
    results = [{"status": 201, "task_id": one, "state": "Pending"} for one in ids]
    service.on("POST /v1/tasks/batch", answer(200, {"results": results}))
    return ids


def listing(*tasks: dict[str, Any], missing: list[str] | None = None, left: Any = ()) -> s.Give:
    return answer(200, {"tasks": tasks, "next": None, "missing": missing or [], "left": [*left]})


def test_a_task_of_a_batch_that_is_gone_is_not_awaited(run: Run, service: Service) -> None:
    """It has no record any more, so its item has failed."""
    first, second = batch_of(service, 2)
    done = {**s.record(output=1), "task_id": first}
    service.on("GET /v1/tasks", listing(done, missing=[second]))

    found = run("run_batch", node="n", items_json='[{"a": 1}, {"a": 2}]', timeout_seconds=30)

    assert found.error is None
    results = found.variables["results"]
    assert [one["status"] for one in results] == ["succeeded", "failed"]
    assert results[1]["error_code"] == "gone"
    assert found.seconds < 10


def test_what_one_answer_has_no_room_for_is_asked_for(run: Run, service: Service) -> None:
    """The service names what it has left out."""
    first, second = batch_of(service, 2)
    one, two = ({**s.record(output=1), "task_id": name} for name in (first, second))
    service.on("GET /v1/tasks", listing(one, left=[second]), listing(two))

    found = run("run_batch", node="n", items_json='[{"a": 1}, {"a": 2}]')

    assert found.variables["succeeded"] == 2


def test_a_batch_survives_a_service_that_is_overloaded(run: Run, service: Service) -> None:
    """Its tasks go on meanwhile."""
    (only,) = batch_of(service, 1)
    late = answer(503, {}, Retry_After="3600")
    service.on("GET /v1/tasks", late, late, listing({**s.record(output=1), "task_id": only}))

    found = run("run_batch", node="n", items_json='[{"a": 1}]')

    assert found.error is None
    assert found.variables["succeeded"] == 1


def test_large_outputs_are_not_fetched_to_be_left_out(run: Run, service: Service) -> None:
    """A thousand of them would need more memory than Dify gives to a plugin."""
    ids = batch_of(service, 20)
    records = [{**s.record(output=None, output_bytes=900_000), "task_id": one} for one in ids]
    service.on("GET /v1/tasks", listing(*records))
    for one in ids:
        service.on(f"GET /v1/tasks/{one}/result", answer(200, "x" * 899_998))

    found = run("run_batch", node="n", items_json=json.dumps([{}] * 20))

    assert sum(path.endswith("/result") for _, path, _ in service.asked) == 1
    left_out = [one["result"] for one in found.variables["results"][1:]]
    assert left_out == [{"left_out": True}] * 19


def test_many_late_tasks_are_cancelled_in_time(run: Run, service: Service) -> None:
    """All at once: Dify's daemon does not wait for one after the other."""
    ids = batch_of(service, 500)
    service.on("GET /v1/tasks", listing())
    cancelled: s.Give = answer(200, s.record("Cancelled"))

    def slowly(request: Any) -> None:
        time.sleep(0.1)
        cancelled(request)

    for one in ids:
        service.on(f"POST /v1/tasks/{one}/cancel", slowly)

    found = run(
        "run_batch",
        node="n",
        items_json=json.dumps([{}] * 500),
        timeout_seconds=1,
        on_timeout="cancel",
    )

    assert found.error is None
    assert found.variables["failed"] == 500
    assert found.seconds < 30


# -- the process -----------------------------------------------------------------------------------


def test_memory_and_connections_stay_flat(plugin: Piped, service: Service) -> None:
    """Over a thousand calls, forty at a time."""
    credentials = {"base_url": service.url}
    call = tool_call("run_task", credentials, node="n")

    def calls(count: int) -> None:
        for _ in range(count // 40):
            sessions = [plugin.start(**call) for _ in range(40)]
            assert [plugin.collect(one).error for one in sessions] == [None] * 40

    calls(400)
    before = measured(plugin.process.pid)
    calls(1000)
    after = measured(plugin.process.pid)

    assert after[0] - before[0] < 25 << 20
    assert after[1] - before[1] <= 10


def measured(pid: int) -> tuple[int, int]:
    """Return a process's resident bytes and open files."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_four_hundred_calls_at_once(plugin: Piped, service: Service) -> None:
    """Each waits by itself, and the heart goes on beating."""
    service.on(EVENTS, events(3.0, s.DONE))
    call = tool_call("run_task", {"base_url": service.url}, node="n")
    began = time.monotonic()

    sessions = [plugin.start(**call) for _ in range(400)]
    answers = [plugin.collect(one, 60) for one in sessions]

    assert {one.text for one in answers} == {"good"}
    assert time.monotonic() - began < 30


def test_a_service_that_stands_still_holds_up_nobody_else(plugin: Piped, service: Service) -> None:
    """One takes connections and never answers; the calls to another go on."""
    silent = Service()
    release = threading.Event()
    refused = answer(400, {"code": "late", "detail": "too late"})
    silent.on("POST /v1/tasks", lambda request: (release.wait(60), refused(request))[1])
    with silent.running():
        stuck = [
            plugin.start(**tool_call("run_task", {"base_url": silent.url}, node="n"))
            for _ in range(50)
        ]
        found = plugin.tool("run_task", {"base_url": service.url}, node="n")
        release.set()
        for one in stuck:
            plugin.collect(one, 90)

    assert found.text == "good"
    assert found.seconds < 5
