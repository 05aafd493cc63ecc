from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.testing import ModelConfig, ModelServer
from async_nodes.testing.model_script import ScriptError, draw, parse, tokenise

if TYPE_CHECKING:
    from collections.abc import Mapping

FAST = ModelConfig(ttft_ms=1.0, gap_ms=0.5, tokens=8)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(FAST) as running:
        yield running


def ask(
    server: ModelServer,
    path: str = "/v1/chat/completions",
    *,
    method: str = "POST",
    headers: Mapping[str, str] = {},
    **body: Any,
) -> tuple[int, Any, http.client.HTTPMessage]:
    document = {"model": "sim", "messages": [{"role": "user", "content": "hi"}], **body}
    sent = json.dumps(document) if method == "POST" else None
    with closing(http.client.HTTPConnection(server.netloc, timeout=10)) as connection:
        connection.request(method, path, sent, headers)
        with connection.getresponse() as response:
            raw = response.read()
    stream = response.headers.get_content_type() == "text/event-stream"
    return response.status, _events(raw) if stream else json.loads(raw), response.headers


def _events(raw: bytes) -> list[Any]:
    *events, rest = raw.decode().split("\n\n")
    assert rest == ""
    data = [event.removeprefix("data: ") for event in events]
    return [piece if piece == "[DONE]" else json.loads(piece) for piece in data]


def _text(events: list[Any]) -> str:
    chunks = [event["choices"][0]["delta"] for event in events[:-1] if event["choices"]]
    return "".join(delta.get("content", "") for delta in chunks)


@contextmanager
def program(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-m", "async_nodes.testing.model_server", *arguments]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert running.stdout is not None
        yield running, int(running.stdout.readline().rpartition(":")[2].removesuffix("/v1\n"))
    finally:
        running.kill()
        running.wait()
        if running.stdout is not None:
            running.stdout.close()


def wait_for(server: ModelServer, **counts: int) -> dict[str, Any]:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        stats = server.stats()
        if all(stats[name] == count for name, count in counts.items()):
            return stats
        time.sleep(0.005)
    raise AssertionError((counts, server.stats()))


def test_a_stream_is_in_openais_format(server: ModelServer) -> None:
    """Role, pieces, reason, usage and [DONE] arrive in this order under one id."""
    status, events, headers = ask(server, stream=True, stream_options={"include_usage": True})

    assert status == 200
    assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert events[-1] == "[DONE]"
    assert {event["object"] for event in events[:-1]} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events[:-1]}) == 1
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}
    assert (events[-2]["choices"], events[-2]["usage"]) == ([], usage)


def test_a_completion_is_in_openais_format(server: ModelServer) -> None:
    """Without stream, the whole answer is one document with its usage."""
    status, document, _ = ask(server, max_tokens=3)

    choice = document["choices"][0]
    assert (status, document["object"]) == (200, "chat.completion")
    assert (choice["message"]["role"], choice["finish_reason"]) == ("assistant", "length")
    assert document["usage"]["completion_tokens"] == 3


def test_usage_comes_in_a_stream_only_when_asked_for(server: ModelServer) -> None:
    """The usage chunk follows stream_options, as with the real service."""
    _, events, _ = ask(server, stream=True)

    assert all(event["choices"] for event in events[:-1])


def test_models_and_health_answer(server: ModelServer) -> None:
    """Clients that list models or probe health find what they expect."""
    assert ask(server, "/v1/models", method="GET")[1]["data"][0]["id"] == "sim"
    assert ask(server, "/healthz", method="GET")[1] == {"status": "ok"}
    assert ask(server, "/nowhere", method="GET")[0] == 404


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "gpt"}, 404, "does not exist"),
        ({"model": None}, 400, "model parameter"),
        ({"messages": "hi"}, 400, "messages"),
        ({"messages": [1]}, 400, "messages"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"model": "sim:frob"}, 400, "'frob'"),
        ({"model": "sim:tokens=x"}, 400, "'tokens=x'"),
        ({"model": "sim:401"}, 401, "simulated error 401"),
    ],
)
def test_errors_are_in_openais_format(
    server: ModelServer, body: dict[str, Any], status: int, words: str
) -> None:
    """Every refusal is an error document with a message."""
    answered, document, _ = ask(server, **body)

    assert answered == status
    assert words in document["error"]["message"]
    assert set(document["error"]) == {"message", "type", "param", "code"}


def test_a_fault_strikes_as_often_as_scripted_per_conversation(server: ModelServer) -> None:
    """``429x2,500x1`` fails three times and then answers; another conversation starts anew."""
    asked = {"model": "sim:429x2,500x1,retry_after=3"}
    answers = [ask(server, headers={"X-Sim-Key": "one"}, **asked) for _ in range(4)]
    other = ask(server, headers={"X-Sim-Key": "two"}, **asked)

    assert [status for status, _, _ in answers] == [429, 429, 500, 200]
    assert [headers["Retry-After"] for _, _, headers in answers] == ["3", "3", None, None]
    assert other[0] == 429


def test_attempts_of_one_task_are_one_conversation(server: ModelServer) -> None:
    """The Idempotency-Key tells two tasks with the same messages apart."""
    asked = {"model": "sim:500x1"}
    keys = ("a", "b", "a", "b")
    answers = [ask(server, headers={"Idempotency-Key": key}, **asked)[0] for key in keys]

    assert answers == [500, 500, 200, 200]


def test_a_header_scripts_as_well_as_the_models_name(server: ModelServer) -> None:
    """Programs that cannot choose the model's name set X-Sim."""
    assert ask(server, headers={"X-Sim": "503,retry_after=1.5"})[2]["Retry-After"] == "1.5"


def test_echo_answers_with_the_exact_text(server: ModelServer) -> None:
    """What goes in comes out, whatever the characters and however the bytes are cut."""
    text = "a\u2028b\u2029c\u0085d\x0b\x0c e\r\nf\rdata: x\n\n\ufeff 👩‍👩‍👧 你好 \x00 end\n"
    messages = [{"role": "user", "content": text}]

    _, events, _ = ask(server, model="sim:echo,split", messages=messages, stream=True)
    _, document, _ = ask(server, model="sim:echo", messages=messages)

    assert _text(events) == text
    assert document["choices"][0]["message"]["content"] == text


@pytest.mark.parametrize(
    ("fault", "error"),
    [("cut", ConnectionResetError), ("eof", None), ("malformed", json.JSONDecodeError)],
)
def test_stream_faults_strike_in_the_middle(
    server: ModelServer, fault: str, error: type[Exception] | None
) -> None:
    """A cut resets, an early end has no [DONE], a malformed chunk is no JSON."""
    if error is None:
        _, events, _ = ask(server, model=f"sim:{fault},at=3", stream=True)
        assert len(events) == 4
        assert "[DONE]" not in events
        return
    with pytest.raises((error, http.client.IncompleteRead)):
        ask(server, model=f"sim:{fault}", stream=True)


@pytest.mark.parametrize("script", ["hang", "stall", "ttft_ms=60000", "gap_ms=60000"])
def test_a_disconnect_is_noticed_at_once(server: ModelServer, script: str) -> None:
    """The server sees a client leave while it has nothing to write."""
    before = len(server.stats()["disconnects"])
    body = json.dumps({"model": f"sim:{script}", "messages": [], "stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(head.encode() + body)
        wait_for(server, live=1)
        time.sleep(0.05)
        left = time.time()

    stats = wait_for(server, live=0)

    assert len(stats["disconnects"]) == before + 1
    assert 0 <= stats["disconnects"][-1]["noticed_at"] - left < 0.1


def test_a_waiting_client_may_leave_too() -> None:
    """Requests beyond the slots wait, and one that leaves the queue frees nothing twice."""
    with ModelServer(ModelConfig(slots=1, ttft_ms=1, gap_ms=1, tokens=2)) as small:
        held = socket.create_connection(("127.0.0.1", small.port))
        waiting = socket.create_connection(("127.0.0.1", small.port))
        for client in (held, waiting):
            body = b'{"model": "sim:hang", "messages": []}'
            head = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
            client.sendall(head + body)
            time.sleep(0.05)
        wait_for(small, live=1, queued=1)
        waiting.close()
        wait_for(small, live=1, queued=0)
        held.close()
        wait_for(small, live=0)

        assert ask(small)[0] == 200
        assert small.stats()["most_live"] == 1


def test_bytes_that_are_no_request_are_refused(server: ModelServer) -> None:
    """Rubbish gets a status, never a hang."""
    for sent, status in (
        (b"hello\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"x" * 70_000, 431),
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
            client.sendall(sent)
            assert client.recv(100).startswith(b"HTTP/1.1 %d " % status)


def test_one_connection_serves_several_requests(server: ModelServer) -> None:
    """Keep-alive works after plain answers and after streams, pipelined requests included."""
    body = b'{"model": "sim", "messages": [], "stream": true}'
    post = b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b"
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(2 * (post % (len(body), body)) + b"GET /healthz HTTP/1.1\r\n\r\n")
        received = b""
        while b'"ok"' not in received:
            received += client.recv(65536)

    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.count(b"[DONE]") == 2


def test_a_key_is_required_when_one_is_set() -> None:
    """With an API key, requests without it are 401."""
    with ModelServer(ModelConfig(api_key="k", ttft_ms=1, gap_ms=1, tokens=1)) as closed:
        assert ask(closed)[0] == 401
        assert ask(closed, headers={"Authorization": "Bearer k"})[0] == 200


def test_rates_follow_the_seed() -> None:
    """The same seed and conversation meet the same fate, in any order of arrival."""
    config = ModelConfig(seed=7, rates={"429": 0.3, "cut": 0.3})
    fates = [draw(config, parse(""), key=str(key), nth=1) for key in range(1000)]

    assert fates == [draw(config, parse(""), key=str(key), nth=1) for key in range(1000)]
    share = [sum(plan.fault == name for plan in fates) for name in ("429", "cut", None)]
    assert all(abs(count - expected) < 60 for count, expected in zip(share, (300, 300, 400)))  # noqa: B905
    assert fates != [draw(ModelConfig(seed=8), parse(""), key=str(k), nth=1) for k in range(1000)]


def test_delays_are_log_normal_around_their_median() -> None:
    """Half of the delays are below the median, and none is negative."""
    plan = draw(ModelConfig(gap_ms=20, tokens=2001), parse(""), key="k", nth=1)
    gaps = sorted(plan.gaps)

    assert 0.018 < gaps[1000] < 0.022
    assert gaps[0] > 0
    assert gaps[-1] > 0.06


@given(st.text())
def test_tokens_join_to_their_text(text: str) -> None:
    """Cutting into tokens loses nothing."""
    assert "".join(tokenise(text)) == text


@given(st.text(max_size=30))
def test_no_script_breaks_the_parser(text: str) -> None:
    """Any text is a script or a named error."""
    try:
        parse(text)
    except ScriptError as error:
        assert str(error)  # noqa: PT017 - both outcomes are right


def test_the_program_tells_its_address_and_ends_on_sigterm() -> None:
    """As a process it picks a port, says so, and stops in order."""
    with program("--port", "0", "--tokens", "1", "--ttft-ms", "1") as (running, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/stats")
        assert json.loads(connection.getresponse().read())["requests"] == 0
        connection.close()
        running.send_signal(signal.SIGTERM)
        assert running.wait(5) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--rate", "429"], "write FAULT=P"),
        (["--rate", "429=2"], "write FAULT=P"),
        (["--rate", "frob=0.1"], "'frob'"),
        (["--slots", "0"], "1 or more"),
    ],
)
def test_the_program_refuses_wrong_options(arguments: list[str], words: str) -> None:
    """A wrong option is named and the exit status tells."""
    command = [sys.executable, "-m", "async_nodes.testing.model_server", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == 2
    assert words in done.stderr


def test_a_busy_port_is_named(server: ModelServer) -> None:
    """A port in use is one sentence, in the program and in a thread."""
    command = [sys.executable, "-m", "async_nodes.testing.model_server", "--port", str(server.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)

    assert done.returncode == 1
    assert "cannot listen" in done.stderr
    with pytest.raises(OSError, match=r"[Aa]ddress"):
        ModelServer(port=server.port).start()


def test_messages_are_in_anthropics_format(server: ModelServer) -> None:
    """Named events in their order, blocks that are closed, and errors of its own form."""
    headers = {"anthropic-version": "2023-06-01"}
    body = json.dumps(
        {
            "model": "sim:think=1,tokens=2",
            "max_tokens": 9,
            "stream": True,
            "messages": [{"role": "user", "content": "hi"}],
        }
    )
    with closing(http.client.HTTPConnection(server.netloc, timeout=10)) as connection:
        connection.request("POST", "/v1/messages", body, headers)
        events = [
            event.split("\n") for event in connection.getresponse().read().decode().split("\n\n")
        ]

    names = [event[0].removeprefix("event: ") for event in events[:-1]]
    assert names[:2] == ["message_start", "ping"]
    block = ["content_block_start", "content_block_delta"]
    assert names[2:5] == [*block, "content_block_stop"]
    assert names[5:] == [*block, block[1], "content_block_stop", "message_delta", "message_stop"]
    assert all(json.loads(event[1][6:])["type"] == event[0][7:] for event in events[:-1])
    status, refused, _ = ask(server, "/v1/messages", max_tokens=1)
    assert (status, refused["type"], set(refused["error"])) == (400, "error", {"type", "message"})
    assert ask(server, "/v1/messages", headers=headers)[0] == 400  # without max_tokens
    whole = ask(server, "/v1/messages", headers=headers, max_tokens=1)[1]
    assert (whole["type"], whole["stop_reason"]) == ("message", "max_tokens")
    assert set(whole["usage"]) == {"input_tokens", "output_tokens"}


def test_chats_are_in_ollamas_format(server: ModelServer) -> None:
    """A stream is what comes unless it is refused, one document a line."""
    body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hi"}]})
    with closing(http.client.HTTPConnection(server.netloc, timeout=10)) as connection:
        connection.request("POST", "/api/chat", body)
        response = connection.getresponse()
        lines = [json.loads(line) for line in response.read().splitlines()]

    assert response.headers["Content-Type"] == "application/x-ndjson"
    assert [line["done"] for line in lines] == [False] * 8 + [True]
    assert (lines[-1]["eval_count"], lines[-1]["done_reason"]) == (8, "stop")
    assert ask(server, "/api/chat", stream=False)[1]["done"] is True
    assert set(ask(server, "/api/chat", model="no")[1]) == {"error"}
    assert ask(server, "/api/tags", method="GET")[1]["models"][0]["name"] == "sim"


def test_azures_paths_name_the_model(server: ModelServer) -> None:
    """The deployment is the model, script included, and api-version is a must."""
    path = "/openai/deployments/sim%3A418/chat/completions"

    assert ask(server, path + "?api-version=1", model="other")[0] == 418
    assert ask(server, path)[0] == 404


def test_embeddings_are_in_each_format(server: ModelServer) -> None:
    """OpenAI's documents number their vectors; Ollama's are plain lists."""
    given = {"input": ["a", "b"], "dimensions": 2}
    status, document, _ = ask(server, "/v1/embeddings", **given)
    packed = ask(server, "/v1/embeddings", encoding_format="base64", **given)[1]
    plain = ask(server, "/api/embed", **given)[1]

    assert (status, document["object"]) == (200, "list")
    assert [item["index"] for item in document["data"]] == [0, 1]
    assert [len(item["embedding"]) for item in packed["data"]] == [12, 12]
    assert plain["embeddings"] == [item["embedding"] for item in document["data"]]
    assert document["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": ""}, "empty"),
        ({"input": []}, "empty"),
        ({"input": [1]}, "list of strings"),
        ({"input": ["a"] * 2_049}, "2048"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "model": "sim:frob"}, "'frob'"),
    ],
)
def test_embeddings_of_nothing_are_refused(
    server: ModelServer, body: dict[str, Any], words: str
) -> None:
    """What has no vector has a named answer."""
    status, document, _ = ask(server, "/v1/embeddings", **body)

    assert (status, words in document["error"]["message"]) == (400, True)


def test_tools_are_called_in_turn(server: ModelServer) -> None:
    """The first one, the one that must be called, none after a result or on request."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]

    def called(**more: Any) -> list[str]:
        message = ask(server, tools=tools, **more)[1]["choices"][0]["message"]
        return [call["function"]["name"] for call in message.get("tool_calls") or ()]

    assert called() == ["f"]
    assert called(tool_choice={"type": "function", "function": {"name": "g"}}) == ["g"]
    assert called(tool_choice="none") == []
    assert called(messages=[{"role": "tool", "content": "done"}]) == []


def test_150_streams_run_beside_each_other() -> None:
    """150 clients of one gevent process stream at once and get exact text."""
    script = """
        from gevent import monkey; monkey.patch_all()
        import sys, gevent
        from async_nodes.nodes import invoke
        from async_nodes.nodes.registry import registry
        from async_nodes.testing.harness import Outcome

        netloc = sys.argv[1]
        spec = registry(())["llm.chat"]
        text = "你好 world 🚀 " * 20
        def one(n):
            inputs = {"base_url": f"http://{netloc}/v1", "model": "sim:echo",
                      "messages": [{"role": "user", "content": f"{n} {text}"}]}
            ctx = Outcome().context("llm.chat", allow=frozenset({netloc}), task_id=f"t{n}")
            return invoke(spec, ctx, spec.validate(inputs)) == f"{n} {text}"
        jobs = [gevent.spawn(one, n) for n in range(150)]
        gevent.joinall(jobs, timeout=50)
        print(sum(job.value is True for job in jobs))
    """
    options = ("--slots", "150", "--ttft-ms", "500", "--gap-ms", "5")
    with program(*options) as (_, port):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), f"127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONDEVMODE": ""},
        )
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/stats")
        stats = json.loads(connection.getresponse().read())
        connection.close()

    assert done.stdout.strip() == "150", done.stderr
    assert stats["most_live"] == 150
    assert (stats["completed"], stats["disconnects"]) == (150, [])


def test_a_patched_process_is_refused() -> None:
    """Asyncio inside a gevent-patched process would stall: it says what to do instead."""
    script = """
        from gevent import monkey; monkey.patch_all()
        from async_nodes.testing import ModelServer
        try:
            ModelServer().start()
        except RuntimeError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert "python -m async_nodes.testing.model_server" in done.stdout, done.stderr
