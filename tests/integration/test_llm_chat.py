from __future__ import annotations

import http.server
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from async_nodes.core.errors import AsyncNodesError, RetryableError, TerminalError
from async_nodes.nodes import invoke
from async_nodes.nodes.registry import registry
from async_nodes.testing import ModelConfig, ModelServer, Outcome, run_node


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(ModelConfig(ttft_ms=1.0, gap_ms=0.5, tokens=8)) as running:
        yield running


def chat(server: ModelServer, model: str = "sim", text: str = "hi", **inputs: Any) -> Outcome:
    given = {
        "base_url": server.url,
        "model": model,
        "messages": [{"role": "user", "content": text}],
        **inputs,
    }
    task = given.pop("task_id", f"t_{time.monotonic_ns()}")
    return run_node("llm.chat", given, allow=frozenset({server.netloc}), task_id=task)


def failure(server: ModelServer, model: str, **inputs: Any) -> AsyncNodesError:
    with pytest.raises(AsyncNodesError) as caught:
        chat(server, model, **inputs)
    return caught.value


def test_the_answer_streams_and_its_usage_is_counted(server: ModelServer) -> None:
    """Each token is a chunk; the output is their text; usage is reported once."""
    outcome = chat(server)

    assert len(outcome.chunks) == 8
    assert outcome.output == "".join(outcome.chunks)
    assert outcome.usage == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13}


def test_without_stream_the_text_is_one_chunk(server: ModelServer) -> None:
    """Servers that cannot stream give the same output."""
    outcome = chat(server, stream=False)

    assert outcome.chunks == [outcome.output]
    assert outcome.usage["completion_tokens"] == 8


def test_odd_characters_are_exact(server: ModelServer) -> None:
    """Separators, emoji families and characters cut by the network come out as they went in."""
    text = "a\u2028b\u2029c\u0085d\x0b\x0c e\r\nf\rdata: x\n\n\ufeff 👩‍👩‍👧 你好 \x00 end\n"

    assert chat(server, "sim:echo,split", text).output == text


def test_options_reach_the_server(server: ModelServer) -> None:
    """max_tokens limits the answer, and extra members are passed on."""
    assert len(chat(server, max_tokens=3).chunks) == 3
    assert len(chat(server, extra={"max_tokens": 2}).chunks) == 2


def test_retry_after_is_honoured_and_usage_counted_once(server: ModelServer) -> None:
    """A 429 says when to come back; the next attempt of the task answers."""
    model, task = "sim:429x1,retry_after=2", "t_retry"

    error = failure(server, model, task_id=task)
    outcome = chat(server, model, task_id=task)

    assert isinstance(error, RetryableError)
    assert (error.code, error.retry_after) == ("model_rate_limited", 2.0)
    assert outcome.usage["total_tokens"] == 13


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("model", "kind", "code", "words"),
    [
        ("sim:500", RetryableError, "model_error", "answered 500: simulated error 500"),
        ("sim:503,retry_after=4", RetryableError, "model_error", "answered 503"),
        ("sim:408", RetryableError, "model_error", "answered 408"),
        ("sim:400", TerminalError, "model_refused", "answered 400: simulated error 400"),
        ("sim:401", TerminalError, "model_refused", "answered 401"),
        ("sim:403", TerminalError, "model_refused", "answered 403"),
        ("unknown", TerminalError, "model_refused", "'unknown' does not exist"),
    ],
)
def test_a_refusal_is_final_or_not_by_its_status(
    server: ModelServer, *, stream: bool, model: str, kind: type[Exception], code: str, words: str
) -> None:
    """5xx, 408 and 429 are tried again; the rest is final; the server's words are kept."""
    error = failure(server, model, stream=stream)

    assert type(error) is kind
    assert error.code == code
    assert words in error.detail
    assert error.retry_after == (4.0 if "503" in model else None)


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("cut", "model_stream_cut"),
        ("eof", "model_stream_cut"),
        ("stall", "model_stream_cut"),
        ("malformed", "model_bad_chunk"),
        ("hang", "egress_failed"),
    ],
)
def test_a_broken_stream_is_tried_again(server: ModelServer, fault: str, code: str) -> None:
    """Half an answer never passes for a whole one."""
    error = failure(server, f"sim:{fault}", timeout_ms=200)

    assert isinstance(error, RetryableError)
    assert error.code == code


def test_no_usage_is_counted_for_half_an_answer(server: ModelServer) -> None:
    """Chunks of a failed attempt were streamed, but its tokens are not summed up."""
    spec, outcome = registry()["llm.chat"], Outcome()
    ctx = outcome.context("llm.chat", allow=frozenset({server.netloc}))
    inputs = spec.validate(
        {"base_url": server.url, "model": "sim:cut", "messages": [{"role": "user"}]}
    )

    with pytest.raises(RetryableError):
        invoke(spec, ctx, inputs)
    assert len(outcome.chunks) == 4
    assert outcome.usage == {}


def test_the_key_is_sent_and_never_shown() -> None:
    """A Bearer token goes to the server; a server that repeats it does not leak it."""
    with ModelServer(ModelConfig(api_key="sk-secret", ttft_ms=1, gap_ms=1, tokens=1)) as closed:
        assert chat(closed, api_key="sk-secret").usage["completion_tokens"] == 1
        error = failure(closed, "sk-wrong", api_key="sk-wrong")
        assert (error.code, "sk-wrong" in error.detail) == ("model_refused", False)
        named = failure(closed, "sk-secret", api_key="sk-secret")
    assert "The model '***' does not exist" in named.detail
    assert registry()["llm.chat"].redacted({"api_key": "k"}) == {"api_key": "[redacted]"}


def test_closing_the_body_closes_the_models_socket(server: ModelServer) -> None:
    """A generator that is closed at token 3 ends the request on the server at once."""
    spec, outcome = registry()["llm.chat"], Outcome()
    ctx = outcome.context("llm.chat", allow=frozenset({server.netloc}), task_id="t_close")
    inputs = spec.validate(
        {"base_url": server.url, "model": "sim:gap_ms=5,tokens=999", "messages": [{"role": "user"}]}
    )
    stream = spec.function(ctx, **inputs)
    for _ in range(3):
        next(stream)

    left = time.time()
    stream.close()

    assert _disconnect(server, since=left)["noticed_at"] - left < 0.2


def test_cancel_from_another_thread_closes_the_models_socket(server: ModelServer) -> None:
    """A cancel while the model is silent ends the wait and the request at once."""
    outcome = Outcome()
    ctx = outcome.context("llm.chat", allow=frozenset({server.netloc}), task_id="t_cancel")
    spec = registry()["llm.chat"]
    inputs = spec.validate(
        {"base_url": server.url, "model": "sim:stall,at=2", "messages": [{"role": "user"}]}
    )
    cancelled: list[float] = []

    def cancel() -> None:
        cancelled.append(time.time())
        ctx.cancel()

    threading.Timer(0.2, cancel).start()
    with pytest.raises(RetryableError):
        list(spec.function(ctx, **inputs))

    assert time.time() - cancelled[0] < 0.2
    assert _disconnect(server, since=cancelled[0])["noticed_at"] - cancelled[0] < 0.2


def test_killing_the_greenlet_closes_the_models_socket(server: ModelServer) -> None:
    """Under gevent, a killed body ends the request on the server within 200 ms."""
    script = """
        from gevent import monkey; monkey.patch_all()
        import sys, time, gevent
        from async_nodes.nodes import invoke
        from async_nodes.nodes.registry import registry
        from async_nodes.testing.harness import Outcome

        netloc, spec, outcome = sys.argv[1], registry(())["llm.chat"], Outcome()
        ctx = outcome.context("llm.chat", allow=frozenset({netloc}), task_id="t_kill")
        inputs = spec.validate({"base_url": f"http://{netloc}/v1", "messages": [{"role": "user"}],
                                "model": "sim:stall,tokens=100,at=20"})
        job = gevent.spawn(invoke, spec, ctx, inputs)
        while len(outcome.chunks) < 20:
            gevent.sleep(0.005)
        print(time.time())
        job.kill()
        sys.stdout.flush()
        gevent.sleep(0.5)  # the process lives on: only the kill can have closed the socket
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), server.netloc],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.stdout, done.stderr
    killed = float(done.stdout)
    seen = _disconnect(server, since=killed)
    assert seen["tokens"] == 20
    assert seen["noticed_at"] - killed < 0.2


def _disconnect(server: ModelServer, *, since: float) -> dict[str, Any]:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        for seen in server.stats()["disconnects"]:
            if seen["noticed_at"] >= since:
                return seen  # type: ignore[no-any-return]
        time.sleep(0.005)
    raise AssertionError(server.stats())


@pytest.mark.parametrize(
    ("status", "kind", "body", "error", "code"),
    [
        (200, "text/html", b"<html>", TerminalError, "model_refused"),
        (200, "application/json", b"{}", TerminalError, "model_refused"),
        (200, "application/json", b'{"choices": [{}]}', TerminalError, "model_refused"),
        (429, "application/json", b'{"error": {"code": "insufficient_quota"}}', TerminalError, ""),
        (502, "text/html", b"<html>bad gateway", RetryableError, "model_error"),
        (400, "application/json", b'{"detail": "no such field"}', TerminalError, "model_refused"),
    ],
)
def test_other_servers_answers_are_understood(
    status: int, kind: str, body: bytes, error: type[Exception], code: str
) -> None:
    """A wrong base_url, an exhausted quota and a gateway's page all have a clear answer."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Stay quiet."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        threading.Thread(target=other.serve_forever, args=(0.02,), daemon=True).start()
        netloc = f"127.0.0.1:{other.server_address[1]}"
        inputs = {"base_url": f"http://{netloc}/v1/", "model": "m", "messages": [{}]}
        with pytest.raises(error) as caught:
            run_node("llm.chat", inputs, allow=frozenset({netloc}))
        other.shutdown()

    assert caught.value.code == (code or "model_refused")  # type: ignore[attr-defined]


def test_the_models_address_is_guarded() -> None:
    """base_url goes through the same guard as every other address."""
    with pytest.raises(TerminalError) as caught:
        run_node(
            "llm.chat",
            {"base_url": "http://127.0.0.1:1/v1", "model": "m", "messages": [{"role": "user"}]},
        )

    assert caught.value.code == "egress_refused"
