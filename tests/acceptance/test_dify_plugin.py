"""The plugin for Dify in the real SDK, driven as the daemon drives it, against real processes."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

from tests.acceptance.dify_driver import (
    MAX_LINE,
    Driver,
    Piped,
    Remote,
    environment,
    tool_call,
)
from tests.acceptance.dify_environment import PLUGIN, dify_python
from tests.acceptance.stack import Stack, free_port

pytestmark = [pytest.mark.needs("redis", "python3.12"), pytest.mark.timeout(240)]

KEY = "a-key-for-dify"
IMPORTS = "async_nodes.testing.nodes,tests.acceptance.dify_nodes"
SECRET = "whsec_" + base64.b64encode(b"a secret of the endpoint").decode()
TASK = "t_06H2ZWKJMG00GSX0P48F6Q5T5S"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Return a stack that wants a key, with a model and nodes to try."""
    environ = {"ASYNC_NODES_API_KEY": KEY, "ASYNC_NODES_IMPORTS": IMPORTS}
    stack = Stack(
        tmp_path_factory.mktemp("dify"), model=("--tokens", "20"), slots=300, environ=environ
    )
    stack.client.key = KEY
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


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
def credentials(service: Stack) -> dict[str, str]:
    return {"base_url": f"http://127.0.0.1:{service.client.port}", "api_key": KEY}


Run = Callable[..., Any]


@pytest.fixture
def run(plugin: Piped, credentials: dict[str, str]) -> Run:
    """Return a function that calls a tool, ``run_task`` unless another is named."""

    def call(tool: str = "run_task", **parameters: Any) -> Any:
        return plugin.tool(tool, credentials, **parameters)

    return call


def variables_of(tool: str) -> set[str]:
    """Return what a tool declares to give."""
    declared = yaml.safe_load((PLUGIN / "tools" / f"{tool}.yaml").read_text())
    return set(declared["output_schema"]["properties"])


# -- credentials and choices -----------------------------------------------------------------------


def validate(driver: Driver, **credentials: str) -> Any:
    return driver.call(
        type="tool",
        action="validate_tool_credentials",
        provider="async_nodes",
        credentials=credentials,
    )


def test_good_credentials_are_taken(plugin: Piped, credentials: dict[str, str]) -> None:
    """Also with the path that people copy along."""
    assert validate(plugin, **credentials).messages == [{"result": True}]
    with_path = {**credentials, "base_url": credentials["base_url"] + "/v1/"}
    assert validate(plugin, **with_path).messages == [{"result": True}]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"api_key": "another"}, "unauthorized"),
        ({"api_key": ""}, "unauthorized"),
        ({"base_url": "http://127.0.0.1:1"}, "was not reached"),
        ({"base_url": "127.0.0.1"}, "must look like http://host:8000"),
        ({"base_url": ""}, "must look like http://host:8000"),
    ],
)
def test_wrong_credentials_are_explained(
    plugin: Piped, credentials: dict[str, str], changed: dict[str, str], says: str
) -> None:
    """At once, in the error that Dify shows beside the form."""
    answer = validate(plugin, **{**credentials, **changed})

    assert answer.error is not None
    assert answer.error["error_type"] == "ToolProviderCredentialValidationError"
    assert says in answer.error["message"]
    assert answer.seconds < 10


def test_the_panel_lists_the_nodes(plugin: Piped, credentials: dict[str, str]) -> None:
    """As the service has them, those of its users among them."""
    answer = plugin.call(
        type="dynamic_parameter",
        action="fetch_parameter_options",
        provider="async_nodes",
        provider_action="run_task",
        credentials=credentials,
        parameter="node",
    )

    options = [option["value"] for option in answer.messages[0]["options"]]
    assert {"echo", "llm.chat", "dify.steps"} <= set(options)
    assert options == sorted(options)


# -- run_task --------------------------------------------------------------------------------------


def test_a_task_is_run_and_gives_every_variable(run: Run) -> None:
    """What the tool declares is emitted, the text and the JSON of the node beside it."""
    answer = run(node="echo", text='he said "hi"\n', inputs_json='{"n": 3}')

    assert answer.error is None
    assert answer.variables["status"] == "succeeded"
    assert answer.variables["result"] == {"text": 'he said "hi"\n', "n": 3}
    assert answer.variables["attempts"] == 1
    assert answer.variables["elapsed_ms"] > 0
    assert set(answer.variables) | {"stream_text"} == variables_of("run_task")
    assert json.loads(answer.text)["n"] == 3
    assert answer.of("json")[0]["json_object"]["task_id"] == answer.variables["task_id"]


def test_text_streams_as_it_is_written(run: Run) -> None:
    """In pieces, which together are the result."""
    answer = run(node="test.emit", inputs_json='{"n": 6, "text": "tick ", "gap": 0.15}')

    pieces = [one for one in answer.of("variable") if one["stream"]]
    assert len(pieces) >= 3
    assert answer.variables["stream_text"] == "tick " * 6 == answer.variables["result"]["value"]
    assert answer.text == "tick " * 6


def test_progress_streams_where_it_is_wanted(run: Run) -> None:
    """One line for each step."""
    answer = run(node="dify.steps", inputs_json='{"count": 3, "gap": 0.2}', stream="progress")

    lines = answer.variables["stream_text"].splitlines()
    assert [line for line in lines if "step" in line][-1] == "100 %: step 3"
    assert "Running" in lines
    assert answer.variables["result"] == {"value": 3}


def test_submit_goes_on_at_once(run: Run) -> None:
    """The other tools take it from there: look, wait, cancel."""
    begun = run(node="test.sleep", inputs_json='{"seconds": 2}', mode="submit")
    assert begun.seconds < 1.5
    assert begun.variables["status"] == "pending"
    task = begun.variables["task_id"]

    looked = run("get_task", task_id=task)
    assert looked.variables["status"] in ("pending", "running")
    assert looked.seconds < 1
    waited = run("wait_task", task_id=task)
    assert waited.variables["status"] == "succeeded"
    assert set(waited.variables) | {"stream_text"} == variables_of("wait_task")
    assert run("get_task", task_id=task).variables["status"] == "succeeded"
    assert run("cancel_task", task_id=task).variables["status"] == "succeeded"


def test_its_own_deadline_returns_the_task(run: Run, service: Stack) -> None:
    """Before Dify's limit ends the call without any output; the task goes on."""
    answer = run(node="test.sleep", inputs_json='{"seconds": 4}', timeout_seconds=1)

    assert 0.9 < answer.seconds < 2.5
    assert answer.variables["status"] == "running"
    later = run("wait_task", task_id=answer.variables["task_id"])
    assert later.variables["status"] == "succeeded"


def test_what_takes_longer_is_cancelled_where_that_is_wanted(run: Run, service: Stack) -> None:
    """The node fails with the time-out, or says so in its variables."""
    given = {"node": "test.sleep", "inputs_json": '{"seconds": 60}', "timeout_seconds": 1}

    failed = run(**given, on_timeout="cancel")
    told = run(**given, on_timeout="cancel", on_failure="return")

    assert failed.error["error_type"] == "AsyncNodesTimeout"
    assert told.variables["status"] == "cancelled"
    assert service.wait(told.variables["task_id"])["state"] == "Cancelled"


def test_what_nobody_awaits_expires(run: Run, service: Stack) -> None:
    """A call that fails at its time-out leaves a task that ends by itself."""
    given = {"node": "test.sleep", "inputs_json": '{"seconds": 60}', "timeout_seconds": 1}

    failed = run(**given, on_timeout="fail", expire_seconds=2)

    assert failed.error["error_type"] == "AsyncNodesTimeout"
    task = failed.error["message"].split("the task ")[1].split(" ")[0]
    ended = service.wait(task, 20)
    assert (ended["state"], ended["error"]["code"]) == ("Failed", "deadline_exceeded")


def test_a_task_may_run_longer_than_its_node_allows(run: Run, service: Stack) -> None:
    """An hour unless the panel says otherwise; a node's own limit is five minutes."""
    usual = run(node="echo").variables["task_id"]
    short = run(node="test.sleep", inputs_json='{"seconds": 9}', run_seconds=1)

    assert service.client.request("GET", f"/v1/tasks/{usual}").json["timeout_ms"] == 3_600_000
    assert short.error["error_type"] == "AsyncNodesTaskFailed"
    assert "[node_timeout]" in short.error["message"]


def test_without_words_an_abandoned_task_expires_half_a_minute_later(
    run: Run, service: Stack
) -> None:
    """Where the call would have cancelled it, were the plugin still there."""
    begun = run(node="echo", text="x", timeout_seconds=5, on_timeout="cancel")
    record = service.client.request("GET", f"/v1/tasks/{begun.variables['task_id']}").json

    from datetime import datetime

    span = datetime.fromisoformat(record["deadline"]) - datetime.fromisoformat(record["created_at"])
    assert 33 < span.total_seconds() < 36


@pytest.mark.parametrize(
    ("parameters", "kind", "says"),
    [
        ({"inputs_json": "{a: 1}"}, "AsyncNodesInvalidInput", "inputs_json is not JSON"),
        ({"inputs_json": "[1]"}, "AsyncNodesInvalidInput", "not an array"),
        ({"inputs_json": '"x"'}, "AsyncNodesInvalidInput", "not a text"),
        ({"inputs_json": '{"a": NaN}'}, "AsyncNodesInvalidInput", "NaN"),
        ({"inputs_json": '{"a": 1, "a": 2}'}, "AsyncNodesInvalidInput", "twice"),
        ({"node": ""}, "AsyncNodesInvalidInput", "node is empty"),
        ({"node": "ecoh"}, "AsyncNodesInvalidInput", "there is no node 'ecoh'"),
        ({"node": "test.sleep", "text": "x"}, "AsyncNodesInvalidInput", "there is no input"),
        ({"timeout_seconds": 600}, "AsyncNodesInvalidInput", "from 1 to 590"),
        ({"timeout_seconds": "soon"}, "AsyncNodesInvalidInput", "must be a number"),
        ({"mode": "later"}, "AsyncNodesInvalidInput", "must be one of wait, submit"),
        (
            {"node": "test.fail", "inputs_json": '{"kind": "terminal"}'},
            "AsyncNodesTaskFailed",
            "[node_failed]",
        ),
    ],
)
def test_what_is_wrong_has_one_sentence_and_a_type(
    run: Run, parameters: dict[str, Any], kind: str, says: str
) -> None:
    """An app branches on the type; a person reads the sentence."""
    answer = run(**{"node": "echo", **parameters})

    assert answer.error["error_type"] == kind
    assert says in answer.error["message"]
    assert answer.of("variable") == []


@pytest.mark.parametrize("empty", ["", "  ", None, "{}"])
def test_no_inputs_are_no_mistake(run: Run, empty: str | None) -> None:
    """Whatever Dify hands over for an empty field."""
    answer = run(node="echo", inputs_json=empty, timeout_seconds="", priority="", tags=None)

    assert answer.error is None
    assert answer.variables["result"] == {}


def test_a_failed_task_can_be_told_instead(run: Run) -> None:
    """For apps that branch on a variable."""
    answer = run(node="test.fail", inputs_json='{"kind": "terminal"}', on_failure="return")

    assert answer.error is None
    assert answer.variables["status"] == "failed"
    assert answer.variables["error_code"] == "node_failed"
    assert answer.variables["error_message"] == "failed on request"


def test_a_node_that_runs_again_finds_its_task(run: Run, tmp_path: Path) -> None:
    """Dify repeats a node without telling; the key tells, and the work is done once."""
    starts = tmp_path / "starts"
    inputs = json.dumps({"path": str(starts)})
    given = {"node": "test.count", "inputs_json": inputs, "idempotency_key": "run-1"}

    first, again = run(**given), run(**given)

    assert first.error is None, first.error
    assert again.variables["task_id"] == first.variables["task_id"]
    assert again.variables["result"] == first.variables["result"]
    assert len(starts.read_text().splitlines()) == 1


# -- large results and files -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [9_000, (1 << 20) - 2])
def test_a_result_of_a_mebibyte_is_a_value(run: Run, size: int) -> None:
    """Though the record does not hold it."""
    answer = run(node="dify.big", inputs_json=json.dumps({"size": size}))

    assert answer.variables["result"] == {"value": "x" * size}
    assert answer.variables["result_url"] == ""


@pytest.mark.parametrize("size", [(1 << 20) - 1, 20 << 20])
def test_a_larger_result_is_a_file(run: Run, plugin: Piped, service: Stack, size: int) -> None:
    """And no line comes near the length at which the daemon ends the plugin."""
    answer = run(node="dify.big", inputs_json=json.dumps({"size": size}), stream="off")

    assert answer.error is None
    ((meta, content),) = answer.blobs
    assert meta["mime_type"] == "application/json"
    assert content == json.dumps("x" * size).encode()
    assert answer.variables["result_url"].endswith(f"{answer.variables['task_id']}/result")
    assert plugin.longest < MAX_LINE


@pytest.fixture
def dify_files() -> Iterator[Callable[..., dict[str, Any]]]:
    """Return a function that offers a file as Dify does: by an address that dies."""
    kept: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = kept.pop(self.path, None)
            self.send_response(200 if content is not None else 403)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def offer(content: bytes, name: str) -> dict[str, Any]:
        path = f"/files/{len(kept)}/{name}"
        kept[path] = content
        return {
            "dify_model_identity": "__dify__file__",
            "url": f"http://127.0.0.1:{server.server_port}{path}",
            "mime_type": "text/plain",
            "filename": name,
            "extension": ".txt",
            "size": len(content),
            "type": "document",
        }

    yield offer
    server.shutdown()
    server.server_close()


def test_files_are_fetched_at_once(run: Run, dify_files: Callable[..., dict[str, Any]]) -> None:
    """Each address works once here; the task starts two seconds later, and has the file."""
    answer = run(node="dify.size", files=[dify_files(b"hello", "a.txt")])

    assert answer.error is None, answer.error
    assert answer.variables["result"]["size"] == 5
    assert answer.variables["result"]["name"] == "a.txt"
    ((meta, content),) = answer.blobs
    assert (meta["filename"], meta["mime_type"], content) == ("size.txt", "text/plain", b"5")


def test_an_input_that_takes_a_list_gets_one(
    run: Run, dify_files: Callable[..., dict[str, Any]]
) -> None:
    """Of one file or several; what takes one file does not get several."""
    one, two = dify_files(b"hello", "a.txt"), dify_files(b"you", "b.txt")
    assert run(node="dify.sizes", file_input="files", files=[one, two]).text == "[5, 3]"
    one = dify_files(b"hello", "a.txt")
    assert run(node="dify.sizes", file_input="files", files=[one]).text == "[5]"
    refused = run(node="dify.size", files=[one, two])
    assert "takes one file, 2 were given" in refused.error["message"]


def test_a_file_that_is_gone_is_named(run: Run, dify_files: Callable[..., dict[str, Any]]) -> None:
    """The address has died before the call was made."""
    file = dify_files(b"hello", "gone.txt")
    run(node="dify.size", files=[file])

    answer = run(node="dify.size", files=[file])

    assert answer.error["error_type"] == "AsyncNodesInvalidInput"
    assert "gone.txt could not be fetched from Dify" in answer.error["message"]


# -- the other tools -------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["get_task", "wait_task", "cancel_task"])
@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("", "AsyncNodesInvalidInput"),
        ("t_1", "AsyncNodesInvalidInput"),
        (TASK, "AsyncNodesNotFound"),
    ],
)
def test_an_id_that_is_none_is_named(run: Run, tool: str, task: str, kind: str) -> None:
    """Empty, misspelt, or not of this service."""
    assert run(tool, task_id=task).error["error_type"] == kind


def test_a_running_task_is_cancelled(run: Run, service: Stack) -> None:
    """And the tool says so."""
    task = service.submit("test.sleep", {"seconds": 60})

    answer = run("cancel_task", task_id=task)

    assert answer.variables["status"] == "cancelled"
    assert set(answer.variables) | {"stream_text"} == variables_of("cancel_task")


def test_a_batch_gives_its_results_in_order(run: Run) -> None:
    """Three hundred at once; the items as JSON or as an array of objects."""
    items = [{"n": number} for number in range(300)]

    answer = run("run_batch", node="echo", items_json=json.dumps(items))

    assert answer.variables["status"] == "succeeded"
    assert [one["result"]["n"] for one in answer.variables["results"]] == list(range(300))
    assert len(set(answer.variables["task_ids"])) == 300
    assert set(answer.variables) == variables_of("run_batch")
    assert run("run_batch", node="echo", items_json=items[:2]).variables["succeeded"] == 2


def test_a_batch_tells_each_item_apart(run: Run) -> None:
    """One fails, one is refused, one goes on, one succeeds."""
    items = [{"seconds": 0}, {"seconds": "x"}, {"seconds": 30}]

    answer = run("run_batch", node="test.sleep", items_json=json.dumps(items), timeout_seconds=2)

    statuses = [one["status"] for one in answer.variables["results"]]
    assert statuses == ["succeeded", "failed", "running"]
    assert answer.variables["status"] == "running"
    counted = [answer.variables[name] for name in ("succeeded", "failed", "unfinished")]
    assert counted == [1, 1, 1]
    assert answer.variables["results"][1]["error_code"]
    failed = run(
        "run_batch", node="test.sleep", items_json=json.dumps(items[:2]), on_failure="fail"
    )
    assert failed.error["error_type"] == "AsyncNodesTaskFailed"


def test_a_batch_can_be_submitted_or_cancelled(run: Run, service: Stack) -> None:
    """Nothing of it goes on that was to be cancelled."""
    given = {"node": "test.sleep", "items_json": '[{"seconds": 30}, {"seconds": 30}]'}

    begun = run("run_batch", **given, mode="submit")
    assert begun.variables["unfinished"] == 2
    ended = run("run_batch", **given, timeout_seconds=1, on_timeout="cancel")

    states = [service.wait(task)["state"] for task in ended.variables["task_ids"]]
    assert states == ["Cancelled", "Cancelled"]
    for task in begun.variables["task_ids"]:
        service.client.request("POST", f"/v1/tasks/{task}/cancel")


@pytest.mark.parametrize("items", ["", "[]", "{}", "[1]", "[", json.dumps([{}] * 1001)])
def test_items_that_are_none_are_named(run: Run, items: str) -> None:
    """One sentence each."""
    answer = run("run_batch", node="echo", items_json=items)

    assert answer.error["error_type"] == "AsyncNodesInvalidInput"
    assert "items_json" in answer.error["message"]


def test_large_results_of_a_batch_stay_within_a_line(run: Run, plugin: Piped) -> None:
    """What does not fit is left out, and said so; the ids are all there."""
    items = json.dumps([{"size": 300_000}] * 8)

    answer = run("run_batch", node="dify.big", items_json=items)

    held = ["value" in one["result"] for one in answer.variables["results"]]
    assert held == [True] * 3 + [False] * 5
    assert answer.variables["succeeded"] == 8
    assert plugin.longest < MAX_LINE


def test_a_model_is_called_and_streams(run: Run, service: Stack) -> None:
    """The convenience tool, on the simulated model."""
    base = f"http://127.0.0.1:{service.model_port}/v1"

    answer = run("call_model", prompt="hello", system="be brief", model="sim", base_url=base)

    assert answer.error is None, answer.error
    assert answer.variables["result"]["value"] == answer.text == answer.variables["stream_text"]
    assert len(answer.text) > 10


def test_a_models_key_is_in_no_record(run: Run, service: Stack) -> None:
    """Neither in what the service shows nor in what Dify gets."""
    base = f"http://127.0.0.1:{service.model_port}/v1"

    answer = run(
        "call_model", prompt="hello", model="sim", base_url=base, model_api_key="sk-very-secret"
    )

    record = service.client.request("GET", f"/v1/tasks/{answer.variables['task_id']}").body
    assert b"sk-very-secret" not in record
    assert "sk-very-secret" not in json.dumps(answer.messages)


def test_an_http_call_is_made(run: Run, service: Stack) -> None:
    """With its headers and body; both kinds of body at once are refused."""
    base = f"http://127.0.0.1:{service.model_port}/v1"
    asked = {"model": "sim", "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}

    answer = run(
        "call_http",
        url=f"{base}/chat/completions",
        method="POST",
        headers_json='{"Accept": "application/json"}',
        body_json=json.dumps(asked),
    )

    assert answer.variables["result"]["status"] == 200
    assert answer.variables["result"]["json"]["object"] == "chat.completion"
    both = run("call_http", url=base, body="x", body_json="{}")
    assert "not both" in both.error["message"]


# -- the daemon's ways -----------------------------------------------------------------------------


def test_an_unknown_tool_gives_nothing_but_its_end(plugin: Piped, run: Run) -> None:
    """What the SDK does with it is not taken for success, and the plugin goes on."""
    answer = run("no_such_tool")

    assert answer.of("variable") == []
    assert run(node="echo").variables["status"] == "succeeded"


def test_two_hundred_calls_at_once(
    plugin: Piped, credentials: dict[str, str], service: Stack
) -> None:
    """All wait at the same time, none is mixed up with another."""
    began = time.monotonic()
    calls = [
        plugin.start(
            **tool_call(
                "run_task",
                credentials,
                node="test.emit",
                inputs_json=json.dumps({"pieces": [f"call {number}"], "gap": 1.0}),
            )
        )
        for number in range(200)
    ]
    answers = [plugin.collect(call, 120) for call in calls]

    assert [answer.error for answer in answers if answer.error] == []
    assert [answer.text for answer in answers] == [f"call {number}" for number in range(200)]
    assert time.monotonic() - began < 60


def test_a_service_that_restarts_is_waited_for(
    plugin: Piped, new_stack: Callable[..., Stack]
) -> None:
    """The stream is cut in the middle of a call, and what follows is read after it."""
    stack = new_stack(environ={"ASYNC_NODES_IMPORTS": IMPORTS})
    credentials = {"base_url": f"http://127.0.0.1:{stack.client.port}"}
    call = plugin.start(
        **tool_call(
            "run_task",
            credentials,
            node="test.emit",
            inputs_json='{"n": 30, "text": "tick ", "gap": 0.1}',
        )
    )
    time.sleep(1.0)
    stack.kill("web")
    stack.restart("web")

    answer = plugin.collect(call)

    assert answer.error is None
    assert answer.variables["stream_text"] == "tick " * 30


def test_a_service_that_is_away_is_named(plugin: Piped) -> None:
    """After a quarter of a minute of trying; the type tells an app to try later."""
    credentials = {"base_url": f"http://127.0.0.1:{free_port()}"}

    answer = plugin.tool("run_task", credentials, node="echo")

    assert answer.error["error_type"] == "AsyncNodesUnavailable"
    assert answer.seconds < 20


# -- endpoints -------------------------------------------------------------------------------------


def signed(
    body: bytes, *, age: float = 0.0, secret: str = SECRET, message: str = "msg_1"
) -> dict[str, str]:
    """Return the headers of Standard Webhooks for a body that was signed ``age`` seconds ago."""
    moment = str(int(time.time() - age))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.new(
        key, message.encode() + b"." + moment.encode() + b"." + body, hashlib.sha256
    ).digest()
    return {
        "webhook-id": message,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }


def endpoint(
    driver: Driver,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> tuple[int, Any]:
    """Call an endpoint as the daemon does; return its status and JSON."""
    head = {"Host": "dify", "Content-Length": str(len(body)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    raw = "\r\n".join(lines).encode() + b"\r\n\r\n" + body
    answer = driver.call(
        type="endpoint",
        action="invoke_endpoint",
        settings={"webhook_secret": SECRET, **settings},
        raw_http_request=raw.hex(),
    )
    parts: dict[str, Any] = {"body": b""}
    for one in answer.messages:
        if "status" in one:
            parts["status"] = one["status"]
        if "result" in one:
            parts["body"] += bytes.fromhex(one["result"])
    return parts["status"], json.loads(parts["body"])


def news(**data: Any) -> bytes:
    return json.dumps({"type": "task.ended", "data": {"task_id": TASK, **data}}).encode()


def test_news_of_an_end_are_kept_and_start_an_app(plugin: Piped) -> None:
    """Signed after Standard Webhooks; what was kept can be read."""
    body = news(state="Succeeded", output={"a": 1})
    app = {"app_id": "app-1", "inputs": {}}

    status, _ = endpoint(plugin, "POST", "/callback", body, signed(body), app=app)

    assert status == 200
    assert json.loads(plugin.storage[TASK])["state"] == "Succeeded"
    invoked = plugin.invoked[-1]
    assert invoked["app_id"] == "app-1"
    assert invoked["inputs"] == {"task_id": TASK, "status": "succeeded", "result": '{"a": 1}'}
    status, said = endpoint(plugin, "GET", f"/tasks/{TASK}")
    assert (status, said["output"]) == (200, {"a": 1})


@pytest.mark.parametrize(
    ("body", "signing", "status"),
    [
        (news(), None, 403),
        (news(), {"age": 3600}, 403),
        (news(), {"secret": "whsec_" + base64.b64encode(b"other").decode()}, 403),
        (news(), {"body": news(state="x")}, 403),
        (b"{}", {}, 400),
        (b"nothing", {}, 400),
        (news(task_id="../x"), {}, 400),
    ],
    ids=["unsigned", "old", "somebody else's", "changed", "no news", "no JSON", "no task"],
)
def test_what_is_not_news_is_refused(
    plugin: Piped, body: bytes, signing: dict[str, Any] | None, status: int
) -> None:
    """Unsigned, old, somebody else's, changed, or without a task."""
    kept = dict(plugin.storage)
    headers = {} if signing is None else signed(**{"body": body, **signing})

    assert endpoint(plugin, "POST", "/callback", body, headers)[0] == status
    assert plugin.storage == kept


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_密钥", "whsec_%"])
def test_a_secret_that_is_none_lets_nobody_sign(plugin: Piped, secret: str) -> None:
    """An empty one everybody has."""
    body = news()
    key = secret if secret.isascii() and "%" not in secret else "whsec_"
    headers = signed(body, secret=key, message="msg_empty")

    status, said = endpoint(plugin, "POST", "/callback", body, headers, webhook_secret=secret)

    assert status == 403
    assert "secret" in said["message"]


def test_news_that_come_twice_start_one_app(plugin: Piped) -> None:
    """A sender that hears nothing in its time sends them again, also while the app runs."""
    body = news(state="Succeeded")
    headers, app = signed(body, message="msg_twice"), {"app_id": "app-2", "inputs": {}}
    started = len(plugin.invoked)
    plugin.may_start.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(endpoint, plugin, "POST", "/callback", body, headers, app=app)
        until = time.monotonic() + 10
        while len(plugin.invoked) == started and time.monotonic() < until:
            time.sleep(0.01)
        meanwhile = endpoint(plugin, "POST", "/callback", body, headers, app=app)[0]
        plugin.may_start.set()

        assert (meanwhile, first.result()[0]) == (409, 200)
    assert endpoint(plugin, "POST", "/callback", body, headers, app=app)[0] == 200
    assert len(plugin.invoked) == started + 1


def test_what_is_kept_stays_within_what_dify_gives(plugin: Piped) -> None:
    """The newest news, none of them large: Dify refuses what is more than the manifest asks for."""
    ids = [f"t_{number:026d}" for number in range(1, 211)]
    for number, task in enumerate(ids):
        body = news(task_id=task, state="Succeeded", output="x" * (200_000 if number > 205 else 9))
        headers = signed(body, message=f"msg_many_{number}")
        assert endpoint(plugin, "POST", "/callback", body, headers)[0] == 200

    assert len(plugin.storage) <= 201
    assert sum(map(len, plugin.storage.values())) < 1 << 20
    assert endpoint(plugin, "GET", f"/tasks/{ids[0]}")[0] == 404
    assert endpoint(plugin, "GET", f"/tasks/{ids[200]}")[1]["output"] == "x" * 9
    assert endpoint(plugin, "GET", f"/tasks/{ids[-1]}")[1] == {
        "task_id": ids[-1],
        "state": "Succeeded",
        "output": None,
        "left_out": True,
    }


def test_what_was_not_delivered_is_not_found(plugin: Piped) -> None:
    """Nor a name that is no task's."""
    other = "t_" + "0" * 26
    assert endpoint(plugin, "GET", f"/tasks/{other}")[0] == 404
    assert endpoint(plugin, "GET", "/tasks/x")[0] == 404


# -- remote debugging ------------------------------------------------------------------------------


def test_it_runs_over_tcp_and_connects_again(tmp_path: Path, credentials: dict[str, str]) -> None:
    """As when somebody develops it: it declares itself, serves, and comes back after a cut."""
    remote = Remote(dify_python(), PLUGIN, tmp_path / "log")
    try:
        deadline = time.monotonic() + 60
        while "end" not in remote.declared and time.monotonic() < deadline:
            time.sleep(0.05)
        order = [one for one in dict.fromkeys(remote.declared) if one != "asset_chunk"]
        assert order == [
            "handshake",
            "manifest_declaration",
            "tool_declaration",
            "endpoint_declaration",
            "end",
        ]
        answer = remote.tool("run_task", credentials, node="echo", text="over TCP")
        assert answer.variables["result"] == {"text": "over TCP"}

        remote.declared.clear()
        remote.cut()
        remote.accept()
        while "end" not in remote.declared and time.monotonic() < deadline:
            time.sleep(0.05)
        again = remote.tool("run_task", credentials, node="echo", text="again")
        assert again.variables["result"] == {"text": "again"}
    finally:
        remote.close()


def test_a_plugin_that_dies_takes_no_task_along(
    tmp_path: Path, credentials: dict[str, str], service: Stack
) -> None:
    """The daemon kills a plugin without a word; the task and its result do not care."""
    driver = Piped(dify_python(), PLUGIN, tmp_path / "log")
    assert driver.heard.wait(60)
    given = {"node": "test.sleep", "inputs_json": '{"seconds": 2}', "tags": "orphan"}
    driver.start(**tool_call("run_task", credentials, **given))
    until = time.monotonic() + 10
    while not (found := service.client.request("GET", "/v1/tasks?tag=orphan").json["tasks"]):
        assert time.monotonic() < until
        time.sleep(0.05)
    driver.close()

    assert service.wait(found[0]["task_id"])["state"] == "Succeeded"


# -- without the plugin, and the service's side ----------------------------------------------------


def custom_tool(service: Stack, name: str, **given: Any) -> Any:
    """Make a call as Dify does for an imported tool: by the document alone."""
    document = service.client.request("GET", "/dify/openapi.json").json
    ((path, method, operation),) = [
        (path, method, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if operation["operationId"] == name
    ]
    query = []
    for parameter in operation["parameters"]:
        value = given.pop(parameter["name"], parameter["schema"].get("default"))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", value)
        elif value is not None:
            query.append(f"{parameter['name']}={value}")
    body = None
    if "requestBody" in operation:
        ((kind, content),) = operation["requestBody"]["content"].items()
        members = content["schema"]["properties"]
        # What a person types for an object is JSON.
        said = {
            key: json.loads(value) if members[key]["type"] == "object" else value
            for key, value in given.items()
        }
        body, given = json.dumps(said).encode(), {}
        assert kind == "application/json"
    assert given == {}
    base = document["servers"][0]["url"].removeprefix(f"http://127.0.0.1:{service.client.port}")
    headers = {"Content-Type": "application/json"} if body else {}
    answer = service.client.request(
        method.upper(), f"{base}{path}?{'&'.join(query)}", body, headers
    )
    assert answer.status < 300, answer
    return answer.json


def test_imported_calls_do_the_same_work(service: Stack) -> None:
    """Submit, look, fetch and cancel, as custom tools of Dify."""
    assert "echo" in [node["name"] for node in custom_tool(service, "list_nodes")["nodes"]]
    done = custom_tool(service, "submit_task", node="echo", inputs='{"a": 1}', wait=10)
    assert (done["state"], done["output"]) == ("Succeeded", {"a": 1})
    assert custom_tool(service, "get_result", task_id=done["task_id"]) == {"a": 1}
    begun = custom_tool(service, "submit_task", node="test.sleep", inputs='{"seconds": 60}')
    custom_tool(service, "cancel_task", task_id=begun["task_id"])
    ended = custom_tool(service, "get_task", task_id=begun["task_id"], wait=10)
    assert ended["state"] == "Cancelled"


def test_the_calls_can_be_imported_without_a_key(service: Stack) -> None:
    """Dify sends none when it imports; nothing of the installation is told."""
    with contextlib.closing(service.client.connect()) as connection:
        connection.request("GET", "/dify/openapi.json")
        document = json.loads(connection.getresponse().read())

    assert document["servers"] == [{"url": f"http://127.0.0.1:{service.client.port}"}]
    names = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert sorted(names) == ["cancel_task", "get_result", "get_task", "list_nodes", "submit_task"]
    assert "dify.big" not in json.dumps(document)


@pytest.mark.parametrize(
    ("server", "status"),
    [("https://tasks.example.com/", 200), ("ftp://x", 422), ("nothing", 422), ("http://x/?a", 422)],
)
def test_the_address_can_be_another(service: Stack, server: str, status: int) -> None:
    """Where Dify reaches the service by another name."""
    answer = service.client.request("GET", f"/dify/openapi.json?server={quote(server, safe='')}")

    assert answer.status == status
    if status == 200:
        assert answer.json["servers"] == [{"url": "https://tasks.example.com"}]


def test_doctor_looks_at_what_dify_needs(service: Stack) -> None:
    """The key, the nodes, the import and the package; a loopback address is a warning."""
    environ = {
        **environment(),
        "ASYNC_NODES_API_KEY": KEY,
        "ASYNC_NODES_REDIS_URL": service.server.url + "?db=0",
    }
    url = f"http://127.0.0.1:{service.client.port}"
    command = [sys.executable, "-P", "-m", "async_nodes.cli", "doctor", "--dify", "--json"]
    done = subprocess.run(
        [*command, "--url", url], env=environ, capture_output=True, text=True, check=False
    )

    checks = {one["name"]: one for one in json.loads(done.stdout)["checks"]}
    outcomes = {name: one["outcome"] for name, one in checks.items() if name.startswith("Dify")}
    assert outcomes == {
        "Dify address": "warn",
        "Dify key": "ok",
        "Dify import": "ok",
        "Dify package": "ok",
    }
    assert "async-nodes/async_nodes:" in checks["Dify package"]["detail"]
